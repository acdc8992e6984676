"""Builders of trajectories for the tests of the credit room."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from accredit.credit import Recorder, StopReason, Trajectory


class Turn(NamedTuple):
    decision: Sequence[int]
    feedback: Sequence[int] = ()
    reward: float = 0.0
    key: str | None = None


Charges = Sequence[tuple[int, int, float, str]]
Record = Callable[..., Trajectory]


def record_trajectory(
    *turns: tuple[Any, ...],
    outcome: float | None = 1.0,
    prompt: Sequence[int] = (100, 101),
    charges: Charges = (),
    start_key: str | None = None,
    fresh_context: bool = False,
) -> Trajectory:
    recorder = Recorder(state_key=start_key)
    recorder.prompt(prompt)
    for index, turn in enumerate(Turn(*turn) for turn in turns):
        if fresh_context and index:
            recorder.segment("the template changed the history")
            recorder.prompt(prompt)
        recorder.decision(turn.decision, np.full(len(turn.decision), -0.5))
        recorder.feedback(turn.feedback)
        recorder.scaffold([99])
        if turn.reward:
            recorder.reward(turn.reward)
        recorder.state_key(turn.key)
    for charge in charges:
        recorder.charge(*charge)
    return recorder.finish(outcome, StopReason.DONE)


@pytest.fixture(scope="session")
def record() -> Record:
    return record_trajectory
