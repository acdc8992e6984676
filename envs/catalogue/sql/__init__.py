"""SQL: questions in words about a small database, answered by a query."""

from .env import SQL

__all__ = ["SQL"]
