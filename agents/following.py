"""Following: an episode that has ended asks the policy again for what it decided, and nothing is done with the answers.

A batch of a lockstep engine holds a row for every episode that is live, and the last bits of a row depend on its
neighbours. When a rollout goes on after a kill, the rows of episodes that had ended by then are needed for the others
to come out to the same bits; their environments and tools are not: nothing is lived twice.
"""

from collections.abc import Awaitable, Callable

import numpy as np
from numpy.typing import NDArray

from accredit.credit import Trajectory

__all__ = ["context_of", "follow"]


async def follow(
    ended: Trajectory,
    ask: Callable[[NDArray[np.int32], int], Awaitable[object]],
    leave: Callable[[], None],
) -> None:
    """Ask (ids before the decision, turn) for every decision of `ended`, in order, then leave."""
    try:
        for span in ended.decisions:
            ids = context_of(ended, span.turn)
            assert ids is not None
            await ask(ids, span.turn)
    finally:
        leave()


def context_of(trajectory: Trajectory, turn: int) -> NDArray[np.int32] | None:
    """Return the ids that the policy saw before its decision of `turn`, None where it sampled nothing then."""
    start = next((span.start for span in trajectory.decisions if span.turn == turn), None)
    if start is None:
        return None
    segment = max(segment.start for segment in trajectory.segments if segment.start <= start)
    return trajectory.token_ids[segment:start]
