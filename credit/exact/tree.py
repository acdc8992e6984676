"""Processes made from rules: a walk in which each step the policy or the environment picks a token.

`Rules` say what can happen in a state; `TreeProcess` solves them by dynamic programming over states: values, policy
gradient, enumeration, sampling. It does not know what the tokens mean.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from accredit.credit.errors import CreditError
from accredit.credit.recorder import Recorder
from accredit.credit.spans import SpanKind
from accredit.credit.trajectory import Group, StopReason, Trajectory

__all__ = ["PROMPT_TOKEN", "Rules", "Step", "TreeProcess"]

Floats = NDArray[np.float64]
PROMPT_TOKEN = 0
MOST_TRAJECTORIES = 4096


@dataclass(frozen=True, slots=True)
class Step:
    """What can happen in a state: one token of `tokens`, with `chances`, leading to the state in `after`.

    `slot` is the row of the policy's logits that gives the chances; None where nothing is chosen by the policy: on
    feedback, and on a decision token that has one option only.
    """

    kind: SpanKind
    tokens: tuple[int, ...]
    chances: tuple[float, ...]
    after: tuple[Hashable, ...]
    slot: int | None = None


class Rules(Protocol):
    """A process as a set of states. Consecutive decision tokens are one turn; what follows them is its feedback."""

    @property
    def name(self) -> str:
        """What tables call the process."""
        ...

    @property
    def slots(self) -> tuple[int, ...]:
        """The number of options of every row of the policy's logits."""
        ...

    @property
    def start(self) -> Hashable:
        """The first state."""
        ...

    def step(self, state: Hashable) -> Step | None:
        """Return what can happen in `state`; None at the end of the episode."""
        ...

    def outcome(self, state: Hashable) -> float:
        """Return the terminal reward of an end state."""
        ...

    def turn_rewards(self, state: Hashable) -> Sequence[float]:
        """Return the rewards of the turns that led to an end state; may be shorter than the turns."""
        ...

    def state_key(self, state: Hashable) -> str | None:
        """Return the key of a state at a turn border: equal keys, equal futures."""
        ...


class _Moment(NamedTuple):
    """A step lived: the state it was taken in, and which of its options was taken."""

    state: Hashable
    step: Step
    option: int


