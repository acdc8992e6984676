"""Scales: what the strongest colour of an overlay stands for.

One scale for a whole group, so that two rollouts of a task can be compared by eye. It does not draw.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from accredit.credit.ledger import Credit
from accredit.credit.traces import StoredEpisode

__all__ = ["columns_of", "group_scales"]

PERCENTILE = 99.0


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
    scales: dict[str, float] = {}
    for name, parts in found.items():
        magnitudes = np.concatenate(parts)
        scales[name] = float(np.percentile(magnitudes, PERCENTILE)) if magnitudes.size else 1.0
    return scales
