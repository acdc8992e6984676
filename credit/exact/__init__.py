"""Exactly solvable processes: the ground truth that credit functions are measured against. Needs numpy only."""

from .chain import ACTIONS, ChainProcess

__all__ = ["ACTIONS", "ChainProcess"]
