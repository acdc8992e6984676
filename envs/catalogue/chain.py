"""Chain: the exactly solvable long process of `accredit.credit.exact`, as a tool environment.

The process says what is right, what luck does and what a state is worth; this module only puts it into words. A task is
a way to number the four words of the hints, told at the beginning; a hint names the word of the turn, or "any" where
nothing depends on the choice. Luck breaks an episode silently: no result ever tells.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from accredit.credit.exact import ACTIONS, ChainProcess
from accredit.envs.core import ToolEnv
from accredit.envs.errors import EnvError, ToolError
from accredit.envs.messages import Message
from accredit.envs.task import Task
from accredit.envs.tools import tool

from .scripted import format_call
from .words import WORDS

__all__ = ["Chain", "ChainState"]

_WORDS = WORDS[:ACTIONS]
_SHAPES = {"easy": (8, 4, 0.03), "medium": (20, 5, 0.02), "hard": (40, 10, 0.01)}
_SPARE_TURNS = 8


@dataclass(slots=True)
class ChainState:
    """Turns lived, and whether the reward 1 can still be reached."""

    turn: int = 0
    ok: bool = True


class Chain(ToolEnv):
    """Choose rightly on the turns that matter; reward 1 if no such turn was wrong and luck broke nothing, else 0.

    Levels are (turns, turns that matter, chance that a turn breaks): "easy" (8, 4, .03), "medium" (20, 5, .02), "hard"
    (40, 10, .01). `turns`, `relevant` and `luck` override them. A perfect player wins with chance (1 - luck)^turns.
    """

    system = "Choose the number of the named word each turn. If it says any, all choices are the same."
    levels = tuple(_SHAPES)
    luck_spoils = True
    hook_timeout_s = None

    state: ChainState

    def __init__(
        self,
        *,
        turns: int | None = None,
        relevant: int | None = None,
        luck: float | None = None,
        max_turns: int | None = None,
        **settings: object,
    ) -> None:
        super().__init__(max_turns=max_turns, **settings)  # type: ignore[arg-type]
        self._given = (turns, relevant, luck)
        self._own_turns = max_turns
        self.process = self._make_process()

    def tasks(self, rng: np.random.Generator) -> Sequence[Task]:
        """List all ways to number the words."""
        return [self._task(numbers) for numbers in permutations(range(ACTIONS))]

    def setup(self) -> None:
        """Begin the process of the level in force."""
        self.process = self._make_process()
        self.max_turns = self.process.turns + _SPARE_TURNS if self._own_turns is None else self._own_turns
        self.state = ChainState()

    def opening(self) -> tuple[Message, ...]:
        """Return the usual messages, the first hint after the task."""
        *before, user = super().opening()
        return (*before, Message("user", f"{user.content} {self._hint()}"))

    @tool(timeout_s=None)
    def act(self, choice: int) -> str:
        """Choose a number from 0 to 3."""
        if not 0 <= choice < ACTIONS:
            raise ToolError(f"choice is {choice}: expected 0 to {ACTIONS - 1}", argument="choice")
        state = self.state
        if state.turn == self.process.turns:
            raise ToolError("the last turn is over")
        action = self._numbers.index(choice)
        state.ok = self.process.next_ok(state.turn, state.ok, action, self.rng)
        state.turn += 1
        self.finished = state.turn == self.process.turns
        return self._hint()

    def reward(self) -> float:
        """Return 1 if every turn was lived and nothing is lost."""
        return float(self.state.turn == self.process.turns and self.state.ok)

    def state_key(self) -> str:
        """Return the process's own key: the turn, and whether the reward can still be reached."""
        return self.process.state_key(self.state.turn, self.state.ok)

    def expert(self) -> Iterator[str]:
        """Choose the number of the named word; luck alone can make it lose."""
        hint = self._hint()
        while True:
            word = hint.removesuffix(".").split()[-1]
            yield format_call("act", choice=self._numbers[_WORDS.index(word)] if word in _WORDS else 0)
            hint = self.last_results[-1]

    def sloppy(self, rng: np.random.Generator, error_rate: float) -> Iterator[str]:
        """Choose like the expert, but any of the three others with probability `error_rate` on a named word."""
        for text in self.expert():
            right = self.process.right_action(self.state.turn)
            if right is not None and rng.random() < error_rate:
                choice = (self._numbers[right] + int(rng.integers(1, ACTIONS))) % ACTIONS
                text = format_call("act", choice=choice)
            yield text

    @property
    def _numbers(self) -> tuple[int, ...]:
        """The number of each word; words stand in the order of the process's actions."""
        numbers = self.task.data.get("numbers")
        if numbers is None or sorted(numbers) != list(range(ACTIONS)):
            raise EnvError(f"task {self.task.key!r} numbers no words: pass a task of Chain.tasks(rng)")
        return tuple(numbers)

    def _hint(self) -> str:
        turn = self.state.turn
        if turn == self.process.turns:
            return "End."
        right = self.process.right_action(turn)
        return f"Turn {turn}: {'any' if right is None else _WORDS[right]}."

    def _task(self, numbers: Sequence[int]) -> Task:
        told = ", ".join(f"{word} {number}" for word, number in zip(_WORDS, numbers, strict=True))
        return Task(f"Numbers: {told}.", id=told, data={"numbers": tuple(numbers)})

    def _make_process(self) -> ChainProcess:
        turns, relevant, luck = (
            default if given is None else given for given, default in zip(self._given, _SHAPES[self.level], strict=True)
        )
        return ChainProcess(turns=int(turns), relevant=int(relevant), luck=float(luck))
