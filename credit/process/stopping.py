"""An exact process in which the policy decides when to stop: what per-position comparisons get wrong.

At most K turns. In each the policy goes on (probability `go`, one logit for all turns) or stops; a turn it goes on
pays 1 with probability `pay`, which the environment's token shows at once. R is the sum of what was paid, so that

    E[R] = pay * sum_k go^k        dE[R] / dlogit = pay * go (1 - go) * sum_k k go^(k-1),    k = 1..K

and the values are known in closed form. All trajectories can be enumerated.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from accredit.credit.recorder import Recorder
from accredit.credit.trajectory import Group, StopReason, Trajectory

__all__ = ["StoppingProcess"]

Floats = NDArray[np.float64]

PROMPT_TOKEN, GO_TOKEN, STOP_TOKEN, PAID_TOKEN, UNPAID_TOKEN = range(5)


@dataclass(frozen=True, slots=True)
class StoppingProcess:
    """The process for one policy: `turns` K, `go` the probability to go on, `pay` the probability that it pays."""

    turns: int = 3
    go: float = 0.5
    pay: float = 0.55
    name: str = "Stopping"
    enumerable: bool = True

    def enumerate(self) -> Iterator[tuple[float, Trajectory]]:
        """Yield every trajectory with its probability: 15 of them for 3 turns."""
        for length in range(self.turns + 1):
            stops = length < self.turns
            for paid in product((True, False), repeat=length):
                luck = float(np.prod([self.pay if each else 1 - self.pay for each in paid]))
                yield self.go**length * luck * (1 - self.go if stops else 1.0), self._record(paid, stops)

    def sample(self, rng: np.random.Generator, episode_id: str = "") -> Trajectory:
        """Live one episode."""
        length = next((k for k in range(self.turns) if rng.random() >= self.go), self.turns)
        paid = tuple(bool(rng.random() < self.pay) for _ in range(length))
        return self._record(paid, length < self.turns, episode_id)

    def sample_group(self, rng: np.random.Generator, size: int) -> Group:
        """Live `size` episodes."""
        return Group(tuple(self.sample(rng, str(index)) for index in range(size)))

    def values(self, trajectory: Trajectory) -> Floats:
        """float64 [T+1], V before each token, and R last: what was paid, and what is still to come."""
        ahead = [self.pay * sum(self.go**k for k in range(1, left + 1)) for left in range(self.turns + 1)]
        values_T = np.zeros(len(trajectory) + 1)
        values_T[: trajectory.decisions[0].start + 1] = ahead[self.turns]
        paid, left = 0.0, self.turns
        for at, token in enumerate(trajectory.token_ids.tolist()):
            if token == GO_TOKEN:
                left -= 1
                values_T[at + 1] = paid + self.pay + ahead[left]
            elif token == STOP_TOKEN:
                left = 0
                values_T[at + 1] = paid
            elif token in (PAID_TOKEN, UNPAID_TOKEN):
                paid += token == PAID_TOKEN
                values_T[at + 1] = paid + ahead[left]
        return values_T

    def policy_gradient(self) -> Floats:
        """float64 [1], the exact gradient of E[R] in the logit of going on."""
        rise = sum(k * self.go ** (k - 1) for k in range(1, self.turns + 1))
        return np.array([self.pay * self.go * (1 - self.go) * rise])

    def score(self, trajectory: Trajectory) -> Floats:
        """float64 [T, 1], grad log pi of every token: 1 - go where it went on, -go where it stopped, else 0."""
        ids = trajectory.token_ids
        score_T1: Floats = np.select([ids == GO_TOKEN, ids == STOP_TOKEN], [1 - self.go, -self.go], 0.0)[:, None]
        return score_T1

    @staticmethod
    def paid(trajectory: Trajectory, turn: int) -> float | None:
        """Say what a turn paid, 0 or 1; None for the turn that stopped, in which there was nothing to judge."""
        decision = trajectory.decisions[turn]
        if trajectory.token_ids[decision.start] == STOP_TOKEN:
            return None
        return float(trajectory.turn_rewards[turn])

    def _record(self, paid: tuple[bool, ...], stops: bool, episode_id: str = "") -> Trajectory:
        recorder = Recorder("Stopping", "stopping", episode_id, state_key="0")
        recorder.prompt([PROMPT_TOKEN])
        for turn, each in enumerate(paid):
            recorder.decision([GO_TOKEN], [np.log(self.go)])
            recorder.feedback([PAID_TOKEN if each else UNPAID_TOKEN])
            recorder.reward(float(each))
            recorder.state_key(str(turn + 1))
        if stops:
            recorder.decision([STOP_TOKEN], [np.log(1 - self.go)])
            recorder.state_key("stopped")
        return recorder.finish(0.0, StopReason.DONE)
