"""Prints an episode in a terminal: credit as colour and underline, masked text dim, charges with their reasons.

Off a terminal rich drops the styles and the text stays. It does not page and does not read keys.
"""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from accredit.credit.ledger import Ledger
from accredit.credit.spans import SpanKind
from accredit.credit.traces import StoredEpisode

from .overlays import columns_of, group_scales

__all__ = ["MASK_REASONS", "show"]

MASK_REASONS = {
    SpanKind.PROMPT: "masked: prompt, not sampled",
    SpanKind.DECISION: "trained: sampled by the policy",
    SpanKind.FEEDBACK: "masked: written by the environment",
    SpanKind.SCAFFOLD: "masked: template, nobody sampled it",
}
_POSITIVE = (Style(underline=True, color="#92b8dc"), Style(underline=True, color="#4a90d9", bold=True))
_NEGATIVE = (Style(underline2=True, color="#e0a26a"), Style(underline2=True, color="#d9781e", bold=True))
_MASKED = Style(dim=True)


def show(episode: StoredEpisode, console: Console | None = None, ledger: int = 0) -> None:
    """Print `episode`: its messages, its charges, and the ledger of `ledger` tokens from the first decision on."""
    console = console or Console()
    t = episode.trajectory
    reward = "unscored" if t.reward is None else f"reward {t.reward:.3f}"
    counts = f"{t.turns} turns, {len(t)} tokens, {len(t.charges)} charges"
    head = f"{t.env_id or 'episode'} · {t.task_id or t.episode_id} · step {episode.step}"
    console.print(Text(f"{head}\n{reward} · {t.stop} · {counts}", style="bold"))
    signals = dict(columns_of(episode.credit))
    scale = group_scales([episode]).get("credit", 1.0)
    for span in t.spans:
        label = f"{span.kind}" + (f" turn {span.turn}" if span.turn >= 0 else "")
        note = f"{len(span)} tokens, {'trained' if span.kind is SpanKind.DECISION else 'masked'}"
        if "credit" in signals and span.kind is SpanKind.DECISION:
            note += f", credit {signals['credit'][span.start : span.end].sum():+.4f}"
        console.print(Text(f"── {label} ({note})", style="dim" if span.kind is not SpanKind.DECISION else "bold"))
        values_T = signals.get("credit")
        trained = span.kind is SpanKind.DECISION
        text = Text()
        for start, end in _runs(values_T, span.start, span.end):
            style = _MASKED if not trained else _style(None if values_T is None else float(values_T[start]), scale)
            text.append(printable(b"".join(episode.token_bytes[start:end]).decode("utf-8", "replace")), style)
        if text.plain.endswith("\n"):
            text.right_crop(1)  # the print ends the line
        console.print(text, soft_wrap=True)
    _charges(episode, console)
    if "credit" not in signals:
        console.print(Text("no credit was stored with this episode", style="dim"))
    if ledger > 0:
        _ledger(episode, console, ledger)


def printable(text: str) -> str:
    """Return `text` with terminal control and direction characters made visible; newlines and tabs stay."""
    return "".join(c if c in "\n\t" or c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def _runs(values_T: np.ndarray | None, start: int, end: int) -> Iterable[tuple[int, int]]:
    """Yield the stretches of [start, end) with one value."""
    if values_T is None:
        yield start, end
        return
    borders = start + 1 + np.flatnonzero(np.diff(values_T[start:end]))
    edges = [start, *borders.tolist(), end]
    yield from pairwise(edges)


def _style(value: float | None, scale: float) -> Style:
    if not value:
        return Style()
    return (_POSITIVE if value > 0 else _NEGATIVE)[int(abs(value) > scale / 2)]


def _charges(episode: StoredEpisode, console: Console) -> None:
    t = episode.trajectory
    for charge in t.charges:
        line = Text("charge ", style="bold")
        line.append(f"-{charge.amount:g} {charge.reason}", _NEGATIVE[1])
        line.append(f" on tokens [{charge.start}, {charge.end})")
        if charge.call is not None:
            call = t.calls[charge.call]
            line.append(printable(f": {call.name or 'unreadable call'} ended {call.status}: {call.result}"))
        console.print(line, soft_wrap=True)


def _ledger(episode: StoredEpisode, console: Console, rows: int) -> None:
    t = episode.trajectory
    first = t.decisions[0].start if t.decisions else 0
    last = min(len(t), first + rows)
    table = Table("position", "token", "id", "logprob", "credit", "advantage", "mask", padding=(0, 1))
    table.title = f"ledger of tokens [{first}, {last}), log-probabilities in nats"
    for span in t.spans:
        for at in range(max(first, span.start), min(last, span.end)):
            token = printable(episode.token_bytes[at].decode("utf-8", "backslashreplace"))
            logprob = "" if np.isnan(t.logprobs[at]) else f"{t.logprobs[at]:.3f}"
            sums = [_sum(episode.credit.credit, at), _sum(episode.credit.advantage, at)] if episode.credit else ["", ""]
            cells = [str(at), repr(token), str(t.token_ids[at]), logprob, *sums, MASK_REASONS[span.kind]]
            table.add_row(*(Text(cell) for cell in cells))
    console.print(table)


def _sum(ledger: Ledger, at: int) -> str:
    """Write one token's total as the sum of its terms; terms of exactly 0 are left out."""
    terms = [f"{name} {term_T[at]:+.4f}" for name, term_T in ledger.terms.items() if term_T[at] != 0]
    return f"{ledger.total[at]:+.4f}" + (f" = {', '.join(terms)}" if terms else "")
