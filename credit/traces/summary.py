"""What a record and its index line say of an episode so that a list can be filtered without reading tokens."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from accredit.credit.ledger import Credit
from accredit.credit.trajectory import Trajectory

__all__ = ["Summary", "summary_of"]


@dataclass(frozen=True, slots=True)
class Summary:
    """Derived figures of one episode, stored since version 1.2. Those of credit are None where there is none."""

    trained: int
    """Number of tokens under the policy mask."""
    charged: float
    """Sum of the charges' amounts, in reward."""
    tools: tuple[str, ...]
    """Names that were called, each once, sorted."""
    errors: tuple[str, ...]
    """Statuses of calls that did not run, and reasons of charges, each once, sorted."""
    credit_low: float | None
    """The least credit of a decision token; `credit_high`: the greatest."""
    credit_high: float | None
    on_calls: float | None
    """Sum of the credit of decision tokens inside a call; `on_thoughts`: outside of all calls."""
    on_thoughts: float | None

    def to_json(self) -> dict[str, Any]:
        """Return its JSON object: the inverse of `of_json`."""
        return {name: getattr(self, name) for name in _FIELDS}

    @classmethod
    def of_json(cls, found: dict[str, Any]) -> "Summary":
        """Build it from its JSON object; unknown fields are ignored, a missing one raises `KeyError`."""
        names = ("trained", "charged", "credit_low", "credit_high", "on_calls", "on_thoughts")
        return cls(**{name: found[name] for name in names}, tools=tuple(found["tools"]), errors=tuple(found["errors"]))


_FIELDS = tuple(field.name for field in fields(Summary))


def summary_of(trajectory: Trajectory, credit: Credit | None) -> Summary:
    """Return the summary of an episode."""
    t = trajectory
    decided_T = t.credit_mask
    in_call_T = np.zeros(len(t), dtype=np.bool_)
    for call in t.calls:
        in_call_T[call.start : call.end] = True
    failed = {str(call.status) for call in t.calls if not call.status.ran}
    figures: dict[str, float | None] = dict.fromkeys(("credit_low", "credit_high", "on_calls", "on_thoughts"))
    if credit is not None:
        credit_N, in_call_N = credit.credit.total[decided_T], in_call_T[decided_T]
        figures["on_calls"] = float(credit_N[in_call_N].sum())
        figures["on_thoughts"] = float(credit_N[~in_call_N].sum())
        if credit_N.size:
            figures["credit_low"] = float(credit_N.min())
            figures["credit_high"] = float(credit_N.max())
    return Summary(
        trained=int(np.count_nonzero(decided_T)),
        charged=float(sum(charge.amount for charge in t.charges)),
        tools=tuple(sorted({call.name for call in t.calls if call.name})),
        errors=tuple(sorted(failed | {charge.reason for charge in t.charges})),
        **figures,
    )
