"""Renders with the package `renderers`, which knows the templates of some thirty model families.

The package turns messages into ids and extends a sampled prefix; this module makes pieces of that, checks that the
prefix was extended exactly, keeps special tokens out of the environment's text, and reads decisions by our own bytes.
It serves families that write calls in a format of `accredit.envs.calls`. The package is imported when it is first used.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from accredit.credit import SpanKind

from .errors import RenderError
from .messages import Message, ToolSchema
from .pieces import Piece, join_pieces
from .plaintext import PlainText
from .rendering import Bridge
from .tokentext import TokenText, blueprint_of

__all__ = ["CALL_FORMATS_BY_NAME", "PackageRenderer", "package_name"]

CALL_FORMATS_BY_NAME: dict[str, str] = {"qwen3": "hermes"}
"""Families of the package whose calls we can read, and the format they write."""

SCAFFOLD, PROMPT, FEEDBACK = SpanKind.SCAFFOLD, SpanKind.PROMPT, SpanKind.FEEDBACK
_QUOTED = "\U0010fffb{}\U0010fffb"


def package_name(tokenizer: Any) -> str | None:
    """Return the package's family for a tokenizer's `name_or_path`, None if it knows none whose calls we can read."""
    from renderers.base import MODEL_RENDERER_MAP

    name = MODEL_RENDERER_MAP.get(str(getattr(tokenizer, "name_or_path", "")))
    return name if name in CALL_FORMATS_BY_NAME else None


class PackageRenderer(TokenText):
    """One family of the package for one tokenizer.

    Args:
        tokenizer: a fast tokenizer of transformers; it is copied, never changed.
        name: the family ("qwen3").
        options: the family's template options (`enable_thinking`, `thinking_retention`).

    Raises:
        RenderError: the family is unknown, writes calls that we cannot read, or does not fit the tokenizer.

    """

    def __init__(self, tokenizer: Any, name: str, **options: Any) -> None:
        from renderers import config_from_name, create_renderer

        if name not in CALL_FORMATS_BY_NAME:
            near = get_close_matches(name, CALL_FORMATS_BY_NAME, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"readable are {', '.join(sorted(CALL_FORMATS_BY_NAME))}"
            raise RenderError(f"no renderer '{name}' whose calls we can read: {hint}")
        self.name, self.call_format = name, CALL_FORMATS_BY_NAME[name]
        plan = blueprint_of(tokenizer)
        super().__init__(plan)
        self._plain = PlainText(plan)
        self._copy, self._quotes = _with_quotes(tokenizer, self._plain.control)
        try:
            config: Any = type(config_from_name(name))
            self._package = create_renderer(self._copy, config(**options))
        except (AssertionError, ValueError, TypeError) as error:
            raise RenderError(f"the package's renderer '{name}' does not fit this tokenizer: {error}") from error
        self.stop_ids = frozenset(self._package.get_stop_token_ids())
        special = {token for token in self._copy.all_special_tokens if isinstance(token, str)}
        self._template_only = {text for text in self._plain.control.values() if text in special}

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> list[Piece]:
        """Render the start of a conversation."""
        return self._whole(messages, tools, len(messages))

    def feedback(self, messages: Sequence[Message], *, closed: bool) -> list[Piece]:
        """Render what follows a decision that holds no open reasoning; `bridge` looks at the decision itself.

        Raises:
            RenderError: the family cannot extend a prefix with these messages.

        """
        head = self.prompt([Message("user", "")], ())
        decision = [next(iter(self._stop_first()))] if closed else []
        prefix = [at for piece in head for at in piece.ids]
        pieces, broken = self._extend(prefix, decision, messages, ())
        if broken is not None:
            raise RenderError(f"{broken}: call bridge() with the conversation")
        return pieces

    def bridge(
        self,
        prefix: Sequence[int],
        decision: Sequence[int],
        conversation: Sequence[Message],
        new: Sequence[Message],
        tools: Sequence[ToolSchema],
    ) -> Bridge:
        """Render what follows `decision`; where the exact prefix cannot be extended, the whole conversation anew."""
        pieces, broken = self._extend(prefix, decision, new, tools)
        if broken is None:
            return Bridge(pieces)
        return Bridge(self._whole([*conversation, *new], tools, len(conversation)), broken)

    def encode(self, text: str) -> list[int]:
        """Return ids that say `text` as the assistant, with its stop id: for scripts and warm starts."""
        ids = self._copy.encode(self._quoted(text, self._template_only), add_special_tokens=False)
        return [*self._unquoted(ids), self._stop_first()[0]]

    def call_spans(self, ids: ArrayLike) -> list[tuple[int, int] | None]:
        """Return the package's own token range of every call it finds in a decision, None where it gives none."""
        return [call.token_span for call in self._package.parse_response(np.asarray(ids).tolist()).tool_calls]

    def _whole(self, messages: Sequence[Message], tools: Sequence[ToolSchema], answered: int) -> list[Piece]:
        given: list[Any] = [self._message_of(message) for message in messages]
        try:
            rendered = self._package.render(given, tools=self._tools(tools), add_generation_prompt=True)
        except ValueError as error:
            raise RenderError(f"renderer '{self.name}' cannot render these messages: {error}") from error
        last = max((at for at, index in enumerate(rendered.message_indices) if index >= 0), default=-1)
        system = [message.role == "system" for message in messages]
        kinds: list[SpanKind] = []
        for at, (index, body) in enumerate(zip(rendered.message_indices, _bodies(rendered), strict=True)):
            if at > last or (index >= 0 and not system[index] and not body):
                kinds.append(SCAFFOLD)
            else:
                kinds.append(FEEDBACK if index >= answered else PROMPT)
        return self._pieces(rendered.token_ids, kinds)

    def _extend(
        self, prefix: Sequence[int], decision: Sequence[int], new: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> tuple[list[Piece], str | None]:
        before = [*map(int, prefix), *map(int, decision)]
        given: list[Any] = [self._message_of(message) for message in new]
        rendered = self._package.bridge_to_next_turn(
            before[: len(prefix)], before[len(prefix) :], given, tools=self._tools(tools)
        )
        if rendered is None:
            roles = ", ".join(sorted({message.role for message in new})) or "no"
            return [], f"the template of '{self.name}' cannot extend this prefix with {roles} messages"
        if rendered.token_ids[: len(before)] != before:
            return [], f"the template of '{self.name}' changed ids of the prefix"
        kinds = [
            FEEDBACK if index >= 0 and body else SCAFFOLD
            for index, body in zip(rendered.message_indices, _bodies(rendered), strict=True)
        ]
        return self._pieces(rendered.token_ids[len(before) :], kinds[len(before) :]), None

    def _pieces(self, ids: Sequence[int], kinds: Sequence[SpanKind]) -> list[Piece]:
        return join_pieces(Piece(kind, self._unquoted([at])) for at, kind in zip(ids, kinds, strict=True))

    def _message_of(self, message: Message) -> dict[str, Any]:
        ours = message.role == "assistant"
        control = self._template_only if ours else set(self._plain.control.values())
        given: dict[str, Any] = {"role": message.role, "content": self._quoted(message.content, control)}
        if message.role == "tool":
            given |= {"name": message.name or "", "tool_call_id": message.call_id or ""}
        return given

    def _tools(self, tools: Sequence[ToolSchema]) -> list[Any] | None:
        control = self._plain.control.values()

        def quoted(value: Any) -> Any:
            if isinstance(value, str):
                return self._quoted(value, control)
            if isinstance(value, Mapping):
                return {quoted(key): quoted(item) for key, item in value.items()}
            return [quoted(item) for item in value] if isinstance(value, (list, tuple)) else value

        functions = [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools
        ]
        return [{"type": "function", "function": quoted(function)} for function in functions] or None

    def _quoted(self, text: str, control: Iterable[str]) -> str:
        for spelled in sorted(control, key=len, reverse=True):
            if spelled in text:
                text = text.replace(spelled, self._quotes[spelled][0])
        return text

    def _unquoted(self, ids: Sequence[int]) -> list[int]:
        spelled = {token: text for text, (_, token) in self._quotes.items()}
        out: list[int] = []
        for at in ids:
            out.extend(self._plain.encode(spelled[at]) if at in spelled else (at,))
        return out

    def _stop_first(self) -> list[int]:
        return list(self._package.get_stop_token_ids())


def _with_quotes(tokenizer: Any, control: Mapping[int, str]) -> tuple[Any, dict[str, tuple[str, int]]]:
    """Return a copy of the tokenizer with a stand-in token for the plain spelling of each special one."""
    if not hasattr(tokenizer, "convert_tokens_to_ids"):
        raise RenderError(f"the package needs a tokenizer of transformers, found {type(tokenizer).__name__}")
    twin = copy.deepcopy(tokenizer)
    quotes = {text: _QUOTED.format(at) for at, text in control.items()}
    twin.add_tokens(list(quotes.values()), special_tokens=True)
    return twin, {text: (quote, twin.convert_tokens_to_ids(quote)) for text, quote in quotes.items()}


def _bodies(rendered: Any) -> list[bool]:
    """Return which tokens are a message's own; without that knowledge of the package, all."""
    return list(rendered.is_content) or [True] * len(rendered.token_ids)
