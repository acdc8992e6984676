"""Shop: orders and returns over a small database, with a policy to respect."""

from .env import Shop

__all__ = ["Shop"]
