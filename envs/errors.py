"""Errors of the environments' room: whose fault a failure is decides which one is raised.

`ToolError` is the model's fault and may be charged; `InfrastructureError` is nobody's and leaves the episode unscored;
`EnvError` is a fault of the environment's own code; `ParseError` is a caller's mistake about a call format. Bad text
of a model never raises: it parses into a call with a fault.
"""

from collections.abc import Mapping
from typing import Any

from accredit.credit import AccreditError, CallStatus

__all__ = ["AccreditError", "EnvError", "InfrastructureError", "ParseError", "RenderError", "ToolError"]


class EnvError(AccreditError, RuntimeError):
    """An environment is wrongly written or wrongly used."""


class ParseError(AccreditError, ValueError):
    """A call format is unknown, or a range does not hold what it was said to hold."""


class RenderError(AccreditError, ValueError):
    """A tokenizer lacks what a renderer needs, or a message cannot be rendered."""


class InfrastructureError(AccreditError, RuntimeError):
    """A machine, a network or a sandbox failed: nobody's fault, the episode is left unscored."""


class ToolError(AccreditError, RuntimeError):
    """A tool refuses or fails on what the model asked: the model's fault, charged to the call's own tokens.

    Attributes:
        message: short text that the model is shown.
        argument: name of the offending parameter; its value's tokens are charged instead of the whole call.
        status: how the call ended.
        source_range: half-open character range inside that argument's decoded string value, which narrows the charge
            further (a failing expression of code).
        detail: JSON values kept in `Call.detail`.

    """

    def __init__(
        self,
        message: str,
        argument: str | None = None,
        status: CallStatus = CallStatus.TOOL_ERROR,
        source_range: tuple[int, int] | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.argument = argument
        self.status = status
        self.source_range = source_range
        self.detail: dict[str, Any] = dict(detail or {})

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.argument, self.status, self.source_range, self.detail)
