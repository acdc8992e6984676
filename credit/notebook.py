"""What a notebook shows of an episode: tokens with their mask (and credit, where it is at hand), calls and charges.

Static HTML with the styles inline: no script, no address, nothing loaded. Every text is escaped, and characters that
turn the direction of text or are invisible are written out. Long spans are cut in the middle and say so. It decodes
nothing: without the tokens' bytes it shows their ids.
"""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .ledger import Credit
from .spans import Span, SpanKind
from .trajectory import Trajectory

__all__ = ["html_of", "visible"]

_HEAD, _TAIL = 120, 40  # tokens of a span that are shown where it is longer than both
_ROWS = 40  # calls and charges that are shown
_RESULT = 160  # characters of a call's result
_MASKED = "opacity:.55"
_DECISION = "font-weight:600"
_UNDERLINE = {1: "solid", -1: "wavy", 0: "dotted"}
_COLOUR = {1: "33,102,172", -1: "179,88,6"}  # blue above 0, brown-orange below: apart for colour-blind readers too


def html_of(trajectory: Trajectory, token_bytes: Sequence[bytes] | None = None, credit: Credit | None = None) -> str:
    """Return the HTML of an episode.

    Args:
        trajectory: what to show.
        token_bytes: T byte strings, the tokens' text; without them ids are shown.
        credit: colours the decision tokens: the strongest colour is the greatest magnitude in the episode.

    """
    t = trajectory
    values_T = None if credit is None else credit.credit.total
    scale = float(np.abs(values_T).max()) if values_T is not None and len(t) else 0.0
    spans = "".join(_span(t, span, token_bytes, values_T, scale) for span in t.spans)
    return (
        f'<div style="font-family:sans-serif;font-size:13px;line-height:1.5">{_head(t, credit)}'
        f'<div style="max-height:420px;overflow:auto;margin:.4em 0">{spans}</div>{_calls(t)}{_charges(t)}</div>'
    )


def visible(text: str) -> str:
    """Return `text` with control, direction and invisible characters written out; newlines stay."""
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _head(t: Trajectory, credit: Credit | None) -> str:
    reward = "unscored" if t.reward is None else f"reward {t.reward:.3f}"
    trained = int(t.credit_mask.sum())
    facts = f"{reward} · {t.stop.value} · {t.turns} turns · {trained} of {len(t)} tokens trained"
    if credit is not None:
        facts += f" · credit {float(credit.credit.total.sum()):+.3f}"
    name = " · ".join(part for part in (t.env_id, t.task_id, t.episode_id) if part) or "trajectory"
    error = f'<div style="color:#b35806">{_text(t.error)}</div>' if t.error else ""
    return f"<div><b>{_text(name)}</b><br>{facts}</div>{error}"


def _span(
    t: Trajectory,
    span: Span,
    token_bytes: Sequence[bytes] | None,
    values_T: NDArray[np.float64] | None,
    scale: float,
) -> str:
    trained = span.kind is SpanKind.DECISION
    label = span.kind.value + (f", turn {span.turn}" if span.turn >= 0 else "")
    note = f"{len(span)} tokens, {'trained' if trained else 'masked'}"
    if trained and values_T is not None:
        note += f", credit {float(values_T[span.start : span.end].sum()):+.4f}"
    pieces = "".join(_pieces(t, span, token_bytes, values_T if trained else None, scale))
    return (
        f'<div style="margin:.2em 0"><span style="font-size:11px;opacity:.7">{label} ({note})</span>'
        f'<div dir="ltr" style="font-family:monospace;white-space:pre-wrap;overflow-wrap:anywhere;'
        f'unicode-bidi:isolate;{_DECISION if trained else _MASKED}">{pieces}</div></div>'
    )


def _pieces(
    t: Trajectory,
    span: Span,
    token_bytes: Sequence[bytes] | None,
    values_T: NDArray[np.float64] | None,
    scale: float,
) -> Iterator[str]:
    shown = [(span.start, span.end)]
    if len(span) > _HEAD + _TAIL:
        shown = [(span.start, span.start + _HEAD), (span.end - _TAIL, span.end)]
    for place, (first, last) in enumerate(shown):
        if place:
            yield f" <i>… {len(span) - _HEAD - _TAIL} tokens …</i> "
        for start, end in _runs(values_T, first, last):
            if token_bytes is None:
                text = " ".join(map(str, t.token_ids[start:end].tolist())) + " "
            else:
                text = b"".join(token_bytes[start:end]).decode("utf-8", "replace")
            yield _coloured(_text(text), None if values_T is None else float(values_T[start]), scale)


def _runs(values_T: NDArray[np.float64] | None, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches of [start, end) with one value."""
    borders = [] if values_T is None else (start + 1 + np.flatnonzero(np.diff(values_T[start:end]))).tolist()
    yield from pairwise([start, *borders, end])


def _coloured(text: str, value: float | None, scale: float) -> str:
    if value is None:
        return text
    sign = int(np.sign(value))
    style = f"text-decoration:underline {_UNDERLINE[sign]}"
    if sign:
        style += f";background:rgba({_COLOUR[sign]},{0.12 + 0.4 * abs(value) / scale:.2f})"
    return f'<span style="{style}" title="credit {value:+.4f}">{text}</span>'


def _calls(t: Trajectory) -> str:
    rows = [
        (str(c.turn), f"[{c.start}, {c.end})", c.name or "unreadable", c.status.value, _cut(c.result)) for c in t.calls
    ]
    return _table("calls", ("turn", "tokens", "name", "status", "result"), rows)


def _charges(t: Trajectory) -> str:
    rows = [
        (f"-{c.amount:g}", c.reason, f"[{c.start}, {c.end})", "" if c.call is None else t.calls[c.call].name)
        for c in t.charges
    ]
    return _table("charges", ("amount", "reason", "tokens", "call"), rows)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    cell = 'style="text-align:left;vertical-align:top"'
    head = "".join(f"<th {cell}>{name}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td {cell}>{_text(text)}</td>" for text in row) + "</tr>" for row in rows[:_ROWS])
    more = f"<caption>{len(rows) - _ROWS} more {title}</caption>" if len(rows) > _ROWS else ""
    return f"<details><summary>{len(rows)} {title}</summary><table>{more}<tr>{head}</tr>{body}</table></details>"


def _cut(text: str) -> str:
    return text if len(text) <= _RESULT else f"{text[:_RESULT]} … {len(text) - _RESULT} more characters"


def _text(text: str) -> str:
    return escape(visible(text.encode("utf-8", "backslashreplace").decode()))
