"""PythonRepl: questions on small tables, answered with a live interpreter."""

from .env import PythonRepl

__all__ = ["PythonRepl"]
