"""Symbols, small and tabular: answer the symbol that the tool shows, while luck bits add noise to the reward.

K turns of `fillers` filler tokens and one answer. The tool shows the first symbol in the task; after every answer it
shows a luck bit and the next symbol. R = share of right answers + 2 sigma sum(luck - 1/2) / sqrt(K). The policy has one
row of logits a symbol and gives the right answer with probability `p`.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from accredit.credit.errors import CreditError
from accredit.credit.spans import SpanKind

from .tree import Step, TreeProcess

__all__ = ["Symbols", "symbols"]

FILLER_TOKEN = 1
FIRST_ANSWER_TOKEN = 100
FIRST_SHOWN_TOKEN = 200


class _Place(NamedTuple):
    turn: int
    written: int  # filler tokens of this turn
    symbol: int
    right: int
    lucky: int
    answered: bool


@dataclass(frozen=True, slots=True)
class Symbols:
    """`Rules` of Symbols: `turns` K, `count` symbols, `fillers` a turn, `sigma` of luck, `p` the chance to be right."""

    turns: int = 2
    count: int = 2
    fillers: int = 2
    sigma: float = 0.5
    p: float = 0.5

    def __post_init__(self) -> None:
        if self.turns < 1 or self.count < 2 or self.fillers < 0 or not 0 < self.p < 1:
            raise CreditError(
                f"turns={self.turns}, count={self.count}, fillers={self.fillers}, p={self.p}: expected at least 1 "
                "turn, 2 symbols, 0 fillers, and a probability strictly between 0 and 1"
            )

    @property
    def name(self) -> str:
        """The name with its size."""
        return f"Symbols({self.turns} turns)"

    @property
    def slots(self) -> tuple[int, ...]:
        """One row a symbol."""
        return (self.count,) * self.count

    @property
    def start(self) -> Hashable:
        """Before the first turn; its symbol is 0."""
        return _Place(0, 0, 0, 0, 0, False)

    def step(self, state: Hashable) -> Step | None:
        """Return a filler, an answer, or what the tool shows."""
        place = self._place(state)
        if place.turn == self.turns:
            return None
        if place.answered:
            return self._shown(place)
        if place.written < self.fillers:
            return Step(SpanKind.DECISION, (FILLER_TOKEN,), (1.0,), (place._replace(written=place.written + 1),))
        options = range(self.count)
        chances = [self.p if option == place.symbol else (1 - self.p) / (self.count - 1) for option in options]
        after = [
            place._replace(right=place.right + (option == place.symbol), answered=True, written=0) for option in options
        ]
        tokens = tuple(FIRST_ANSWER_TOKEN + option for option in options)
        return Step(SpanKind.DECISION, tokens, tuple(chances), tuple(after), place.symbol)

    def outcome(self, state: Hashable) -> float:
        """Return the share of right answers plus luck."""
        place = self._place(state)
        noise = 2 * self.sigma * (place.lucky - self.turns / 2) / math.sqrt(self.turns)
        return place.right / self.turns + noise

    def turn_rewards(self, state: Hashable) -> Sequence[float]:
        """All is paid at the end."""
        return ()

    def state_key(self, state: Hashable) -> str | None:
        """Return everything on which the rest depends."""
        place = self._place(state)
        return f"{place.turn}: shown {place.symbol}, {place.right} right, {place.lucky} lucky"

    def _shown(self, place: _Place) -> Step:
        last = place.turn + 1 == self.turns
        shown = [(luck, symbol) for luck in (0, 1) for symbol in (range(1) if last else range(self.count))]
        after = [_Place(place.turn + 1, 0, symbol, place.right, place.lucky + luck, False) for luck, symbol in shown]
        tokens = tuple(FIRST_SHOWN_TOKEN + luck * self.count + symbol for luck, symbol in shown)
        return Step(SpanKind.FEEDBACK, tokens, (1 / len(shown),) * len(shown), tuple(after))

    @staticmethod
    def _place(state: Hashable) -> _Place:
        assert isinstance(state, _Place)
        return state


def symbols(turns: int = 2, count: int = 2, fillers: int = 2, sigma: float = 0.5, p: float = 0.5) -> TreeProcess:
    """Make Symbols; the defaults are small enough to enumerate."""
    return TreeProcess(Symbols(turns, count, fillers, sigma, p))
