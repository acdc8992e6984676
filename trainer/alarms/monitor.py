"""The monitor: takes in each step's metrics, smooths them, and says which alarms fire.

It logs an alarm when it begins, and again every 20 steps while it lasts. It stops nothing.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .checks import CHECKS, Check
from .readings import Readings

__all__ = ["SMOOTHED", "Monitor"]

_log = logging.getLogger(__name__)

SMOOTHED = (
    "rollout/reward",
    "rollout/success",
    "rollout/infrastructure_rate",
    "loss/kl",
    "credit/mean",
    "credit/spread",
    "health/token_reward_mean",
    "health/tokens_per_turn",
    "health/tokens_per_call",
    "health/credit_scale",
    "health/baseline_scale",
)
"""Metrics that are written smoothed too, as `ema/NAME`."""

REMIND_STEPS = 20


class Monitor:
    """Watches one run."""

    def __init__(self, checks: Sequence[Check] = CHECKS) -> None:
        self._checks = checks
        self._readings = Readings()
        self._told: dict[str, int] = {}

    def replay(self, history: Iterable[Mapping[str, Any]], until: int) -> None:
        """Take in the steps of a run that goes on, up to step `until`, without a word."""
        for line in history:
            if "rollout/reward" in line and line["step"] <= until:
                self._readings.add(line)

    def observe(self, step: int, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Take in one step; return what to add to its metrics.

        Returns:
            `ema/NAME` of the metrics in `SMOOTHED`, `health/alarms` (how many fire), and `alarms`, messages by the
            alarm's name, if any does.

        """
        self._readings.add(metrics)
        found = {check.name: check.message(f) for check in self._checks if (f := check.find(self._readings))}
        for name in [name for name in self._told if name not in found]:
            del self._told[name]
        for name, message in found.items():
            if step - self._told.get(name, -REMIND_STEPS) >= REMIND_STEPS:
                self._told[name] = step
                _log.warning("step %d: alarm %s: %s", step, name, message)
        smooth = {f"ema/{name}": self._readings.ema(name) for name in SMOOTHED}
        kept: dict[str, Any] = {name: value for name, value in smooth.items() if value is not None}
        kept["health/alarms"] = len(found)
        return {**kept, "alarms": found} if found else kept
