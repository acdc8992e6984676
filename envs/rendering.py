"""From messages to token ids and from token ids to characters.

A renderer writes what the policy reads and tells which character of a sampled text each sampled id owns. It never
encodes what the policy sampled: a conversation grows by appending.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from accredit.credit import SpanKind

from .messages import Message, ToolSchema

__all__ = ["Piece", "Renderer", "chars_to_tokens"]


class Piece(NamedTuple):
    """Ids of one kind, in the order they are appended."""

    kind: SpanKind
    ids: list[int]


class Renderer(Protocol):
    """Message-to-token rendering of one model family. Holds no conversation: one renderer serves all episodes."""

    stop_ids: frozenset[int]
    """Ids that end the assistant's turn when sampled."""
    call_format: str
    """Name of the call format that the model was told to write."""
    vocab_size: int
    """Ids lie in [0, vocab_size)."""

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> list[Piece]:
        """Render the start of a conversation, up to where the assistant's first decision begins."""
        ...

    def feedback(self, messages: Sequence[Message], *, closed: bool) -> list[Piece]:
        """Render what comes between two decisions.

        `closed` says whether the policy sampled a stop id; if not, a close is added first, as scaffold.
        """
        ...

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of a decision as the environment sees it: up to its stop id, special tokens as text."""
        ...

    def token_spans(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Return the half-open character range of each id in `text(ids)`.

        Ids that share one character have overlapping ranges; a stop id has an empty range at the end.
        """
        ...

    def token_bytes(self, ids: Sequence[int]) -> list[bytes]:
        """Return the exact bytes of each id; of a special token, its text."""
        ...


def chars_to_tokens(spans: Sequence[tuple[int, int]], chars: tuple[int, int]) -> tuple[int, int]:
    """Return the half-open range of tokens that own any part of the characters [start, end).

    `spans` is what `Renderer.token_spans` returns: starts and ends never fall. An empty range of characters gives an
    empty range of tokens.
    """
    start, end = chars
    if end <= start:
        at = bisect_left(spans, start, key=lambda span: span[1])
        return at, at
    first = bisect_right(spans, start, key=lambda span: span[1])
    last = bisect_left(spans, end, key=lambda span: span[0])
    return first, max(first, last)
