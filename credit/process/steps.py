"""Steps: the pieces of a trajectory that a process score speaks of.

A step is a run of decision tokens: a turn, a call, a line or a sentence. It never crosses a span border, and feedback,
scaffold and prompt are in none. Pieces without a token, or of blank text only, are dropped before the steps are
numbered; a piece shorter than the minimum joins the next piece of its span, so that splitting work into more steps
earns nothing. Nothing here scores a step.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from accredit.credit.errors import CreditError
from accredit.credit.functions.options import is_count
from accredit.credit.spans import Span
from accredit.credit.trajectory import Trajectory

__all__ = [
    "Grain",
    "Steps",
    "TokenBytes",
    "check_steps",
    "cut_steps",
    "mean_tokens_per_step",
    "step_count",
    "step_ends",
    "steps_of",
]

Steps = NDArray[np.int64]
"""int64 [T], the step of every token: 0, 1, ... in order, -1 outside any step."""

Grain = Literal["turn", "call", "line", "sentence"]

TokenBytes = Callable[[Sequence[int]], Sequence[bytes]]
"""Token ids to the exact bytes of each, such as `token_bytes` of a renderer."""

Tokens = NDArray[np.intp]

_LINE = re.compile(rb"\n")
_SENTENCE = re.compile(rb"""(?:[.!?]+["')\]]*(?=\s|\Z)|\xe3\x80\x82|\xef\xbc\x81|\xef\xbc\x9f|\n)""")  # also 。！？


def cut_steps(
    trajectory: Trajectory, grain: Grain = "turn", token_bytes: TokenBytes | None = None, least_tokens: int = 1
) -> Steps:
    """Cut a trajectory into steps.

    Args:
        trajectory: what to cut.
        grain: `turn` (a decision span is a step), `call` (the decision tokens of a call), `line` or `sentence` (pieces
            of the text of a decision span, each with the token in which it ends).
        token_bytes: the bytes of token ids; lines and sentences need it.
        least_tokens: a piece with fewer tokens joins the next one of its span, the last one joins the one before it.

    Returns:
        int64 [T] step ids, -1 outside any step.

    Raises:
        CreditError: an unknown grain, a minimum below 1, or lines and sentences without `token_bytes`.

    """
    check_steps(grain, token_bytes, least_tokens)
    steps_T: Steps = np.full(len(trajectory), -1, dtype=np.int64)
    count = 0
    for span in trajectory.decisions:
        for tokens in _merged(list(_pieces(trajectory, span, grain, token_bytes)), least_tokens):
            steps_T[tokens] = count
            count += 1
    return steps_T


def check_steps(grain: str, token_bytes: TokenBytes | None, least_tokens: int) -> None:
    """Raise `CreditError` unless a trajectory can be cut like this."""
    if grain not in get_args(Grain):
        raise CreditError(f"steps={grain!r}: expected one of {', '.join(get_args(Grain))}")
    if not is_count(least_tokens):
        raise CreditError(f"least_tokens={least_tokens!r}: expected a number of tokens of at least 1")
    if grain in ("line", "sentence") and token_bytes is None:
        raise CreditError(f"steps={grain!r} needs the text of tokens: pass token_bytes (a renderer has it)")
    if not (token_bytes is None or callable(token_bytes)):
        raise CreditError(f"token_bytes={token_bytes!r}: expected a function from token ids to the bytes of each")


def steps_of(steps: Steps) -> list[Tokens]:
    """Return the token indices of every step (ragged list of intp [N])."""
    return [np.flatnonzero(steps == step) for step in range(step_count(steps))]


def step_count(steps: Steps) -> int:
    """Return the number of steps."""
    return int(steps.max(initial=-1)) + 1


def step_ends(steps: Steps) -> Tokens:
    """Return intp [S], the index of the last token of every step."""
    inside = np.flatnonzero(steps >= 0)
    last = np.append(steps[inside][1:] != steps[inside][:-1], True) if len(inside) else np.zeros(0, dtype=np.bool_)
    ends: Tokens = inside[last]
    return ends


def mean_tokens_per_step(steps: Sequence[Steps]) -> float | None:
    """Return the mean tokens a step over several trajectories; None without a step. Watch it: falling means farming."""
    count = sum(step_count(each) for each in steps)
    return sum(int((each >= 0).sum()) for each in steps) / count if count else None


def _pieces(trajectory: Trajectory, span: Span, grain: str, token_bytes: TokenBytes | None) -> Iterator[Tokens]:
    if grain == "turn":
        yield np.arange(span.start, span.end)
    elif grain == "call":
        at = span.start
        calls = (call for call in trajectory.calls if call.start < span.end and span.start < call.end)
        for call in sorted(calls, key=lambda call: call.start):
            tokens = np.arange(max(at, call.start), min(span.end, call.end))  # two calls may share a straddling token
            at = max(at, call.end)
            if len(tokens):
                yield tokens
    elif token_bytes is not None:
        ids = trajectory.token_ids[span.start : span.end].tolist()
        pattern = _LINE if grain == "line" else _SENTENCE
        yield from (span.start + tokens for tokens in _text_pieces(list(token_bytes(ids)), pattern))


def _text_pieces(pieces: list[bytes], pattern: re.Pattern[bytes]) -> Iterator[Tokens]:
    """Yield the tokens of every piece of text that is not blank; a token belongs to the piece that ends in it."""
    text = b"".join(pieces)
    ends_N = np.cumsum([len(piece) for piece in pieces])
    cuts = {int(np.searchsorted(ends_N, match.end())) + 1 for match in pattern.finditer(text)}
    at = 0
    for cut in sorted({*cuts, len(pieces)}):
        if b"".join(pieces[at:cut]).strip():
            yield np.arange(at, cut)
        at = cut


def _merged(pieces: list[Tokens], least_tokens: int) -> list[Tokens]:
    merged: list[Tokens] = []
    waiting: list[Tokens] = []
    for piece in pieces:
        waiting.append(piece)
        if sum(map(len, waiting)) >= least_tokens:
            merged.append(np.concatenate(waiting))
            waiting = []
    if waiting:
        rest = np.concatenate(waiting)
        if merged:
            merged[-1] = np.concatenate([merged[-1], rest])
        else:
            merged.append(rest)
    return merged
