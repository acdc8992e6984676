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
from .plain import one_line, printable

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
    head = one_line(f"{t.env_id or 'episode'} · {t.task_id or t.episode_id} · step {episode.step}")
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
        line.append(f"-{charge.amount:g} {one_line(charge.reason)}", _NEGATIVE[1])
        line.append(f" on tokens [{charge.start}, {charge.end})")
        if charge.call is not None:
            call = t.calls[charge.call]
            line.append(f": {one_line(call.name) or 'unreadable call'} ended {call.status}: {printable(call.result)}")
        console.print(line, soft_wrap=True)


def _ledger(episode: StoredEpisode, console: Console, rows: int) -> None:
    t = episode.trajectory
    first = t.decisions[0].start if t.decisions else 0
    last = min(len(t), first + rows)
    title = f"ledger of tokens [{first}, {last}), log-probabilities in nats"
    policy = _policy_columns(episode)
    columns = ("position", "token", "id", "logprob", *policy, "reward", "credit", "advantage", "mask")
    rewards = _rewards(episode)
    lines: list[list[str]] = []
    for span in t.spans:
        for at in range(max(first, span.start), min(last, span.end)):
            token = one_line(episode.token_bytes[at].decode("utf-8", "backslashreplace"))
            logprob = "" if np.isnan(t.logprobs[at]) else f"{t.logprobs[at]:.3f}"
            sums = [_sum(episode.credit.credit, at), _sum(episode.credit.advantage, at)] if episode.credit else ["", ""]
            trained = ["—" if np.isnan(values_T[at]) else f"{values_T[at]:.3f}" for values_T in policy.values()]
            head = [str(at), repr(token), str(t.token_ids[at]), logprob, *trained, rewards.get(at, "")]
            lines.append([*head, *sums, MASK_REASONS[span.kind]])
    if console.is_terminal:
        table = Table(*columns, padding=(0, 1), title=Text(title))
        for line in lines:
            table.add_row(*map(Text, line))
        console.print(table)
        return
    widths = [max(map(len, column)) for column in zip(columns, *lines, strict=True)]
    for text in (title, *("  ".join(map(str.ljust, line, widths)).rstrip() for line in (columns, *lines))):
        console.print(Text(text), soft_wrap=True)


def _policy_columns(episode: StoredEpisode) -> dict[str, np.ndarray]:
    """Return what the update computed, by its name in the ledger; NaN where it computed nothing."""
    found: dict[str, np.ndarray] = {}
    if "trainer_logprob" in episode.signals:
        found["trainer"] = episode.signals["trainer_logprob"]
        found["ratio"] = np.exp(found["trainer"] - episode.trajectory.logprobs)
    if "entropy" in episode.signals:
        found["entropy"] = episode.signals["entropy"]
    return found


def _rewards(episode: StoredEpisode) -> dict[int, str]:
    """Return the last decision token of a turn -> what the environment gave there."""
    t = episode.trajectory
    given: dict[int, str] = {}
    for span in t.decisions:
        if t.turn_rewards[span.turn]:
            given[span.end - 1] = f"{t.turn_rewards[span.turn]:+.4f}"
    if t.decisions and t.outcome is not None:
        at = t.decisions[-1].end - 1
        given[at] = " ".join(filter(None, [given.get(at), f"{t.outcome:+.4f} (outcome)"]))
    return given


def _sum(ledger: Ledger, at: int) -> str:
    """Write one token's total as the sum of its terms; terms of exactly 0 are left out."""
    terms = [f"{one_line(name)} {term_T[at]:+.4f}" for name, term_T in ledger.terms.items() if term_T[at] != 0]
    return f"{ledger.total[at]:+.4f}" + (f" = {', '.join(terms)}" if terms else "")
