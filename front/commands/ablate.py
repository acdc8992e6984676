"""`accredit ablate`: one configuration with several credit functions, by the same seeds and the same budget."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accredit.curve import draw_arms
from accredit.progress import RunProgress
from accredit.table import print_table

if TYPE_CHECKING:
    from accredit.trainer.ablation import Arm, Criterion

__all__ = ["command"]

_MARKS = {True: "yes", False: "NO", None: "-"}
_CRITERIA = ("reward rises", "not below baseline", "probe", "no divergence")


def command(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML or TOML file, as for `accredit train`.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings over the file's, such as steps=20.")
    ] = None,
    credit: Annotated[
        str, typer.Option("--credit", metavar="A,B,...", help="Credit functions; the first is the baseline.")
    ] = "grpo,anchored",
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Runs of each, from the configuration's seed upward.")
    ] = 5,
) -> None:
    """Train with each credit function by the same seeds, plot held-out curves with their spread, and judge.

    Runs lie in RUNS_DIR/NAME-ablation, each an ordinary run; what is finished there is not lived again. The four
    criteria: training reward rises, held-out success is not below the baseline's, credit moves in the right direction
    when a decision of an exact process is flipped, nothing diverges.
    """
    from accredit.trainer.ablation import run_arms, verdict
    from accredit.trainer.config import TrainConfig, load_config

    names = list(dict.fromkeys(name.strip() for name in credit.split(",") if name.strip()))
    if not names:
        raise typer.BadParameter("expected at least one credit function, such as --credit grpo,anchored")
    given = load_config(TrainConfig, config, overrides or [])
    arms = run_arms(given, names, seeds, RunProgress)
    folder = Path(given.runs_dir) / f"{given.name}-ablation"
    verdicts = [verdict(arm, arms[0], _probe(arm.credit)) for arm in arms]
    columns = ["credit", "seeds", "held out at the end", "mean of the curve", *_CRITERIA]
    rows = _rows(arms, verdicts)
    print_table(columns, rows)
    for arm, criteria in zip(arms, verdicts, strict=True):
        for one in criteria:
            print(f"{arm.credit}: {one.name}: {_MARKS[one.holds]} ({one.evidence})")
    heading = f"# {given.name}: {given.env}, {seeds} seeds of {given.steps} steps\n\n"
    report = folder / "ablation.md"
    report.write_text(f"{heading}{_markdown(columns, rows, arms, verdicts)}\n", encoding="utf-8")
    report.with_suffix(".json").write_text(json.dumps(_facts(arms, verdicts), indent=1) + "\n", encoding="utf-8")
    print(f"curves: {draw_arms(arms, folder / 'ablation.png', f'{given.name}: {given.env}')}")
    print(f"report: {report}, {report.with_suffix('.json')}")


def _probe(name: str) -> float | None:
    """Return the share of flipped decisions whose credit moves the right way; None where the probe does not apply."""
    from accredit.credit.audit import OMITTED, make_for, probe
    from accredit.credit.exact import two_turn

    return None if name in OMITTED else probe(two_turn(), make_for(name)).right


def _rows(arms: "list[Arm]", verdicts: "list[tuple[Criterion, ...]]") -> list[list[str]]:
    rows = []
    for arm, criteria in zip(arms, verdicts, strict=True):
        ends = arm.held_out[:, -1] if len(arm.seeds) else arm.held_out.ravel()
        spread = f"{ends.mean():.3f} ± {ends.std(ddof=1):.3f}" if len(ends) > 1 else f"{ends.mean():.3f}" * len(ends)
        area = f"{arm.held_out.mean():.3f}" if arm.held_out.size else ""
        rows.append([arm.credit, str(len(arm.seeds)), spread, area, *(_MARKS[one.holds] for one in criteria)])
    return rows


def _markdown(columns: list[str], rows: list[list[str]], arms: "list[Arm]", verdicts: "list[Any]") -> str:
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *(f"| {' | '.join(row)} |" for row in rows), ""]
    for arm, criteria in zip(arms, verdicts, strict=True):
        lines += [f"- `{arm.credit}`: {one.name}: {_MARKS[one.holds]} ({one.evidence})" for one in criteria]
    return "\n".join(lines)


def _facts(arms: "list[Arm]", verdicts: "list[tuple[Criterion, ...]]") -> list[dict[str, Any]]:
    return [
        {
            "credit": arm.credit,
            "seeds": arm.seeds,
            "steps": arm.steps.tolist(),
            "held_out": arm.held_out.tolist(),
            "failures": arm.failures,
            "verdict": [one._asdict() for one in criteria],
            "runs": [str(path) for path in arm.runs],
        }
        for arm, criteria in zip(arms, verdicts, strict=True)
    ]
