"""`accredit audit`: every credit function against the axioms, the exact gradient, and known tables."""

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accredit.table import print_table

if TYPE_CHECKING:
    from accredit.credit.audit import Make

__all__ = ["command"]

REFERENCE = "exact"


def command(
    function: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Audit this function, beside 'exact', instead of all: a registered name, or package.module:name of "
            "your own. May be given several times. A class that takes `values` gets the exact ones.",
            show_default="all registered",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Seconds instead of a minute: fewer groups, no long chains.")
    ] = False,
    tolerance: Annotated[
        float, typer.Option(metavar="RESIDUAL", help="An axiom is kept when its residual is at most this.")
    ] = 0.01,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of everything that is drawn.", min=0)] = 0,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the audit as Markdown, too.", show_default="not written")
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write it as JSON, too, with the token where each axiom fails worst.",
            show_default="not written",
        ),
    ] = None,
) -> None:
    """Audit credit functions: six axioms, boundary cases, flipped decisions, signal-to-noise.

    All of it on small processes whose values and gradient are known exactly. Exit code 1 if 'exact' itself fails, or a
    function cannot be priced.
    """
    from accredit.credit.audit import AuditSettings, audit, notes, to_json, to_markdown, to_tables

    for option, file in (("--markdown", markdown), ("--json", json)):
        if file is not None and not file.parent.is_dir():
            raise typer.BadParameter(f"there is no folder {file.parent}", param_hint=option)
        if file is not None and file.is_dir():
            raise typer.BadParameter(f"{file} is a folder, expected a file in it", param_hint=option)
    if markdown is not None and markdown == json:
        raise typer.BadParameter(f"{json} would be written twice: give the two files names of their own")
    if not tolerance > 0:
        raise typer.BadParameter(f"{tolerance} is not above 0", param_hint="--tolerance")
    makers = None if not function else _named(function)
    settings = AuditSettings.quick(tolerance, seed) if quick else AuditSettings(tolerance, seed=seed)
    bar = _Bar()
    with bar.shown():
        found = audit(makers, settings, bar.heard)
    for table in to_tables(found):
        print(f"{table.title}\n{table.legend}\n")
        print_table(table.columns, table.rows)
        print()
    for note in notes(found):
        print(f"- {note}")
    for file, text in ((markdown, to_markdown), (json, to_json)):
        if file is not None:
            file.write_text(text(found), encoding="utf-8")
            print(f"written: {file}")
    if not found.keeps(REFERENCE):
        print(f"the reference '{REFERENCE}' fails: the audit itself is broken", file=sys.stderr)
        raise typer.Exit(1)


def _named(names: list[str]) -> "dict[str, Make]":
    """Return how to make the named functions, 'exact' first; each is made once to see that it can be."""
    from accredit.credit.audit import audited_functions, make_for
    from accredit.credit.errors import CreditError
    from accredit.credit.exact import two_turn

    known = audited_functions()
    makers = {REFERENCE: known[REFERENCE]}
    for name in names:
        try:
            makers[name] = known[name] if name in known else make_for(name)
            makers[name](two_turn())
        except CreditError as error:
            raise typer.BadParameter(str(error), param_hint="--function") from error
    return makers


class _Bar:
    """A bar on a terminal, nothing anywhere else."""

    def __init__(self) -> None:
        self._progress: Any = None
        self._task: Any = None

    def shown(self) -> AbstractContextManager[Any]:
        """Return the context in which the bar is seen."""
        if not sys.stderr.isatty():
            return nullcontext()
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
        console = Console(stderr=True)
        self._progress = Progress(*columns, TextColumn("{task.description}"), console=console, transient=True)
        self._task = self._progress.add_task("", total=None)
        progress: AbstractContextManager[Any] = self._progress
        return progress

    def heard(self, done: int, total: int, what: str) -> None:
        """Move the bar."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done, total=total, description=what)
