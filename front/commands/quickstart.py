"""`accredit quickstart`: the small model that ships with the package learns the shop, in minutes, on a CPU."""

import time
from pathlib import Path
from typing import Annotated

import typer

from accredit.curve import draw, print_curve, read_curve
from accredit.progress import RunProgress

__all__ = ["CONFIG", "command"]

CONFIG = Path(__file__).with_name("quickstart.yaml")


def command(
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings over the recipe's, such as seed=1.")
    ] = None,
) -> None:
    """Train on Shop with anchored credit, evaluate on held-out tasks before and after, and write a replay page."""
    from accredit.trainer.config import TrainConfig
    from accredit.trainer.config_file import load_config
    from accredit.trainer.loop import train

    started = time.monotonic()
    config = load_config(TrainConfig, CONFIG, overrides or [])
    config = config.model_copy(update={"name": _free_name(Path(config.runs_dir), config.name)})
    with RunProgress() as progress:
        result = train(config, progress)
    trained_s = time.monotonic() - started
    run = result.run.path
    curve = read_curve(result.run.history())
    print_curve(curve)
    print(f"before: {result.before.line() if result.before else 'not evaluated'}")
    print(f"after:  {result.after.line()}")
    print(f"trained and evaluated in {trained_s / 60:.1f} minutes")
    print(f"curve:  {draw(curve, run / 'curve.png', 'quickstart: held-out orders of the shop')}")
    print(f"replay: {_page(run, config.steps)}")


def _free_name(runs: Path, name: str) -> str:
    """Return a name of which no run exists yet: nothing is overwritten."""
    taken, number = name, 1
    while (runs / taken).exists():
        number += 1
        taken = f"{name}-{number}"
    return taken


def _page(run: Path, last_step: int) -> Path:
    """Write a page with groups from the first and the last step, those with failures and successes first."""
    from accredit.replay import export, open_run

    rows = [row for row in open_run(run).index() if row.split == "train" and row.step in (1, last_step)]
    chosen: list[str] = []
    for step in (1, last_step):
        groups: dict[str, list] = {}
        for row in rows:
            if row.step == step:
                groups.setdefault(row.group, []).append(row)
        ranked = sorted(
            groups.values(),
            key=lambda members: (
                -len({m.reward for m in members}),
                -sum(m.charges > 0 for m in members),
                members[0].group,
            ),
        )
        chosen += [row.episode_id for members in ranked[:2] for row in members]
    return export(run, run / "replay.html", episodes=chosen, title="Accredit quickstart: the shop")
