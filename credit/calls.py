"""Calls and charges: what a turn asked of the environment, how it ended, and what a failure costs.

All ranges are half-open token ranges in the trajectory. A charge is not a reward: it lands on the tokens of the call
that failed, and nowhere else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["Call", "CallStatus", "Charge", "TokenRange"]

TokenRange = tuple[int, int]


class CallStatus(StrEnum):
    """How a tool call ended."""

    OK = "ok"
    REPAIRED = "repaired"
    INVALID_JSON = "invalid_json"
    UNKNOWN_TOOL = "unknown_tool"
    INVALID_ARGUMENTS = "invalid_arguments"
    TOOL_ERROR = "tool_error"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    OUTPUT_LIMIT = "output_limit"
    NONZERO_EXIT = "nonzero_exit"
    REFUSED = "refused"
    INFRASTRUCTURE = "infrastructure"

    @property
    def ran(self) -> bool:
        """Whether the tool ran to its end."""
        return self in (CallStatus.OK, CallStatus.REPAIRED)

    @property
    def is_model_fault(self) -> bool:
        """Whether the model may be charged for this end: never for infrastructure, never for a call that ran."""
        return not self.ran and self is not CallStatus.INFRASTRUCTURE


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a turn.

    `argument_ranges` maps a JSON path ("$.qty", "$.lines[0].sku") to the tokens of that value. `detail` holds what the
    tool reported beyond its text (a sandbox's exit status, stderr, isolation level), JSON values only.
    """

    turn: int
    start: int
    end: int
    id: str
    name: str
    arguments: Mapping[str, Any] | None
    status: CallStatus
    result: str
    truncated: bool = False
    name_range: TokenRange | None = None
    argument_ranges: Mapping[str, TokenRange] = field(default_factory=dict)
    started_s: float | None = None
    """Seconds from the start of the episode."""
    duration_s: float | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Charge:
    """A local penalty of size `amount` (> 0, in units of reward) on the decision tokens [start, end).

    `call` is the index of the call that caused it in `Trajectory.calls`, None for a charge on plain text.
    """

    start: int
    end: int
    amount: float
    reason: str
    call: int | None = None
