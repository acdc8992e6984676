"""`accredit check`: proves of an environment what training on it relies on. Exit code 1 if a check fails."""

from typing import Annotated

import typer

from accredit.envs.check import CheckResult, check, check_names
from accredit.table import print_table

from .named import ENV_HELP, make_environment

__all__ = ["command"]

_VERDICTS = {True: "passed", False: "FAILED", None: "skipped"}


def command(
    env: Annotated[str, typer.Argument(metavar="ENV", help=ENV_HELP)],
    seeds: Annotated[int, typer.Option(metavar="N", help="Seeds to try: 0 to N-1.", min=1)] = 3,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECK", help="Run this check only; may be given several times.", show_default="all"),
    ] = None,
    full_marks: Annotated[float, typer.Option(metavar="REWARD", help="Reward of a perfect episode.")] = 1.0,
) -> None:
    """Check that an environment keeps its promises: seeds, isolation, tools, errors, scores, masks.

    It runs the environment's own code in this process. A check that does not apply is skipped and says why.
    """
    if unknown := [name for name in only or () if name not in check_names()]:
        raise typer.BadParameter(f"unknown check {unknown[0]!r}: {', '.join(check_names())}", param_hint="--only")
    make_environment(env).close()  # a wrong name is a wrong command line, not a failed check
    results = check(env, seeds=range(seeds), only=only or (), full_marks=full_marks)
    print_table(["check", "verdict", "evidence"], [_row(result) for result in results])
    verdicts = [result.passed for result in results]
    print(f"{verdicts.count(True)} passed, {verdicts.count(False)} failed, {verdicts.count(None)} skipped")
    if False in verdicts:
        raise typer.Exit(1)


def _row(result: CheckResult) -> list[str]:
    return [result.name, _VERDICTS[result.passed], " ".join(result.evidence.split())]
