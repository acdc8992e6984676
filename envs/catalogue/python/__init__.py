"""Python: functions written against hidden tests, run and verified in a sandbox."""

from .env import Python

__all__ = ["Python"]
