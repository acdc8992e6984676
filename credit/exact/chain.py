"""Chain: a long tool process whose values, advantages and policy gradient are known in closed form.

K turns of 4 actions. On the relevant turns (evenly spaced) one action is right; on the null turns nothing depends on
the action. After each turn luck breaks the state with probability q, silently and for good. R = 1 if no relevant turn
was wrong and nothing broke, else 0. The state is (turn, ok), where ok means that R = 1 can still be reached.

The policy is a tabular softmax with its own logits for every turn, blind to ok: in every turn it takes one favourite
action with probability p (on a relevant turn, the right one), and the others share the rest. Nothing here knows of
Gymnasium.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accredit.credit.errors import CreditError
from accredit.credit.ledger import Credit
from accredit.credit.recorder import Recorder
from accredit.credit.trajectory import Group, StopReason, Trajectory

from .doob import doob_credit

__all__ = ["ACTIONS", "ChainProcess"]

ACTIONS = 4
MOST_TRAJECTORIES = 4096
PROMPT_TOKEN = 0
FIRST_ACTION_TOKEN = 1
FEEDBACK_TOKEN = FIRST_ACTION_TOKEN + ACTIONS


@dataclass(frozen=True, slots=True)
class ChainProcess:
    """The process for one policy.

    Attributes:
        turns: the number of turns K.
        relevant: how many of them decide the outcome.
        p: the policy's probability of the favourite action of a turn.
        luck: the probability q that a turn breaks the state.

    """

    turns: int = 8
    relevant: int = 4
    p: float = 0.8
    luck: float = 0.03

    def __post_init__(self) -> None:
        if not 0 <= self.relevant <= self.turns:
            raise CreditError(f"relevant={self.relevant} turns of turns={self.turns}: expected 0 <= relevant <= turns")
        if not 0 < self.p < 1:
            raise CreditError(f"p={self.p}: expected a probability strictly between 0 and 1")
        if not 0 <= self.luck < 1:
            raise CreditError(f"luck={self.luck}: expected a probability of at least 0 and below 1")

    @property
    def name(self) -> str:
        """The name with its size."""
        return f"Chain({self.turns} turns, {self.relevant} relevant)"

    @property
    def enumerable(self) -> bool:
        """Whether there are at most 4096 trajectories."""
        return bool((2 * ACTIONS) ** self.turns <= MOST_TRAJECTORIES)

    @property
    def relevant_turns(self) -> tuple[int, ...]:
        """The turns that decide the outcome, evenly spaced."""
        return tuple((2 * j + 1) * self.turns // (2 * self.relevant) for j in range(self.relevant))

    def right_action(self, turn: int) -> int | None:
        """Return the right action of a relevant turn, None on a null turn."""
        return turn % ACTIONS if turn in self.relevant_turns else None

    @property
    def policy(self) -> NDArray[np.float64]:
        """float64 [K, A], the probability of every action in every turn."""
        policy_KA = np.full((self.turns, ACTIONS), (1 - self.p) / (ACTIONS - 1))
        policy_KA[np.arange(self.turns), np.arange(self.turns) % ACTIONS] = self.p
        return policy_KA

    def value(self, turn: int, ok: bool, action: int | None = None) -> float:
        """Return the exact E[R] before the decision of `turn`; with `action`, after it and before the environment.

        `turn` = K is the end of the episode.
        """
        if not ok:
            return 0.0
        ahead = sum(relevant >= turn for relevant in self.relevant_turns)
        value = float(self.p**ahead * (1 - self.luck) ** (self.turns - turn))
        right = self.right_action(turn)
        if action is None or right is None:
            return value
        return value / self.p if action == right else 0.0

    def next_ok(self, turn: int, ok: bool, action: int, rng: np.random.Generator) -> bool:
        """Live one turn: return whether R = 1 can still be reached after `action` and the turn's luck."""
        unlucky = bool(rng.random() < self.luck)
        return ok and self.right_action(turn) in (None, action) and not unlucky

    @staticmethod
    def state_key(turn: int, ok: bool) -> str:
        """Return the key of the state at the border before `turn`."""
        return f"{turn}:{'ok' if ok else 'lost'}"

    def sample(self, rng: np.random.Generator, episode_id: str = "") -> Trajectory:
        """Live one episode: one token a decision, one silent feedback token a turn."""
        lived, ok = [], True
        for turn, policy_A in enumerate(self.policy):
            action = min(int(np.searchsorted(np.cumsum(policy_A), rng.random(), side="right")), ACTIONS - 1)
            ok = self.next_ok(turn, ok, action, rng)
            lived.append((action, ok))
        return self._record(lived, episode_id)

    def enumerate(self) -> Iterator[tuple[float, Trajectory]]:
        """Yield every row of actions and luck with its probability; a chance of 0 is left out."""
        policy_KA = self.policy
        waiting: list[tuple[float, tuple[tuple[int, bool], ...]]] = [(1.0, ())]
        while waiting:
            chance, lived = waiting.pop()
            turn, ok = len(lived), lived[-1][1] if lived else True
            if turn == self.turns:
                yield chance, self._record(lived, "")
                continue
            for action in reversed(range(ACTIONS)):
                can = ok and self.right_action(turn) in (None, action)
                ends = ((True, 1 - self.luck), (False, self.luck)) if can else ((False, 1.0),)
                waiting += [
                    (chance * float(policy_KA[turn, action]) * luck, (*lived, (action, after)))
                    for after, luck in ends
                    if luck > 0
                ]

    def sample_group(self, rng: np.random.Generator, size: int) -> Group:
        """Live `size` episodes of the task."""
        return Group(tuple(self.sample(rng, str(index)) for index in range(size)))

    def values(self, trajectory: Trajectory) -> NDArray[np.float64]:
        """float64 [T+1], the exact V before every token, R at the end; luck is read off the state keys."""
        ok_K = [key == self.state_key(turn, True) for turn, key in enumerate(trajectory.state_keys)]
        values = [self.value(0, True), self.value(0, True)]
        for turn, action in enumerate(self.actions(trajectory).tolist()):
            values += [self.value(turn, ok_K[turn], action), self.value(turn + 1, ok_K[turn + 1])]
        return np.array(values)

    def score(self, trajectory: Trajectory) -> NDArray[np.float64]:
        """float64 [T, K * A], grad log pi of every token: 1[a] - pi in the columns of its turn, 0 on feedback."""
        score_TKA = np.zeros((len(trajectory), self.turns, ACTIONS))
        starts_K, turns_K = np.array([span.start for span in trajectory.decisions]), np.arange(self.turns)
        score_TKA[starts_K, turns_K] = -self.policy
        score_TKA[starts_K, turns_K, self.actions(trajectory)] += 1
        return score_TKA.reshape(len(trajectory), -1)

    def actions(self, trajectory: Trajectory) -> NDArray[np.int64]:
        """int64 [K], the action of every turn of a trajectory of this process."""
        starts_K = [span.start for span in trajectory.decisions]
        return trajectory.token_ids[starts_K].astype(np.int64) - FIRST_ACTION_TOKEN

    def exact_credit(self, trajectory: Trajectory) -> Credit:
        """Return Doob's increments V_t - V_{t-1} of R: skill on decision tokens, luck on feedback tokens."""
        return doob_credit(trajectory, self.values(trajectory))

    def policy_gradient(self) -> NDArray[np.float64]:
        """float64 [K, A], the exact gradient of E[R] in the logits: E[R] (1[a right] - pi(a)) on relevant turns."""
        gradient_KA = np.zeros((self.turns, ACTIONS))
        for turn in self.relevant_turns:
            gradient_KA[turn] = -self.policy[turn]
            gradient_KA[turn, turn % ACTIONS] += 1
        return self.value(0, True) * gradient_KA

    def group_gradient(self, group: Group, credits: Iterable[Credit]) -> NDArray[np.float64]:
        """float64 [K, A], the estimate of one group: mean over its members of sum_t advantage_t grad log pi(x_t)."""
        policy_KA, gradient_KA = self.policy, np.zeros((self.turns, ACTIONS))
        turns_K = np.arange(self.turns)
        for trajectory, credit in zip(group.trajectories, credits, strict=True):
            advantage_K = credit.advantage.total[[span.start for span in trajectory.decisions]]
            gradient_KA -= advantage_K[:, None] * policy_KA
            gradient_KA[turns_K, self.actions(trajectory)] += advantage_K
        return gradient_KA / len(group)

    def _record(self, lived: Sequence[tuple[int, bool]], episode_id: str) -> Trajectory:
        """Record actions, and whether the state was ok after each turn."""
        recorder = Recorder("Chain", "chain", episode_id, state_key=self.state_key(0, True))
        recorder.prompt([PROMPT_TOKEN])
        policy_KA = self.policy
        for turn, (action, ok) in enumerate(lived):
            recorder.decision([FIRST_ACTION_TOKEN + action], [np.log(policy_KA[turn, action])])
            recorder.feedback([FEEDBACK_TOKEN])
            recorder.state_key(self.state_key(turn + 1, ok))
        return recorder.finish(float(lived[-1][1]) if lived else 1.0, StopReason.DONE)
