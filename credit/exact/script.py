"""Processes that follow a script: a fixed row of parts, each a filler, a choice of the policy, or luck.

The reward is a function of what was picked, in order. `TwoTurn` and the boundary cases of the audit are scripts.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from accredit.credit.errors import CreditError
from accredit.credit.spans import SpanKind

from .tree import Step, TreeProcess

__all__ = ["Part", "Script", "choice", "coin", "filler", "two_turn"]

Picks = tuple[int, ...]
FILLER_TOKEN = 1
FIRST_OPTION_TOKEN = 10
TOKENS_A_PART = 10


@dataclass(frozen=True, slots=True)
class Part:
    """One token: `chances` of its options. With one option it is a filler."""

    kind: SpanKind
    chances: tuple[float, ...]


def filler(kind: SpanKind = SpanKind.DECISION) -> Part:
    """Return a token on which nothing depends."""
    return Part(kind, (1.0,))


def choice(*chances: float) -> Part:
    """Return a decision of the policy, by default between two options at even chances."""
    return Part(SpanKind.DECISION, chances or (0.5, 0.5))


def coin(*chances: float) -> Part:
    """Return luck of the environment, by default a fair coin."""
    return Part(SpanKind.FEEDBACK, chances or (0.5, 0.5))


def _no_turn_rewards(picks: Picks) -> Sequence[float]:
    return ()


def _all_known(picks: Picks) -> str | None:
    return "picked " + " ".join(map(str, picks))


@dataclass(frozen=True, slots=True)
class Script:
    """`Rules` of a fixed row of parts. The policy has one row of logits a choice, blind to what came before.

    Attributes:
        name: what tables call it.
        parts: the tokens in order.
        outcome_of: maps the picked options of all choices and coins, in order, to the terminal reward.
        turn_rewards_of: maps them to the rewards of the turns.
        key_of: maps those picked so far to the state key at a turn border.

    """

    name: str
    parts: tuple[Part, ...]
    outcome_of: Callable[[Picks], float]
    turn_rewards_of: Callable[[Picks], Sequence[float]] = _no_turn_rewards
    key_of: Callable[[Picks], str | None] = _all_known

    @property
    def slots(self) -> tuple[int, ...]:
        """The options of every choice."""
        return tuple(len(part.chances) for part in self.parts if self._is_choice(part))

    @property
    def start(self) -> Hashable:
        """Before the first part, nothing picked."""
        return 0, ()

    def step(self, state: Hashable) -> Step | None:
        """Return the part that `state` stands before."""
        place, picks = self._read(state)
        if place == len(self.parts):
            return None
        part = self.parts[place]
        if len(part.chances) == 1:
            return Step(part.kind, (FILLER_TOKEN,), (1.0,), ((place + 1, picks),))
        first = FIRST_OPTION_TOKEN + TOKENS_A_PART * place
        options = range(len(part.chances))
        slot = sum(self._is_choice(earlier) for earlier in self.parts[:place]) if self._is_choice(part) else None
        after = tuple((place + 1, (*picks, option)) for option in options)
        return Step(part.kind, tuple(first + option for option in options), part.chances, after, slot)

    def outcome(self, state: Hashable) -> float:
        """Return the terminal reward of what was picked."""
        return self.outcome_of(self._read(state)[1])

    def turn_rewards(self, state: Hashable) -> Sequence[float]:
        """Return the turn rewards of what was picked."""
        return self.turn_rewards_of(self._read(state)[1])

    def state_key(self, state: Hashable) -> str | None:
        """Return the key of what has been picked."""
        return self.key_of(self._read(state)[1])

    @staticmethod
    def _is_choice(part: Part) -> bool:
        return part.kind is SpanKind.DECISION and len(part.chances) > 1

    @staticmethod
    def _read(state: Hashable) -> tuple[int, Picks]:
        assert isinstance(state, tuple)
        place, picks = state
        return place, picks


def _observed(picks: Picks) -> str | None:
    return "start" if len(picks) < 2 else f"coin {picks[1]}" + (" end" if len(picks) > 2 else "")


def two_turn(*, stretch: int = 1, keys: str = "state", turn_rewards: bool = False) -> TreeProcess:
    """Make the two-turn process with a coin: filler, decision a | coin e | filler, decision b, filler.

    The policy is uniform over {0, 1} in both choices; R = .4 a + .3 e + .3 b.

    Args:
        stretch: tells every null part this many times and adds `stretch` - 1 null turns (`Stretched`).
        keys: what the state key at the border holds: "state", a and e, on which R depends; or "observation", only what
            the tool showed, which is e.
        turn_rewards: pay .4 a at the end of the first turn and the rest as outcome; R is the same.

    Raises:
        CreditError: `keys` is neither.

    """
    if keys not in ("state", "observation"):
        raise CreditError(f"keys={keys!r}: expected 'state' (a and e) or 'observation' (e)")

    def first(picks: Picks) -> float:
        return 0.4 * picks[0]

    def rest(picks: Picks) -> float:
        return 0.3 * picks[1] + 0.3 * picks[2]

    parts = (filler(), choice(), coin(), filler(), choice(), filler())
    key_of = _all_known if keys == "state" else _observed
    if turn_rewards:
        rules = Script("TwoTurn", parts, rest, lambda picks: (first(picks), 0.0), key_of)
    else:
        rules = Script("TwoTurn", parts, lambda picks: first(picks) + rest(picks), key_of=key_of)
    process = TreeProcess(rules)
    return process if stretch == 1 else process.stretched(stretch)
