"""Scores that need no model: what the environment already knows of a call.

A rule takes and never gives: -1 for a step whose calls failed in the rule's way, 0 for one whose calls did not, the
share between for several calls. Merely valid calls are worth nothing, so there is nothing to farm. A step without a
call that the rule can judge is not scored (NaN); a fault of the infrastructure is never judged.

A call that the environment charged is left to its charge, which lands on the offending tokens and says why: two
penalties for one mistake would be one too many. `charged=True` makes a rule judge such calls too, for runs without
charges.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from accredit.credit.calls import Call, CallStatus
from accredit.credit.trajectory import Trajectory

from .scores import Scorer
from .steps import Steps, step_count, step_ends

__all__ = ["RULES", "Rule", "Verifier"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rule:
    """A scorer by `Call.status`.

    Attributes:
        faults: the ends that cost 1.
        fine: the ends that cost nothing; a call that ended otherwise is not judged.
        charged: whether calls that carry a charge are judged too.

    """

    faults: frozenset[CallStatus]
    fine: frozenset[CallStatus]
    charged: bool = False

    def __call__(self, trajectory: Trajectory, steps: Steps) -> Floats:
        """float64 [S], minus the share of failed calls among those judged in a step; NaN without one."""
        judged_S, failed_S = np.zeros(step_count(steps)), np.zeros(step_count(steps))
        left_out = set() if self.charged else {charge.call for charge in trajectory.charges}
        for index, call in enumerate(trajectory.calls):
            step = _step_of(call, steps)
            if step is None or index in left_out or call.status not in self.faults | self.fine:
                continue
            judged_S[step] += 1
            failed_S[step] += call.status in self.faults
        return np.where(judged_S > 0, -failed_S / np.maximum(judged_S, 1), np.nan)


@dataclass(frozen=True, slots=True)
class Verifier:
    """A scorer from your function of a trajectory and a turn; None says nothing. Its score counts at the turn's end.

    With steps finer than a turn, the last step of the turn carries it.
    """

    judge: Callable[[Trajectory, int], float | None]

    def __call__(self, trajectory: Trajectory, steps: Steps) -> Floats:
        """float64 [S], what `judge` says; NaN elsewhere."""
        scores_S = np.full(step_count(steps), np.nan)
        ends_S = step_ends(steps)
        for span in trajectory.decisions:
            within = np.flatnonzero((ends_S >= span.start) & (ends_S < span.end))
            said = self.judge(trajectory, span.turn) if len(within) else None
            if said is not None:
                scores_S[within[-1]] = said
        return scores_S


_RAN = frozenset(status for status in CallStatus if status.ran)
_MALFORMED = frozenset({CallStatus.INVALID_JSON})
_MISUSED = frozenset({CallStatus.UNKNOWN_TOOL, CallStatus.INVALID_ARGUMENTS, CallStatus.TOOL_ERROR, CallStatus.REFUSED})
_BROKE = frozenset({CallStatus.NONZERO_EXIT, CallStatus.TIMEOUT, CallStatus.OUT_OF_MEMORY, CallStatus.OUTPUT_LIMIT})

RULES: Mapping[str, Callable[[bool], Scorer]] = MappingProxyType(
    {
        # was it a call at all
        "format": lambda charged: Rule(_MALFORMED, _RAN | _MISUSED | _BROKE, charged),
        # did it name a tool and arguments that the tool takes
        "validity": lambda charged: Rule(_MISUSED, _RAN | _BROKE, charged),
        # did what it ran end well
        "execution": lambda charged: Rule(_BROKE, _RAN, charged),
    }
)
"""Rules by name; each is made with whether charged calls are judged too."""


def _step_of(call: Call, steps: Steps) -> int | None:
    """Return the last step that holds a token of the call."""
    inside = steps[call.start : call.end]
    inside = inside[inside >= 0]
    return int(inside[-1]) if len(inside) else None
