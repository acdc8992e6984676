"""Gymnasium spaces of messages: what an assistant may say (any text), and what an environment answers.

A `gymnasium.spaces.Text` needs an alphabet and a length; a model's message has neither.
"""

from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np

from .messages import Message

__all__ = ["MessageSpace", "MessagesSpace"]

_PIECES = (*"{}\"\\\n\t'0-é日🙂", " ", "apple", "6.0", "<tool_call>", "</tool_call>", '{"name": "price"', "<|im_end|>")
_ROLES = ("system", "user", "assistant", "tool")


class MessageSpace(gymnasium.Space[str]):
    """Every text of at most `max_length` characters; None for any length. Samples look like broken and whole calls."""

    def __init__(self, max_length: int | None = None, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(dtype=str, seed=seed)
        self.max_length = max_length

    @property
    def is_np_flattenable(self) -> bool:
        """A text has no array form."""
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a short random text. There is nothing to mask: `mask` and `probability` must be None."""
        if mask is not None or probability is not None:
            raise ValueError("MessageSpace.sample takes neither mask nor probability: texts have no fixed alphabet")
        count = int(self.np_random.integers(0, 12))
        text = "".join(_PIECES[int(index)] for index in self.np_random.integers(0, len(_PIECES), count))
        return text if self.max_length is None else text[: self.max_length]

    def contains(self, x: Any) -> bool:
        """Whether `x` is a text of allowed length."""
        return isinstance(x, str) and (self.max_length is None or len(x) <= self.max_length)

    def to_jsonable(self, sample_n: Iterable[str]) -> list[Any]:
        """Return the samples as they are: text is JSON."""
        return list(sample_n)

    def from_jsonable(self, sample_n: list[Any]) -> list[str]:
        """Return the samples as they were."""
        return list(sample_n)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageSpace) and self.max_length == other.max_length

    def __hash__(self) -> int:
        return hash((MessageSpace, self.max_length))

    def __repr__(self) -> str:
        return f"MessageSpace({'' if self.max_length is None else self.max_length})"


class MessagesSpace(gymnasium.Space[tuple[Message, ...]]):
    """Every tuple of messages, the empty one among them."""

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(dtype=object, seed=seed)  # type: ignore[arg-type]
        self._texts = MessageSpace()

    @property
    def is_np_flattenable(self) -> bool:
        """Messages have no array form."""
        return False

    def seed(self, seed: Any = None) -> Any:
        """Seed the samples."""
        seeds = super().seed(seed)
        self._texts = MessageSpace(seed=self.np_random)
        return seeds

    def sample(self, mask: Any = None, probability: Any = None) -> tuple[Message, ...]:
        """Return up to three random messages. There is nothing to mask."""
        if mask is not None or probability is not None:
            raise ValueError("MessagesSpace.sample takes neither mask nor probability: texts have no fixed alphabet")
        self._texts._np_random = self.np_random
        roles = [_ROLES[int(index)] for index in self.np_random.integers(0, 4, int(self.np_random.integers(0, 4)))]
        return tuple(
            Message(role, self._texts.sample(), *(("price", "call_0") if role == "tool" else ()))  # type: ignore[arg-type]
            for role in roles
        )

    def contains(self, x: Any) -> bool:
        """Whether `x` is a tuple of messages with texts in them."""
        return isinstance(x, tuple) and all(isinstance(m, Message) and isinstance(m.content, str) for m in x)

    def to_jsonable(self, sample_n: Iterable[tuple[Message, ...]]) -> list[Any]:
        """Return each sample as a list of objects."""
        names = ("role", "content", "name", "call_id")
        return [[{name: getattr(message, name) for name in names} for message in sample] for sample in sample_n]

    def from_jsonable(self, sample_n: list[Any]) -> list[tuple[Message, ...]]:
        """Return the samples that `to_jsonable` was given."""
        return [tuple(Message(**message) for message in sample) for sample in sample_n]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessagesSpace)

    def __hash__(self) -> int:
        return hash(MessagesSpace)

    def __repr__(self) -> str:
        return "MessagesSpace()"
