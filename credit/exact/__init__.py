"""Exactly solvable processes: the ground truth that credit functions are measured against. Needs numpy only."""

from .chain import ACTIONS, ChainProcess
from .signal import Signal, exact_function, measure_signal

__all__ = ["ACTIONS", "ChainProcess", "Signal", "exact_function", "measure_signal"]
