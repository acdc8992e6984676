"""Scales: what the strongest colour of an overlay stands for.

One scale for a whole group, so that two rollouts of a task can be compared by eye. It does not draw.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from accredit.credit.ledger import Credit
from accredit.credit.traces import StoredEpisode

__all__ = ["columns_of", "group_scales", "signal_scales"]

PERCENTILE = 99.0
LEAST_GAP = 0.01  # nats, a ratio of 1 %: on a smaller scale the rounding of one model's two passes would fill the page


def columns_of(credit: Credit | None, prefix: str = "") -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield every signal of a ledger by its overlay's name: `credit`, `credit:outcome`, ..., `advantage`, ...

    `prefix` comes before each name: "" for the stored credit, "rloo/" and the like for that of a further function.
    """
    if credit is None:
        return
    for quantity, ledger in (("credit", credit.credit), ("advantage", credit.advantage)):
        yield f"{prefix}{quantity}", ledger.total
        for name, term_T in ledger.terms.items():
            yield f"{prefix}{quantity}:{name}", term_T


def group_scales(
    episodes: Sequence[StoredEpisode], others: Sequence[Mapping[str, Credit]] | None = None
) -> dict[str, float]:
    """Return overlay name -> scale: the 99th percentile of the magnitudes that are not 0, over all of `episodes`.

    The scale is symmetric: its negative is the strongest colour of the other sign. A signal that is 0 everywhere has
    scale 1. `others`: for each episode its credit by further credit functions (`pricing.price`).
    """
    found: dict[str, list[NDArray[np.float64]]] = {}
    for index, episode in enumerate(episodes):
        further = () if others is None else others[index].items()
        for prefix, credit in (("", episode.credit), *((f"{label}/", credit) for label, credit in further)):
            for name, signal_T in columns_of(credit, prefix):
                found.setdefault(name, []).append(np.abs(signal_T[signal_T != 0]))
    return {name: _scale(parts) for name, parts in found.items()}


def signal_scales(
    episodes: Sequence[StoredEpisode], signals: Sequence[Mapping[str, NDArray[np.float64]]]
) -> dict[str, float]:
    """Return the scales of `entropy` and of `gap`, the trainer's log-probability less the sampler's, where given.

    That of the gap is at least `LEAST_GAP`.
    """
    found: dict[str, list[NDArray[np.float64]]] = {}
    for episode, given in zip(episodes, signals, strict=True):
        if "entropy" in given:
            found.setdefault("entropy", []).append(np.abs(given["entropy"]))
        if "trainer_logprob" in given:
            found.setdefault("gap", []).append(np.abs(given["trainer_logprob"] - episode.trajectory.logprobs))
    scales = {name: _scale(parts) for name, parts in found.items()}
    return scales | ({"gap": max(scales["gap"], LEAST_GAP)} if "gap" in scales else {})


def _scale(parts: Sequence[NDArray[np.float64]]) -> float:
    magnitudes = np.concatenate(parts)
    magnitudes = magnitudes[magnitudes > 0]  # which no NaN is
    return float(np.percentile(magnitudes, PERCENTILE)) if magnitudes.size else 1.0
