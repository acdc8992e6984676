"""Does the audit tell beforehand which credit function learns fastest? Its ranking against that of learning curves.

The audit's figure is the signal-to-noise of one group's gradient on `Chain`, at a policy that is half way. The learning
curve is that of a table of logits on the same process, from a poor policy, moved along each function's gradient by
steps of equal length; its figure is the exact success, averaged over the run and over the seeds. Functions that need
values get the exact ones of the policy of the moment, in both. Prints Spearman's rank correlation, with the range that
it takes when one function is left out, and over those functions alone that are not the same here.
"""

import argparse
import os
import sys
from dataclasses import dataclass

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from accredit.credit.audit import Make, audited_functions
from accredit.credit.exact import ACTIONS, ChainProcess, measure_signal

Floats = NDArray[np.float64]
LEFT_OUT = ("gae two masks .95",)  # a form of a function that is there


@dataclass(frozen=True)
class Learnt(ChainProcess):
    """`Chain` for any table of probabilities, float64 [K, A]."""

    table: Floats | None = None

    @property
    def policy(self) -> Floats:
        """float64 [K, A], the table."""
        assert self.table is not None
        return self.table

    def value(self, turn: int, ok: bool, action: int | None = None) -> float:
        """Return the exact E[R] before the decision of `turn`, or after its `action`."""
        if not ok:
            return 0.0
        right, ahead = self.right_action(turn) if turn < self.turns else None, turn if action is None else turn + 1
        if action is not None and right is not None and action != right:
            return 0.0
        chances = [self.policy[k, k % ACTIONS] for k in self.relevant_turns if k >= ahead]
        return float(np.prod(chances) * (1 - self.luck) ** (self.turns - turn))


def learn(make: Make, seed: int, given: argparse.Namespace) -> float:
    """Return the exact success, averaged over the updates of one run."""
    rng, curve = np.random.default_rng(seed), []
    logits_KA = np.zeros((given.turns, ACTIONS))
    logits_KA[np.arange(given.turns), np.arange(given.turns) % ACTIONS] = given.head_start
    for _ in range(given.updates):
        policy_KA = np.exp(logits_KA) / np.exp(logits_KA).sum(axis=1, keepdims=True)
        process = Learnt(given.turns, given.relevant, luck=given.luck, table=policy_KA)
        curve.append(process.value(0, True))
        group = process.sample_group(rng, given.size)
        step_KA = process.group_gradient(group, make(process)(group))
        logits_KA += given.step * step_KA / max(1e-12, float(np.linalg.norm(step_KA)))
    return float(np.mean(curve))


def spearman(one: Floats, other: Floats) -> float:
    """Return the correlation of the ranks; ties get their mean rank (Spearman 1904)."""

    def ranks(values: Floats) -> Floats:
        return np.array([(values < v).sum() + ((values == v).sum() - 1) / 2 for v in values])

    return float(np.corrcoef(ranks(one), ranks(other))[0, 1])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each function")
    parser.add_argument("--updates", type=int, default=150, help="groups a run")
    parser.add_argument("--size", type=int, default=8, help="episodes a group")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--relevant", type=int, default=6)
    parser.add_argument("--luck", type=float, default=0.03, help="chance that a turn breaks the state")
    parser.add_argument("--step", type=float, default=0.3, help="length of a step of the logits")
    parser.add_argument("--head-start", type=float, default=1.5, help="logit of the right action at the start")
    parser.add_argument("--p", type=float, default=0.8, help="the audit's policy: chance of the right action")
    parser.add_argument("--groups", type=int, default=300, help="groups that the audit measures")
    given = parser.parse_args(arguments)
    makers = {name: make for name, make in audited_functions().items() if name not in LEFT_OUT}
    process = ChainProcess(given.turns, given.relevant, given.p, given.luck)
    functions = {name: make(process) for name, make in makers.items()}
    signals = measure_signal(process, functions, given.size, given.groups, np.random.default_rng(0))
    rows = []
    for name, make in makers.items():
        runs = np.array([learn(make, seed, given) for seed in range(given.seeds)])
        rows.append((name, signals[name].signal_to_noise, float(runs.mean()), float(runs.std(ddof=1))))
        print(f"{name}: learnt", file=sys.stderr, flush=True)
    rows.sort(key=lambda row: -row[1])
    print(f"{process.name}, groups of {given.size}, {given.updates} updates, {given.seeds} seeds")
    print("| credit | signal-to-noise | mean success of the learning curve |\n|---|---|---|")
    for name, signal, mean, spread in rows:
        print(f"| {name} | {signal:.3f} | {mean:.3f} ± {spread:.3f} |")
    audited, learnt = (np.array([row[at] for row in rows]) for at in (1, 2))
    without = [spearman(np.delete(audited, i), np.delete(learnt, i)) for i in range(len(rows))]
    print(f"rank correlation over {len(rows)} functions: {spearman(audited, learnt):.2f}", end="")
    print(f" ({min(without):.2f} to {max(without):.2f} without one of them)")
    apart = [at for at, mean in enumerate(learnt) if not np.isclose(learnt[:at], mean, rtol=1e-9).any()]
    print(f"over the {len(apart)} whose curves differ: {spearman(audited[apart], learnt[apart]):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
