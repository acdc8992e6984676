"""Exactly solvable processes: the ground truth that credit functions are measured against. Needs numpy only."""

from .branching import branching
from .chain import ACTIONS, ChainProcess
from .doob import doob_credit
from .process import ExactProcess, Stretchable
from .random_tree import random_tree
from .script import Script, choice, coin, filler, two_turn
from .signal import Signal, exact_function, measure_signal
from .symbols import symbols
from .tree import Rules, Step, TreeProcess

__all__ = [
    "ACTIONS",
    "ChainProcess",
    "ExactProcess",
    "Rules",
    "Script",
    "Signal",
    "Step",
    "Stretchable",
    "TreeProcess",
    "branching",
    "choice",
    "coin",
    "doob_credit",
    "exact_function",
    "filler",
    "measure_signal",
    "random_tree",
    "symbols",
    "two_turn",
]
