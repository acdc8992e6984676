"""What a step computes of every token before it changes a weight: the trainer's log-probability, and the entropy.

Nothing is computed for it: the update's passes note what they have. Under torchrun each process notes its part, and
`gather` brings them together.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from accredit.credit import Trajectory
from accredit.credit.traces.columns import SIGNALS

from .batch import Row
from .distributed import Processes
from .vocabulary import Scores

__all__ = ["TokenSignals"]


class TokenSignals:
    """Token columns of a step's trajectories, in nats.

    `columns` has a mapping a trajectory, in their order: `trainer_logprob` and `entropy`, float32 [T], NaN where no
    pass looked at the token while the weights were those that the step began with. Of a token that two passes looked
    at, the first counts.
    """

    def __init__(self, trajectories: Sequence[Trajectory]) -> None:
        self.columns: list[dict[str, NDArray[np.float32]]] = [
            {name: np.full(len(trajectory), np.nan, dtype=np.float32) for name in SIGNALS}
            for trajectory in trajectories
        ]
        self._own: list[tuple[int, NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]] = []

    def note(self, rows: Sequence[Row], scores: Scores) -> None:
        """Note what this process computed of the decision tokens of `rows`, float [N] over all of them."""
        logprobs_N, entropy_N = (values_N.detach().float().cpu().numpy() for values_N in scores)
        end = 0
        for row in rows:
            start, end = end, end + len(row.targets_N)
            self._own.append((row.owner, row.start + row.targets_N, logprobs_N[start:end], entropy_N[start:end]))

    def gather(self, processes: Processes) -> None:
        """Put what all processes noted since the last call into the columns. All have to call it."""
        shares = processes.gather(self._own)
        self._own = []
        for owner, at_N, logprobs_N, entropy_N in (part for share in shares for part in share):
            columns = self.columns[owner]
            new_N = np.isnan(columns["entropy"][at_N])
            columns["trainer_logprob"][at_N[new_N]] = logprobs_N[new_N]
            columns["entropy"][at_N[new_N]] = entropy_N[new_N]
