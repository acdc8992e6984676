"""From messages to token ids and from token ids to characters.

A renderer writes what the policy reads and tells which character of a sampled text each sampled id owns. It never
encodes what the policy sampled: a conversation grows by appending.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from numpy.typing import ArrayLike

from .errors import RenderError
from .messages import Message, ToolSchema
from .pieces import Piece

__all__ = ["Bridge", "ContextRenderer", "Piece", "Renderer", "chars_to_tokens", "make_renderer"]


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

    def text(self, ids: ArrayLike) -> str:
        """Return the text of a decision as the environment sees it: up to its stop id, special tokens as text."""
        ...

    def token_spans(self, ids: ArrayLike) -> list[tuple[int, int]]:
        """Return the half-open character range of each id in `text(ids)`.

        Ids that share one character have overlapping ranges; a stop id has an empty range at the end.
        """
        ...

    def token_bytes(self, ids: ArrayLike) -> list[bytes]:
        """Return the exact bytes of each id; of a special token, its text."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return ids that say `text` as the assistant, with a stop id: for scripts and warm starts."""
        ...


class Bridge(NamedTuple):
    """What comes between two decisions. With `broken` set, why the exact prefix could not be extended.

    `pieces` then hold the whole conversation anew, for a fresh segment.
    """

    pieces: list[Piece]
    broken: str | None = None


@runtime_checkable
class ContextRenderer(Protocol):
    """A renderer whose feedback depends on what came before, such as an open reasoning channel."""

    def bridge(
        self,
        prefix: Sequence[int],
        decision: Sequence[int],
        conversation: Sequence[Message],
        new: Sequence[Message],
        tools: Sequence[ToolSchema],
    ) -> Bridge:
        """Render what follows `decision`.

        Args:
            prefix: all ids of the present segment before the decision.
            decision: the ids that the policy sampled.
            conversation: all messages before `new`, the decision's message last.
            new: the messages that the environment answered with.
            tools: as given to `prompt`.

        """
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


def make_renderer(tokenizer: Any, name: str = "auto", **options: Any) -> Renderer:
    """Return a renderer for a tokenizer.

    Args:
        tokenizer: a `tokenizers.Tokenizer` or a fast tokenizer of transformers.
        name: "chatml" for our own; any name of the package `renderers` ("qwen3", ...); "auto" takes the package's
            renderer if it knows the tokenizer's `name_or_path` and writes calls that we can read, else ChatML.
        options: of `ChatMLRenderer` or of `PackageRenderer`.

    Raises:
        RenderError: the name is unknown, or the tokenizer does not fit.

    """
    from .chatml import ChatMLRenderer

    if name == "chatml":
        return ChatMLRenderer(tokenizer, **options)
    if name != "auto":
        from .package import PackageRenderer

        return PackageRenderer(tokenizer, name, **options)
    if getattr(tokenizer, "name_or_path", ""):
        from .package import PackageRenderer, package_name

        known = package_name(tokenizer)
        if known is not None:
            return PackageRenderer(tokenizer, known, **options)
    try:
        return ChatMLRenderer(tokenizer, **options)
    except RenderError as error:
        raise RenderError(f"no renderer fits this tokenizer: name one of the package's, or: {error}") from error
