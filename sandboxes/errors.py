"""The root of every error this project raises, and the sandbox errors.

It lives on the lowest floor because every other room's errors inherit from it.
"""


class AccreditError(Exception):
    """Root of every error that Accredit raises on purpose."""


class SandboxError(AccreditError, RuntimeError):
    """The host side of a sandbox failed or was asked for something it cannot do; never the program's own fault."""


class SandboxFault(SandboxError):
    """The host side failed outside a run. `status` is one of the faults of `verdict.Status`."""

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])
