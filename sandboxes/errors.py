"""The root of every error this project raises, and the sandbox errors.

It lives on the lowest floor because every other room's errors inherit from it.
"""


class AccreditError(Exception):
    """Root of every error that Accredit raises on purpose."""


class SandboxError(AccreditError, RuntimeError):
    """The host side of a sandbox failed or was asked for something it cannot do; never the program's own fault."""
