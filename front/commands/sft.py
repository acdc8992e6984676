"""`accredit sft`: a supervised warm start on the environment's scripted expert."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

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
        typer.Argument(metavar="[KEY=VALUE]...", help="Settings over the file's, such as episodes=200 steps=100."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's newest checkpoint.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved configuration and a memory estimate, then stop.")
    ] = False,
) -> None:
    """Imitate the environment's expert on training tasks; writes runs/NAME with a checkpoint for `model.path`."""
    refuse_options(overrides or [], ("--resume", "--dry-run"))
    import yaml

    from accredit.envs import load_env
    from accredit.trainer.config import SFTConfig
    from accredit.trainer.config_file import load_run
    from accredit.trainer.estimate import memory_estimate
    from accredit.trainer.setup import check_installed, check_tasks
    from accredit.trainer.sft import warm_start

    settings = load_run(SFTConfig, config, overrides or [], resume)
    if dry_run:
        print(yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False))
        check_tasks(partial(load_env, settings.env), settings.env, settings.env_options)
        check_installed(settings)
        print(memory_estimate(settings))
        return
    with RunProgress() as progress:
        result = warm_start(settings, progress, resume=resume)
    print(f"held out before: {result.before.line()}")
    print(f"held out after:  {result.after.line()}")
    print(f"train it further with: accredit train CONFIG model.path={result.checkpoint}")
