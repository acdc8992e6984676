"""Our credit functions beside the advantage functions of verl, run on the same rollouts.

Calls verl's own `verl.trainer.ppo.core_algos`: `compute_grpo_outcome_advantage`, `compute_rloo_outcome_advantage` and
`compute_gae_advantage_return`. verl is no requirement of this project; without it the command says so and exits 2. The
calls were written for, and run with, verl 0.9.1.

TRL has nothing to call, as far as we know: its trainers compute advantages inside a method that needs a model, a data
set and a run. What they compute there is not compared here.

Every rollout goes in as one row: the reward on its last decision token (on any other position verl loses it), the
decisions as response mask. Three differences are known, and undone before the comparison: verl's spread divides by
G - 1 and adds 1e-6; its GAE whitens over the batch at the end (`returns - values` is what was there before); and it
computes in the precision of its input, float64 here.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accredit.credit import CreditFunction, Group, Recorder, StopReason, Trajectory
from accredit.credit.functions import GAE, GRPO, RLOO, DrGRPO

Floats = NDArray[np.float64]
TOLERANCE = 1e-9  # float64 sums of some hundred terms
EPSILON = 1e-6  # what verl adds to the spread


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--groups", type=int, default=50, help="random groups")
    parser.add_argument("--seed", type=int, default=0, help="of the rollouts and their values")
    given = parser.parse_args(arguments)
    if find_spec("verl") is None:
        print("verl is not installed: nothing to compare with. Install it somewhere and add that place to PYTHONPATH")
        return 2
    rng = np.random.default_rng(given.seed)
    worst: dict[str, float] = {}
    for _ in range(given.groups):
        for name, difference in differences(random_group(rng), rng).items():
            worst[name] = max(worst.get(name, 0.0), difference)
    print("| function | largest difference from verl |\n|---|---|")
    for name, difference in worst.items():
        print(f"| {name} | {difference:.1e} |")
    return 0 if max(worst.values()) < TOLERANCE else 1


def differences(group: Group, rng: np.random.Generator) -> dict[str, float]:
    """Return the largest absolute difference of each function's advantages from verl's, on the tokens of `group`."""
    members = group.trajectories
    values = {t: np.append(rng.random(len(t)), t.reward or 0.0) for t in members}
    spread = float(group.rewards.std())
    rescale = (spread * (len(group) / (len(group) - 1)) ** 0.5 + EPSILON) / spread
    pairs: dict[str, tuple[CreditFunction, list[Floats]]] = {
        "grpo": (GRPO(), [advantage_T * rescale for advantage_T in grpo(members, scaled=True)]),
        "dr_grpo": (DrGRPO(), grpo(members, scaled=False)),
        "rloo": (RLOO(), rloo(members)),
    }
    for lam, gamma in ((0.0, 1.0), (0.95, 1.0), (1.0, 0.9)):
        skipped = GAE(values.__getitem__, lam, gamma, feedback="skipped")
        pairs[f"gae, skipped, lambda {lam:g}, gamma {gamma:g}"] = (skipped, gae(members, values, lam, gamma))
    return {
        name: max(
            float(np.abs(credit.advantage.total - theirs_T).max())
            for credit, theirs_T in zip(ours(group), theirs, strict=True)
        )
        for name, (ours, theirs) in pairs.items()
    }


def grpo(members: Sequence[Trajectory], scaled: bool) -> list[Floats]:
    """Return verl's GRPO advantages, a float64 [T] a trajectory; unless `scaled` without the spread (Dr. GRPO)."""
    rewards_BT, mask_BT = _batch(members)
    index = np.zeros(len(members), dtype=np.int64)
    found, _ = _core().compute_grpo_outcome_advantage(rewards_BT, mask_BT, index, norm_adv_by_std_in_grpo=scaled)
    return _rows(found, members)


def rloo(members: Sequence[Trajectory]) -> list[Floats]:
    """Return verl's RLOO advantages, a float64 [T] a trajectory."""
    rewards_BT, mask_BT = _batch(members)
    found, _ = _core().compute_rloo_outcome_advantage(rewards_BT, mask_BT, np.zeros(len(members), dtype=np.int64))
    return _rows(found, members)


def gae(members: Sequence[Trajectory], values: dict[Trajectory, Floats], lam: float, gamma: float) -> list[Floats]:
    """Return verl's GAE advantages before it whitens them; `values` float64 [T+1] of a reward paid at the end only."""
    import torch

    rewards_BT, mask_BT = _batch(members)
    values_BT = torch.zeros_like(rewards_BT)
    for row, trajectory in enumerate(members):
        values_BT[row, : len(trajectory)] = torch.from_numpy(values[trajectory][:-1])
    _, returns = _core().compute_gae_advantage_return(rewards_BT, values_BT, mask_BT, gamma, lam)
    return _rows((returns - values_BT) * mask_BT, members)


def _core() -> Any:
    from verl.trainer.ppo import core_algos  # pyright: ignore[reportMissingImports]

    return core_algos


def _batch(members: Sequence[Trajectory]) -> tuple[Any, Any]:
    """Return token rewards and response mask, float64 tensors [B, T] padded on the right."""
    import torch

    rewards_BT = torch.zeros(len(members), max(map(len, members)), dtype=torch.float64)
    mask_BT = torch.zeros_like(rewards_BT)
    for row, trajectory in enumerate(members):
        mask_BT[row, : len(trajectory)] = torch.from_numpy(trajectory.credit_mask.astype(np.float64))
        rewards_BT[row, trajectory.decisions[-1].end - 1] = trajectory.reward
    return rewards_BT, mask_BT


def _rows(found_BT: Any, members: Sequence[Trajectory]) -> list[Floats]:
    return [found_BT[row, : len(trajectory)].numpy() for row, trajectory in enumerate(members)]


def random_group(rng: np.random.Generator, size: int = 8) -> Group:
    """Return rollouts of one to five turns with an outcome of two decimals, never all equal."""
    members = []
    for member in range(size):
        recorder = Recorder(episode_id=str(member))
        recorder.prompt([1, 2])
        for _ in range(rng.integers(1, 6)):
            count = int(rng.integers(1, 6))
            recorder.decision(rng.integers(0, 99, count), -rng.random(count))
            recorder.feedback(rng.integers(0, 99, rng.integers(0, 6)))
            recorder.scaffold([3])
        members.append(recorder.finish(round(float(rng.random()), 2) + member / 100, StopReason.DONE))
    return Group(tuple(members))


if __name__ == "__main__":
    sys.exit(main())
