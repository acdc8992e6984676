"""Errors of the credit room, and the root they share with the whole project."""

from accredit.sandboxes.errors import AccreditError

__all__ = ["AccreditError", "CreditError", "SpanError", "TraceError"]


class SpanError(AccreditError, ValueError):
    """Spans, masks or token columns do not fit together."""


class CreditError(AccreditError, ValueError):
    """A credit function that does not exist, or an option that it does not take or cannot use."""


class TraceError(AccreditError, ValueError):
    """A stored trajectory cannot be read or written."""
