"""Shell: find, edit and fix files of a small project with shell commands."""

from .env import Shell

__all__ = ["Shell"]