@dataclass(frozen=True, eq=False)
class TreeProcess:
    """An `ExactProcess` from rules. A state may be reached in several ways; it is solved once."""

    rules: Rules
    _values: dict[Hashable, float] = field(default_factory=dict, repr=False)
    _gradients: dict[Hashable, Floats] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The name of the rules."""
        return self.rules.name

    @property
    def enumerable(self) -> bool:
        """Whether there are at most 4096 trajectories."""
        return self._count({}, self.rules.start) <= MOST_TRAJECTORIES

    def enumerate(self) -> Iterator[tuple[float, Trajectory]]:
        """Yield every trajectory of positive probability with its probability, first options first."""
        waiting: list[tuple[float, tuple[_Moment, ...], Hashable]] = [(1.0, (), self.rules.start)]
        while waiting:
            chance, path, state = waiting.pop()
            step = self.rules.step(state)
            if step is None:
                yield chance, self._record(path, state, "")
                continue
            for option in reversed(range(len(step.tokens))):
                if step.chances[option] > 0:
                    moment = _Moment(state, step, option)
                    waiting.append((chance * step.chances[option], (*path, moment), step.after[option]))

    def sample(self, rng: np.random.Generator, episode_id: str = "") -> Trajectory:
        """Live one episode."""
        path, state = [], self.rules.start
        while (step := self.rules.step(state)) is not None:
            drawn = int(np.searchsorted(np.cumsum(step.chances), rng.random(), side="right"))
            option = min(drawn, len(step.tokens) - 1)
            path.append(_Moment(state, step, option))
            state = step.after[option]
        return self._record(path, state, episode_id)

    def sample_group(self, rng: np.random.Generator, size: int) -> Group:
        """Live `size` episodes of the task."""
        return Group(tuple(self.sample(rng, str(index)) for index in range(size)))

    def value(self, state: Hashable) -> float:
        """Return the exact E[R] from `state` on, R the outcome and all turn rewards."""
        if state not in self._values:
            step = self.rules.step(state)
            if step is None:
                found = self.rules.outcome(state) + float(sum(self.rules.turn_rewards(state)))
            else:
                found = sum(chance * self.value(after) for chance, after in zip(step.chances, step.after, strict=True))
            self._values[state] = found
        return self._values[state]

    def values(self, trajectory: Trajectory) -> Floats:
        """float64 [T+1], V before every token, R at the end."""
        path, end = self._walk(trajectory)
        ahead = [self.value(moment.state) for moment in path]
        return np.array([self.value(self.rules.start), *ahead, self.value(end)])

    def policy_gradient(self) -> Floats:
        """float64 [P], the exact gradient of E[R] in the logits of every slot, slot after slot."""
        return self._gradient(self.rules.start).copy()

    def score(self, trajectory: Trajectory) -> Floats:
        """float64 [T, P], grad log pi of every token: 1[option taken] - pi in the columns of its slot."""
        path, _ = self._walk(trajectory)
        score_TP = np.zeros((len(trajectory), sum(self.rules.slots)))
        for position, moment in enumerate(path, start=1):
            if moment.step.slot is not None:
                self._add_score(score_TP[position], moment.step, moment.option, 1.0)
        return score_TP

    def flipped(self, trajectory: Trajectory, position: int, option: int) -> Trajectory:
        """Return the trajectory that takes `option` at token `position`, with the same noise before and after it.

        Every other step takes the option of the same index as before, the last one where there are fewer.
        """
        path, _ = self._walk(trajectory)
        taken = [moment.option for moment in path]
        taken[position - 1] = option
        lived: list[_Moment] = []
        state = self.rules.start
        while (step := self.rules.step(state)) is not None:
            wanted = taken[len(lived)] if len(lived) < len(taken) else 0
            lived.append(_Moment(state, step, min(wanted, len(step.tokens) - 1)))
            state = step.after[lived[-1].option]
        return self._record(lived, state, trajectory.episode_id)

    def options(self, trajectory: Trajectory, position: int) -> int:
        """Return how many options there were at token `position`."""
        return len(self._walk(trajectory)[0][position - 1].step.tokens) if position else 1

    def stretched(self, factor: int, fillers: bool = True) -> "TreeProcess":
        """Return the same process, told at `factor` times the length; without `fillers`, only with more null turns."""
        from .stretched import Stretched  # it needs `Step` from here

        return TreeProcess(Stretched(self.rules, factor, fillers))

    def _walk(self, trajectory: Trajectory) -> tuple[list[_Moment], Hashable]:
        path, state = [], self.rules.start
        for position, token in enumerate(trajectory.token_ids.tolist()[1:], start=1):
            step = self.rules.step(state)
            if step is None or token not in step.tokens:
                expected = "the end" if step is None else f"one of {step.tokens}"
                raise CreditError(f"token {position} is {token}, expected {expected}: no trajectory of '{self.name}'")
            path.append(_Moment(state, step, step.tokens.index(token)))
            state = path[-1].step.after[path[-1].option]
        return path, state

    def _record(self, path: Sequence[_Moment], end: Hashable, episode_id: str) -> Trajectory:
        rules = self.rules
        recorder = Recorder(rules.name, rules.name, episode_id, state_key=rules.state_key(rules.start))
        recorder.prompt([PROMPT_TOKEN])
        paid = list(rules.turn_rewards(end))
        for kind, same in groupby(path, key=lambda moment: moment.step.kind):
            moments = list(same)
            ids = [moment.step.tokens[moment.option] for moment in moments]
            if kind is not SpanKind.DECISION:
                recorder.feedback(ids)
                continue
            if recorder.turn >= 0:
                recorder.state_key(rules.state_key(moments[0].state))
            recorder.decision(ids, [np.log(moment.step.chances[moment.option]) for moment in moments])
            if recorder.turn < len(paid):
                recorder.reward(paid[recorder.turn])
        if recorder.turn >= 0:
            recorder.state_key(rules.state_key(end))
        return recorder.finish(rules.outcome(end), StopReason.DONE)

    def _gradient(self, state: Hashable) -> Floats:
        if state not in self._gradients:
            gradient_P = np.zeros(sum(self.rules.slots))
            step = self.rules.step(state)
            for option, (chance, after) in enumerate(zip(step.chances, step.after, strict=True) if step else ()):
                gradient_P += chance * self._gradient(after)
                if step is not None and step.slot is not None:
                    self._add_score(gradient_P, step, option, chance * self.value(after))
            self._gradients[state] = gradient_P
        return self._gradients[state]

    def _add_score(self, row_P: Floats, step: Step, option: int, weight: float) -> None:
        first = sum(self.rules.slots[: step.slot])
        row_P[first : first + len(step.tokens)] -= weight * np.array(step.chances)
        row_P[first + option] += weight

    def _count(self, known: dict[Hashable, int], state: Hashable) -> int:
        if state not in known:
            step = self.rules.step(state)
            known[state] = 1 if step is None else sum(self._count(known, after) for after in step.after)
        return known[state]
