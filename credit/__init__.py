"""Spans, masks, trajectories, charges and credit functions. Needs numpy only."""

from .calls import Call, CallStatus, Charge, TokenRange
from .errors import AccreditError, CreditError, SpanError, TraceError
from .ledger import Credit, CreditFunction, Ledger
from .recorder import Recorder
from .spans import Span, SpanKind, check_partition, credit_mask, mask_of, value_mask
from .trajectory import Group, Segment, StopReason, Trajectory

__all__ = [
    "AccreditError",
    "Call",
    "CallStatus",
    "Charge",
    "Credit",
    "CreditError",
    "CreditFunction",
    "Group",
    "Ledger",
    "Recorder",
    "Segment",
    "Span",
    "SpanError",
    "SpanKind",
    "StopReason",
    "TokenRange",
    "TraceError",
    "Trajectory",
    "check_partition",
    "credit_mask",
    "mask_of",
    "value_mask",
]
