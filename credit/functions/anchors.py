"""Anchors: the prefixes of a trajectory whose value the group itself can estimate.

Two kinds, beside the start (V_0 = mean R) and the end (V = R):

- *state anchors*: a turn border whose `state_key` at least two rollouts visited. With m the mean return still to come
  over the n rollouts that visited it (each counted once, at its first visit) and P the value of their previous state
  anchors, V = (n m + kappa P) / (n + kappa). A state that exactly the rollouts of the previous anchor reached is not
  shrunk: nobody branched off, so V moves by the difference of the two means, which is 0 unless a reward fell between.
- *token anchors*: a stretch of sampled and fed-back tokens that at least two rollouts share after leaving the same
  state anchor. Its value is the mean of the values that those rollouts reached at their next state anchor. It exists
  before the environment has spoken, and this is what tells skill from luck.

A token anchor between two visits of one state (a null turn) is dropped: the state key says that nothing happened. The
values are in units of R, split into its parts. Nothing here knows of masks, credit or charges.

The two parts of R travel as one complex number, outcome + 1j * turn rewards: they only ever add, subtract and are
scaled by real numbers, and a group has some thousand such pairs, for which small arrays are ten times as slow.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accredit.credit.trajectory import Trajectory

from .trie import shared_prefixes

__all__ = ["Anchor", "find_anchors"]

Floats = NDArray[np.float64]
Node = tuple[str, ...]
Parts = complex  # outcome + 1j * turn rewards
START: Node = ("start",)
END: Node = ("end",)


class Anchor(NamedTuple):
    """A prefix with a value.

    Attributes:
        position: the tokens [0, position) are known.
        value: E[R | those tokens] as outcome + 1j * turn rewards.
        own: the weight of the rollout itself in the value.
        place: what it stands for, a state or a shared stretch; the same for every rollout that came there.

    """

    position: int
    value: Parts
    own: float
    place: Hashable


class Visit(NamedTuple):
    """A stay of one rollout in one state: it came at border `came` and left for another state from border `left`."""

    node: Node
    came: int
    left: int


@dataclass(frozen=True, slots=True)
class Walk:
    """One scored rollout as a walk through states.

    Attributes:
        token_ids: int32 [T].
        border_K: the first token of every turn, then T; K + 1 of them.
        paid_K: the parts of R collected before each border; the outcome comes after all of them.
        total: the parts of R.
        keyed: the borders whose state is known, the end last.
        visits: the stays at those borders, in order.

    """

    token_ids: NDArray[np.int32]
    border_K: list[int]
    paid_K: list[Parts]
    total: Parts
    keyed: tuple[int, ...]
    visits: tuple[Visit, ...]

    def paid_at(self, position: int, left: int, end: int) -> Parts:
        """Return the parts of R collected once [0, position) is known, inside a run from border `left` to `end`."""
        if end - left > 1:
            left = max(left, min(bisect_right(self.border_K, position) - 1, end - 1))
        return self.paid_K[left]


class State(NamedTuple):
    """The value of a state: `to_go`, the parts of R still to come; `own`, each visitor's weight in it."""

    to_go: Parts
    own: float


def find_anchors(trajectories: Sequence[Trajectory], parts: Floats, kappa: float) -> list[list[Anchor]]:
    """Return the anchors of every trajectory, from the start of its first turn to its end, positions never falling.

    Args:
        trajectories: S scored rollouts of one task, at least two.
        parts: float64 [S, 2], outcome and sum of turn rewards of each.
        kappa: how many visits the previous anchor's value counts for; 0 trusts every shared state.

    """
    totals = [complex(outcome, turn) for outcome, turn in parts.tolist()]
    start_keys = {t.state_keys[0] for t in trajectories} - {None}
    walks = [_walk(t, total, start_keys) for t, total in zip(trajectories, totals, strict=True)]
    states = _state_values(walks, kappa)
    shared_visits = [[visit for visit in walk.visits if visit.node in states] for walk in walks]
    anchors: list[list[Anchor]] = [[] for _ in walks]
    for index, found in _token_anchors(walks, shared_visits, states):
        anchors[index].append(found)
    for walk, visits, found_here in zip(walks, shared_visits, anchors, strict=True):
        for visit in visits:
            state = states[visit.node]
            stay = walk.keyed[bisect_left(walk.keyed, visit.came) : bisect_right(walk.keyed, visit.left)]
            found_here += [Anchor(walk.border_K[k], walk.paid_K[k] + state.to_go, state.own, visit.node) for k in stay]
        found_here.append(Anchor(len(walk.token_ids), walk.total, 1.0, END))
        found_here.sort(key=attrgetter("position"))  # stable: at a border the token anchor comes first
    return anchors


def _mean(values: Sequence[Parts]) -> Parts:
    """Exact when all values are equal."""
    first = values[0]
    return first + sum([value - first for value in values], 0j) / len(values)


