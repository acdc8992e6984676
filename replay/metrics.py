"""What the page draws of a run's `metrics.jsonl`."""

import json
from collections.abc import Sequence
from typing import Any, TypeVar

__all__ = ["metric_lines", "thinned"]

_MOST_LINES = 1_000
_DRAWN = ("rollout/", "charges/", "credit/", "advantage/", "policy/", "eval/", "update/", "alarms/")
Line = TypeVar("Line")


def metric_lines(raw: bytes) -> list[dict[str, Any]]:
    """Return the step of each line and what the page draws of it. A torn line is skipped."""
    lines: list[dict[str, Any]] = []
    for text in raw.splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            kept = {name: value for name, value in line.items() if name.startswith(_DRAWN)}
            lines.append({"step": line["step"], **kept})
    return lines


def thinned(lines: Sequence[Line]) -> list[Line]:
    """Return at most about a thousand lines: of more every k-th is taken, and the last."""
    every = -(-len(lines) // _MOST_LINES)
    return [line for at, line in enumerate(lines) if at % every == 0 or at == len(lines) - 1]
