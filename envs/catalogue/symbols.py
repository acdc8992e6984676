"""Symbols: each turn shows a symbol to choose and the coin of the last choice, and the coins pay as the choices do.

    R = mean over the K turns of 1[choice = symbol] + 2 sigma sum over the turns of (coin - 1/2) / sqrt(K)

The coins depend on nothing that is done: they are luck that no credit function should pay for. Both parts of R are
multiples of 2^-30, so that sums and differences of rewards are exact and equal luck cancels to the last bit.
This module trains nothing; `benchmarks/symbols_learning.py` does.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from accredit.envs.core import ToolEnv
from accredit.envs.errors import EnvError, ToolError
from accredit.envs.messages import Message
from accredit.envs.task import Task
from accredit.envs.tools import tool

from .scripted import format_call

__all__ = ["SYMBOLS", "Symbols", "SymbolsState", "choice_reward", "luck_reward"]

SYMBOLS = "ABCDEFGH"
_SHAPES = {"easy": (6, 0.0), "medium": (6, 0.5), "hard": (12, 0.5)}
_SPARE_TURNS = 8
_GRAIN = 2.0**-30


def choice_reward(right: int, turns: int) -> float:
    """Return the part of R that choices earn, in [0, 1]: `right` of `turns` were right."""
    return round(right / turns / _GRAIN) * _GRAIN


def luck_reward(heads: int, thrown: int, turns: int, sigma: float) -> float:
    """Return the part of R that coins pay, `heads` of `thrown` being 1; over `turns` coins its deviation is sigma."""
    return round(2 * sigma * (heads - thrown / 2) / math.sqrt(turns) / _GRAIN) * _GRAIN


@dataclass(slots=True)
class SymbolsState:
    """The task's symbols, the choices made, how many were right, and how many of their coins were 1."""

    symbols: str
    turn: int = 0
    right: int = 0
    heads: int = 0


class Symbols(ToolEnv):
    """Choose the symbol that is shown, turn after turn; the reward is the share of right choices, plus luck.

    Levels are (turns, sigma): "easy" (6, 0), "medium" (6, .5), "hard" (12, .5); `turns` and `sigma` override them. With
    sigma above 0 the reward leaves [0, 1] on both sides. Text around the call is free filler. A task is a row of
    symbols; the coins are luck, one after each choice, whatever was chosen.
    """

    system = "Choose the symbol that is shown each turn. The coin says nothing."
    levels = tuple(_SHAPES)
    hook_timeout_s = None

    state: SymbolsState

    def __init__(
        self, *, turns: int | None = None, sigma: float | None = None, max_turns: int | None = None, **settings: object
    ) -> None:
        super().__init__(max_turns=max_turns, **settings)  # type: ignore[arg-type]
        if turns is not None and (isinstance(turns, bool) or not isinstance(turns, int) or turns < 1):
            raise EnvError(f"Symbols: turns is {turns!r}, expected a whole number of at least 1")
        if sigma is not None and not (isinstance(sigma, int | float) and math.isfinite(sigma) and sigma >= 0):
            raise EnvError(f"Symbols: sigma is {sigma!r}, expected a finite number of at least 0")
        self._given = (turns, sigma)
        self._own_turns = max_turns

    @property
    def turns(self) -> int:
        """The number K of choices in an episode."""
        return int(_SHAPES[self.level][0] if self._given[0] is None else self._given[0])

    @property
    def sigma(self) -> float:
        """The deviation of the luck in R."""
        return float(_SHAPES[self.level][1] if self._given[1] is None else self._given[1])

    def draw_task(self, rng: np.random.Generator) -> Task:
        """Draw a row of symbols, one a turn."""
        row = "".join(SYMBOLS[int(index)] for index in rng.integers(len(SYMBOLS), size=self.turns))
        return Task("Begin.", id=row, data={"symbols": row})

    def setup(self) -> None:
        """Begin with the task's row."""
        row = self.task.data.get("symbols")
        if not isinstance(row, str) or len(row) != self.turns or not set(row) <= set(SYMBOLS):
            raise EnvError(f"task {self.task.key!r}: expected {self.turns} symbols of {SYMBOLS}, found {row!r}")
        self.max_turns = self.turns + _SPARE_TURNS if self._own_turns is None else self._own_turns
        self.state = SymbolsState(row)

    def opening(self) -> tuple[Message, ...]:
        """Return the usual messages, the first symbol after the task."""
        *before, user = super().opening()
        return (*before, Message("user", f"{user.content} Symbol {self.state.symbols[0]}."))

    @tool(timeout_s=None)
    def choose(self, symbol: str) -> str:
        """Choose a symbol, A to H."""
        state = self.state
        if len(symbol) != 1 or symbol not in SYMBOLS:
            raise ToolError(f"symbol is {symbol[:20]!r}: expected one of {', '.join(SYMBOLS)}", argument="symbol")
        if state.turn == self.turns:
            raise ToolError("the last turn is over")
        coin = int(self.rng.integers(2))
        state.right += int(symbol == state.symbols[state.turn])
        state.heads += coin
        state.turn += 1
        self.finished = state.turn == self.turns
        shown = "End." if self.finished else f"Symbol {state.symbols[state.turn]}."
        return f"Coin {coin}. {shown}"

    def reward(self) -> float:
        """Return the share of right choices, plus what the coins paid."""
        return choice_reward(self.state.right, self.turns) + self.luck_reward()

    def luck_reward(self) -> float:
        """Return what the coins paid."""
        return luck_reward(self.state.heads, self.state.turn, self.turns, self.sigma)

    def expert(self) -> Iterator[str]:
        """Choose what is shown."""
        while True:
            yield format_call("choose", symbol=self.state.symbols[self.state.turn])

    def sloppy(self, rng: np.random.Generator, error_rate: float) -> Iterator[str]:
        """Choose like the expert, but any other symbol with probability `error_rate`."""
        for text in self.expert():
            if rng.random() < error_rate:
                shown = SYMBOLS.index(self.state.symbols[self.state.turn])
                text = format_call("choose", symbol=SYMBOLS[(shown + int(rng.integers(1, 8))) % len(SYMBOLS)])
            yield text
