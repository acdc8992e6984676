"""`accredit train`: a run from a configuration file."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from accredit.curve import draw, read_curve
from accredit.progress import RunProgress

from .named import refuse_options

__all__ = ["CONTEXT_SETTINGS", "command"]

CONTEXT_SETTINGS = {"ignore_unknown_options": True}


def command(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="YAML or TOML file, or the directory of a run to go on with.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Settings over the file's, such as optimizer.lr=1e-4 steps=20."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's newest checkpoint.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved configuration and a memory estimate, then stop.")
    ] = False,
) -> None:
    """Train an agent with policy gradients on per-token credit; writes runs/NAME.

    On several GPUs or machines: torchrun --nproc-per-node N -m accredit train CONFIG.
    """
    refuse_options(overrides or [], ("--resume", "--dry-run"))
    import yaml

    from accredit.envs import load_env
    from accredit.trainer.config import TrainConfig
    from accredit.trainer.config_file import load_run
    from accredit.trainer.distributed import Unheard, speaks
    from accredit.trainer.estimate import memory_estimate
    from accredit.trainer.loop import train
    from accredit.trainer.setup import check_installed, check_tasks

    settings = load_run(TrainConfig, config, overrides or [], resume)
    if dry_run:
        print(yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False))
        check_tasks(partial(load_env, settings.env), settings.env, settings.env_options)
        check_installed(settings)
        print(memory_estimate(settings))
        return
    if not speaks():
        train(settings, Unheard(), resume=resume)
        return
    with RunProgress() as progress:
        result = train(settings, progress, resume=resume)
    curve = draw(read_curve(result.run.history()), result.run.path / "curve.png", f"{settings.name}: {settings.env}")
    if result.before is not None:
        print(f"held out before: {result.before.line()}")
    print(f"held out after:  {result.after.line()}")
    print(f"curve: {curve}\nlook at the episodes: accredit replay export {result.run.path}")