def _walk(trajectory: Trajectory, total: Parts, start_keys: Set[str | None]) -> Walk:
    turns = trajectory.turns
    border_K = [len(trajectory)] * (turns + 1)
    for span in reversed(trajectory.spans):
        if span.turn >= 0:
            border_K[span.turn] = span.start
    for turn in reversed(range(turns)):
        border_K[turn] = min(border_K[turn], border_K[turn + 1])
    paid_K = [0j, *(complex(0.0, paid) for paid in np.cumsum(trajectory.turn_rewards).tolist())]
    keyed = [k for k in range(turns) if k == 0 or trajectory.state_keys[k] is not None] or [0]
    visits: list[Visit] = []
    for k in keyed:
        key = trajectory.state_keys[k]
        node = START if k == 0 or key is None or key in start_keys else ("state", key)
        if visits and visits[-1].node == node:
            visits[-1] = visits[-1]._replace(left=k)
        else:
            visits.append(Visit(node, k, k))
    return Walk(trajectory.token_ids, border_K, paid_K, total, (*keyed, turns), tuple(visits))


def _state_values(walks: Sequence[Walk], kappa: float) -> dict[Node, State]:
    """Return the value of every state that at least two rollouts visited, the start among them."""
    first_visits: dict[Node, dict[int, Visit]] = {}
    for index, walk in enumerate(walks):
        for visit in walk.visits:
            first_visits.setdefault(visit.node, {}).setdefault(index, visit)
    shared = {node: visitors for node, visitors in first_visits.items() if len(visitors) > 1}
    previous: dict[Node, dict[int, Visit]] = {node: {} for node in shared}
    depth: dict[Node, int] = {}
    for index, walk in enumerate(walks):
        path = [visit for visit in walk.visits if visit.node in shared]
        for at, visit in enumerate(path):
            if index not in previous[visit.node]:
                previous[visit.node][index] = path[at - 1] if at else visit
                depth[visit.node] = min(at, depth.get(visit.node, at))
    means = {
        node: _mean([walks[i].total - walks[i].paid_K[v.came] for i, v in visitors.items()])
        for node, visitors in shared.items()
    }
    states = {START: State(means[START], 1 / len(walks))}
    for node in sorted(shared, key=lambda node: depth[node]):
        if node == START:
            continue
        visitors, count = shared[node], len(shared[node])
        came_from = {i: v for i, v in previous[node].items() if depth[v.node] < depth[node]}
        sources = {visit.node for visit in came_from.values()}
        source = next(iter(sources))
        if len(sources) == 1 and shared[source].keys() == visitors.keys() == came_from.keys():
            states[node] = State(states[source].to_go + (means[node] - means[source]), states[source].own)
            continue
        earlier = [
            states[v.node].to_go - (walks[i].paid_K[visitors[i].came] - walks[i].paid_K[v.left])
            for i, v in sorted(came_from.items())
        ]
        prior = _mean(earlier)
        prior_own = sum((states[v.node].own for v in came_from.values()), 0.0) / len(came_from)
        to_go = prior + count / (count + kappa) * (means[node] - prior)
        states[node] = State(to_go, (1 + kappa * prior_own) / (count + kappa))
    return states


class Run(NamedTuple):
    """The tokens of one rollout from its leaving a shared state to the next border whose state is known."""

    walk: int
    left: int
    end: int
    start: int
    token_ids: NDArray[np.int32]
    reached: Parts


def _token_anchors(
    walks: Sequence[Walk], shared_visits: Sequence[Sequence[Visit]], states: dict[Node, State]
) -> list[tuple[int, Anchor]]:
    """Return (index of the walk, anchor) for every token anchor."""
    leaving: dict[Node, list[Run]] = {}
    for index, (walk, visits) in enumerate(zip(walks, shared_visits, strict=True)):
        for at, visit in enumerate(visits):
            end = walk.keyed[bisect_left(walk.keyed, visit.left) + 1]
            start, stop = walk.border_K[visit.left], walk.border_K[end]
            reached = walk.total
            if at + 1 < len(visits):
                later = visits[at + 1]
                reached = walk.paid_K[later.came] + states[later.node].to_go
            run = Run(index, visit.left, end, start, walk.token_ids[start:stop], reached)
            leaving.setdefault(visit.node, []).append(run)
    found: list[tuple[int, Anchor]] = []
    for node, runs in leaving.items():
        distinct = len({run.walk for run in runs}) == len(runs)
        for members, first, last in shared_prefixes([run.token_ids for run in runs]):
            offsets = {first, last} - {0}
            sharing = [runs[m] for m in members] if offsets else []
            if not distinct and len({run.walk for run in sharing}) < 2:
                continue
            for offset in offsets:
                paid = [walks[r.walk].paid_at(r.start + offset, r.left, r.end) for r in sharing]
                if first == 0:
                    own = states[node].own
                    left = [walks[r.walk].paid_K[r.left] for r in sharing]
                    to_go = states[node].to_go
                    if paid != left:
                        to_go -= _mean([p - q for p, q in zip(paid, left, strict=True)])
                else:
                    own = 1 / len(members)
                    to_go = _mean([run.reached - p for run, p in zip(sharing, paid, strict=True)])
                place = (node, members, offset)
                found += [
                    (run.walk, Anchor(run.start + offset, p + to_go, own, place))
                    for run, p in zip(sharing, paid, strict=True)
                ]
    return found
