"""The ChatML renderer: `<|im_start|>role ... <|im_end|>`, appended to and never rendered again.

For models such as SmolLM2 and for small policies of our own. Templates with reasoning channels or their own tool roles
are left to `PackageRenderer`.
"""

import re
from collections.abc import Sequence
from typing import Any

from accredit.credit import SpanKind

from .errors import RenderError
from .hermes import CLOSE, OPEN
from .messages import Message, ToolSchema
from .pieces import Piece, join_pieces
from .plaintext import PlainText
from .tokentext import TokenText, blueprint_of
from .toolprompt import ToolsFormat, tools_text

__all__ = ["ChatMLRenderer"]

START, END, END_OF_TEXT = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
SCAFFOLD, PROMPT, FEEDBACK = SpanKind.SCAFFOLD, SpanKind.PROMPT, SpanKind.FEEDBACK


class ChatMLRenderer(TokenText):
    """Renders ChatML for one tokenizer.

    Args:
        tokenizer: a `tokenizers.Tokenizer` or a fast tokenizer of transformers that has `<|im_start|>` and
            `<|im_end|>`; it is copied, never changed.
        tools_format: how tools are told, "json" or "signature".

    Raises:
        RenderError: the tokenizer lacks the two tokens, or its tokens' bytes cannot be known.

    """

    call_format = "hermes"

    def __init__(self, tokenizer: Any, tools_format: ToolsFormat = "json") -> None:
        plan = blueprint_of(tokenizer)
        super().__init__(plan)
        named = {content: at for at, content in self.added.items()}
        missing = [token for token in (START, END) if token not in named]
        if missing:
            raise RenderError(f"ChatML needs the added tokens {START} and {END}: the tokenizer lacks {missing}")
        if tools_format not in ("json", "signature"):
            raise RenderError(f"tools_format must be 'json' or 'signature', found {tools_format!r}")
        self.tools_format: ToolsFormat = tools_format
        self._start, self._end = named[START], named[END]
        self.stop_ids = frozenset(named[token] for token in (END, END_OF_TEXT) if token in named)
        self._markers = {marker: named[marker] for marker in (OPEN, CLOSE) if marker in named}
        self._plain = PlainText(plan)

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> list[Piece]:
        """Render the start of a conversation; tools are told at the end of the first system message."""
        writer = _Writer(self._plain, self._markers)
        told = tools_text(tools, self.tools_format)
        if told and not (messages and messages[0].role == "system"):
            messages = [Message("system", ""), *messages]
        for index, message in enumerate(messages):
            self._block(writer, message, PROMPT, told if index == 0 else "")
            writer.text(SCAFFOLD, "\n")
        return self._ask(writer)

    def feedback(self, messages: Sequence[Message], *, closed: bool) -> list[Piece]:
        """Render what follows a decision; a close that the policy did not sample is scaffold."""
        writer = _Writer(self._plain, self._markers)
        if not closed:
            writer.special(self._end)
        writer.text(SCAFFOLD, "\n")
        for message in messages:
            if message.role == "assistant":
                raise RenderError("feedback holds a message of the assistant: sampled text is never rendered again")
            self._block(writer, message, FEEDBACK, "")
            writer.text(SCAFFOLD, "\n")
        return self._ask(writer)

    def encode(self, text: str) -> list[int]:
        """Return ids that say `text` as the assistant, with its stop id: for scripts and warm starts."""
        head, body = _Writer(self._plain, self._markers), _Writer(self._plain, self._markers)
        head.text(SCAFFOLD, "assistant\n")
        body.text(SCAFFOLD, "assistant\n")
        body.marked(PROMPT, text)
        alone, joint = join_pieces(head.pieces()), body.pieces()
        if [piece.ids for piece in joint if piece.kind is SCAFFOLD] != [piece.ids for piece in alone]:
            body = _Writer(self._plain, self._markers)
            body.marked(PROMPT, text)
            joint = body.pieces()
        return [*(at for piece in joint if piece.kind is PROMPT for at in piece.ids), self._end]

    def _block(self, writer: "_Writer", message: Message, kind: SpanKind, told: str) -> None:
        writer.special(self._start)
        writer.text(SCAFFOLD, f"{message.role}\n")
        if message.role == "assistant":
            writer.marked(kind, message.content)
        else:
            writer.text(kind, message.content)
        if told:
            writer.marked(kind, f"\n\n{told}" if message.content else told)
        writer.special(self._end)

    def _ask(self, writer: "_Writer") -> list[Piece]:
        writer.special(self._start)
        writer.text(SCAFFOLD, "assistant\n")
        return writer.pieces()


class _Writer:
    """Collects text between special tokens, so that each stretch is encoded in one go and split by kind after."""

    def __init__(self, plain: PlainText, markers: dict[str, int]) -> None:
        self._plain = plain
        self._markers = markers
        self._pieces: list[Piece] = []
        self._open: list[tuple[SpanKind, str]] = []

    def text(self, kind: SpanKind, text: str) -> None:
        """Add text in which nothing is special."""
        self._open.append((kind, text))

    def marked(self, kind: SpanKind, text: str) -> None:
        """Add text of our own or of the assistant, in which call markers are the tokenizer's own tokens, if any."""
        if not self._markers:
            return self.text(kind, text)
        for part in re.split(f"({'|'.join(map(re.escape, self._markers))})", text):
            if part in self._markers:
                self._special(kind, self._markers[part])
            else:
                self.text(kind, part)

    def special(self, token: int) -> None:
        """Add a special token, as scaffold."""
        self._special(SCAFFOLD, token)

    def pieces(self) -> list[Piece]:
        """Return what was written; neighbours of one kind are one piece."""
        self._encode()
        return join_pieces(self._pieces)

    def _special(self, kind: SpanKind, token: int) -> None:
        self._encode()
        self._pieces.append(Piece(kind, [token]))

    def _encode(self) -> None:
        if self._open:
            ids = self._plain.encode_parts([text for _, text in self._open])
            self._pieces.extend(Piece(kind, part) for (kind, _), part in zip(self._open, ids, strict=True))
            self._open = []
