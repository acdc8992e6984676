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
    from accredit.trainer.ablation import options_of, run_arms, verdict
    from accredit.trainer.config import TrainConfig
    from accredit.trainer.config_file import load_config

    names = list(dict.fromkeys(name.strip() for name in credit.split(",") if name.strip()))
    if not names:
        raise typer.BadParameter("expected at least one credit function, such as --credit grpo,anchored")
    given = load_config(TrainConfig, config, overrides or [])
    probes = {name: _probe(name, options_of(given, name)) for name in names}
    arms = run_arms(given, names, seeds, RunProgress)
    folder = Path(given.runs_dir) / f"{given.name}-ablation"
    folder.mkdir(parents=True, exist_ok=True)  # not there yet where every run failed before its first step
    verdicts = [verdict(arm, arms[0], probes[arm.credit]) for arm in arms]
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


def _probe(name: str, options: dict[str, Any]) -> float | None:
    """Return the share of flipped decisions whose credit moves the right way; None where the probe does not apply."""
    from accredit.credit.audit import OMITTED, make_for, probe
    from accredit.credit.exact import two_turn
    from accredit.trainer.preflight import without_scorers

    if name in OMITTED:
        return None
    make = without_scorers(make_for(name, **options))
    try:
        return probe(two_turn(), make).right
    except Exception as error:  # a user's function may raise anything; whether it trains is for the run to say
        print(f"{name}: no counterfactual probe: {type(error).__name__}: {error}")
        return None


def _rows(arms: "list[Arm]", verdicts: "list[tuple[Criterion, ...]]") -> list[list[str]]:
    rows = []
    for arm, criteria in zip(arms, verdicts, strict=True):
        ends = arm.held_out[:, -1] if len(arm.seeds) else arm.held_out.ravel()
        spread = f"{ends.mean():.3f}" if len(ends) else ""
        spread += f" ± {ends.std(ddof=1):.3f}" if len(ends) > 1 else ""
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
            "held_out": [[None if point != point else point for point in row] for row in arm.held_out.tolist()],
            "failures": arm.failures,
            "verdict": [one._asdict() for one in criteria],
            "runs": [str(path) for path in arm.runs],
        }
        for arm, criteria in zip(arms, verdicts, strict=True)
    ]
