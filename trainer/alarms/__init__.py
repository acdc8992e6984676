"""Alarms: symptoms of a run that goes wrong, each with its threshold, its evidence and what to do.

`evidence` reads a step's trajectories and credits, `Monitor` smooths the step's metrics and says which alarms fire. An
alarm changes nothing in the run: it is logged, kept with the metrics, and left to people.
"""

from .checks import CHECKS, Check, Finding
from .evidence import evidence
from .monitor import Monitor
from .readings import Readings

__all__ = ["CHECKS", "Check", "Finding", "Monitor", "Readings", "evidence"]
