"""Arithmetic: nested expressions and word problems with a calculator that takes one operation a call."""

from .env import Arithmetic

__all__ = ["Arithmetic"]
