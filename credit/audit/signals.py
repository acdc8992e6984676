"""Signal-to-noise of the gradients, relative to exact V, and what it costs in episodes.

A figure of `measure_signal` s at group size G means that one group's gradient holds s times as much direction as noise;
the mean of n groups holds n s. To be as good as exact V, a function therefore needs (s of exact V) / s times as many
episodes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from accredit.credit.exact.chain import ChainProcess
from accredit.credit.exact.doob import exact_function
from accredit.credit.exact.recalled import Recalled
from accredit.credit.exact.signal import Signal, measure_signal

from .functions import Make, make_for

__all__ = ["CHAIN_TABLE", "EPISODE_TURNS", "SIZES", "ChainRow", "Signals", "chain_table", "measure_signals"]

SIZES = (4, 8, 16)
EPISODE_TURNS = (4, 8, 16)
SIZE, TURNS = 8, 8
EXACT = "exact V"


class ChainRow(NamedTuple):
    """A row of the known table: the process, the group's size, and group mean, anchored, exact V as known."""

    process: ChainProcess
    size: int
    known: tuple[float, float, float]


CHAIN_TABLE = (
    ChainRow(ChainProcess(8, 4, 0.8, 0.03), 8, (0.33, 0.60, 0.95)),
    ChainRow(ChainProcess(20, 10, 0.9, 0.02), 8, (0.11, 0.20, 0.30)),
    ChainRow(ChainProcess(20, 5, 0.8, 0.02), 16, (0.19, 0.92, 1.46)),
    ChainRow(ChainProcess(40, 10, 0.9, 0.01), 8, (0.045, 0.19, 0.30)),
)


@dataclass(frozen=True, slots=True)
class Signals:
    """The gradients of one function on `Chain`.

    Attributes:
        relative: by group size, the signal-to-noise as a share of exact V's, 8 turns.
        episodes: by number of turns, how many times the episodes of exact V it needs, groups of 8; infinity where no
            direction was found.
        cosine: of the mean gradient with the exact one, 8 turns, groups of 8.

    """

    relative: Mapping[int, float]
    episodes: Mapping[int, float]
    cosine: float


def chain(turns: int) -> ChainProcess:
    """Return the chain of `turns` turns, half of them relevant, on which the functions are compared."""
    return ChainProcess(turns, turns // 2, 0.8, 0.03)


def measure_signals(
    makers: Mapping[str, Make], groups: int, seed: int = 0, done: Callable[[], None] = lambda: None
) -> dict[str, Signals]:
    """Measure all functions on the same rollouts, `groups` groups of each kind; calls `done` after each of the 5."""
    measured: dict[tuple[int, int], dict[str, Signal]] = {}
    for turns, size in sorted({(TURNS, size) for size in SIZES} | {(turns, SIZE) for turns in EPISODE_TURNS}):
        measured[turns, size] = _measure(chain(turns), makers, size, groups, seed)
        done()
    found = {}
    for name in makers:
        relative = {size: _share(measured[TURNS, size], name) for size in SIZES}
        shares = {turns: _share(measured[turns, SIZE], name) for turns in EPISODE_TURNS}
        episodes = {turns: 1 / share if share > 0 else float("inf") for turns, share in shares.items()}
        found[name] = Signals(relative, episodes, measured[TURNS, SIZE][name].cosine)
    return found


def chain_table(
    groups: int, seed: int = 0, done: Callable[[], None] = lambda: None
) -> list[tuple[ChainRow, list[Signal]]]:
    """Measure the known table again: group mean, anchored, exact V in each row; calls `done` after each row."""
    makers = {"group mean": make_for("dr_grpo"), "anchored": make_for("anchored", kappa=1.0, lam=0.0)}
    rows = []
    for row in CHAIN_TABLE:
        rows.append((row, list(_measure(row.process, makers, row.size, groups, seed).values())))
        done()
    return rows


def _measure(process: ChainProcess, makers: Mapping[str, Make], size: int, groups: int, seed: int) -> dict[str, Signal]:
    recalled = Recalled(process)
    functions = {name: make(recalled) for name, make in makers.items()} | {EXACT: exact_function(recalled)}
    return measure_signal(recalled, functions, size, groups, np.random.default_rng(seed))


def _share(measured: Mapping[str, Signal], name: str) -> float:
    return measured[name].signal_to_noise / measured[EXACT].signal_to_noise
