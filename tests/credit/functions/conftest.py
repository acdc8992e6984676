"""Every registered credit function, with what it needs to price any group, as the argument `price` of a test."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from accredit.credit import Credit, Group, Trajectory
from accredit.credit.functions import CREDIT_FUNCTIONS, StepScores, credit_function, state_values


def turns_scored_by_reward(trajectory: Trajectory) -> StepScores:
    """Every turn is a step, and its score is the reward of the whole."""
    step_T = np.full(len(trajectory), -1)
    for step, span in enumerate(trajectory.decisions):
        step_T[span.start : span.end] = step
    return StepScores(step_T, np.full(len(trajectory.decisions), trajectory.reward))


def neighbours_paired(group: Group) -> Group:
    """Members 2i and 2i + 1 are a pair that differs in turn 0."""
    seeds = [{"pair": index // 2, "fork_turn": 0} for index in range(len(group))]
    return Group(tuple(dataclasses.replace(t, seeds=s) for t, s in zip(group.trajectories, seeds, strict=True)))


@dataclass(frozen=True)
class Case:
    """A credit function by name; what has no default is made from the group that it prices."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, group: Group, **more: Any) -> tuple[Credit, ...]:
        needed: dict[str, Any] = {}
        if self.name == "exact":
            needed["values"] = state_values(group)
        if self.name == "prm_broadcast":
            needed["scores"] = turns_scored_by_reward
        if self.name == "counterfactual":
            group = neighbours_paired(group)
        return credit_function(self.name, **{**needed, **self.options, **more})(group)

    @property
    def is_complete(self) -> bool:
        """Whether the credit of a trajectory with a decision token sums to R - V_0 with V_0 of `start`."""
        if self.name == "gae":
            return self.options.get("feedback", "two_masks") == "two_masks"
        return self.name not in ("vineppo", "gigpo", "mt_grpo", "prm_broadcast", "counterfactual")

    @property
    def is_centred(self) -> bool:
        """Whether a return below the group's mean gets a negative advantage: not without a baseline."""
        return self.options.get("baseline") != "none"

    @property
    def compares_members(self) -> bool:
        """Whether a turn is compared with every other member, and not with turns only."""
        return self.name != "prm_broadcast" and self.options.get("baseline") != "position"

    def start(self, group: Group, index: int) -> float:
        """V_0 as the function sees it for one member."""
        if self.options.get("baseline") == "none":
            return 0.0
        rewards = group.rewards
        return float(np.nanmean(np.delete(rewards, index) if self.name == "rloo" else rewards))


CASES = [Case(name) for name in CREDIT_FUNCTIONS] + [
    Case("anchored", {"lam": 0.7}),
    Case("anchored", {"lam": 1.0, "kappa": 0.0}),
    Case("anchored", {"scale": "spread"}),
    Case("reinforce", {"baseline": "none"}),
    Case("reinforce", {"baseline": "value"}),
    Case("gae", {"lam": 0.0}),
    Case("gae", {"lam": 1.0}),
    Case("gae", {"feedback": "skipped"}),
    Case("gae", {"feedback": "zeroed"}),
    Case("gigpo", {"scale": "spread", "weight": 0.5}),
    Case("mt_grpo", {"scale": "none", "weight": 0.5}),
    Case("turn_verifier", {"baseline": "position", "scale": "spread"}),
    Case("prm_broadcast", {"scale": "spread", "reach": "following"}),
]


def case_id(case: Case) -> str:
    return "-".join([case.name, *(f"{name}={value}" for name, value in case.options.items())])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "price" in metafunc.fixturenames:
        metafunc.parametrize("price", CASES, ids=case_id)
