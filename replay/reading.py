"""A stored run, for who works with it in Python: lazy reading by a filter, and credit by other functions.

`open_run` is the way in. Reading is `accredit.credit.traces`; this adds what needs credit functions.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from accredit.credit.errors import CreditError
from accredit.credit.ledger import Credit, CreditFunction
from accredit.credit.traces import IndexRow, StoredEpisode, TraceReader
from accredit.credit.traces import open_run as open_traces
from accredit.credit.trajectory import Group

from .pricing import price

__all__ = ["PricedEpisode", "RunReader", "open_run"]


class PricedEpisode(NamedTuple):
    """One stored episode and its credit by other functions: label -> `Credit`. The stored one is `episode.credit`."""

    episode: StoredEpisode
    credits: dict[str, Credit]


class RunReader(TraceReader):
    """Reads the episodes of a run, also while it is being written."""

    def price(
        self,
        functions: Sequence[str] | Mapping[str, CreditFunction],
        *,
        step: int | None = None,
        split: str | None = None,
        where: str = "",
    ) -> Iterator[PricedEpisode]:
        """Price the episodes that fit by several credit functions, each when it is asked for.

        An episode is priced with all stored rollouts of its group, whether they fit or not.

        Args:
            functions: names as in a configuration, options behind commas (`["anchored,lam=0", "grpo"]`), or a mapping
                of labels to functions at hand. Charges of named ones count as much as in the stored credit.
            step: this step only.
            split: this split only.
            where: a filter, as for `episodes`.

        Raises:
            TraceError: the filter cannot be read (at once), or files are broken.
            CreditError: there is no such function or option, or it cannot price a group.

        """
        chosen = self.select(step=step, split=split, where=where)
        return self._priced([functions] if isinstance(functions, str) else functions, chosen)

    def _priced(
        self, functions: Sequence[str] | Mapping[str, CreditFunction], chosen: Iterator[IndexRow]
    ) -> Iterator[PricedEpisode]:
        rows = list(chosen)
        groups: dict[tuple[int, str, str], list[IndexRow]] = {}
        for row in self.index():
            groups.setdefault(row.group_key, []).append(row)
        priced: dict[str, PricedEpisode] = {}
        at: tuple[int, str, str] | None = None
        for row in rows:
            if row.group_key != at:  # rollouts of a group are stored together
                at = row.group_key
                members = [self.load(member) for member in groups[at]]
                credits = _priced_group(functions, members)
                priced = {
                    member.trajectory.episode_id: PricedEpisode(member, found)
                    for member, found in zip(members, credits, strict=True)
                }
            yield priced[row.episode_id]


def open_run(path: str | Path) -> RunReader:
    """Open the traces of a run; `path` is the run's directory or its `traces` folder.

    Raises:
        TraceError: there are none, with the runs found below `path`.

    """
    return RunReader(open_traces(path).folder)


def _priced_group(
    functions: Sequence[str] | Mapping[str, CreditFunction], members: Sequence[StoredEpisode]
) -> list[dict[str, Credit]]:
    if not isinstance(functions, Mapping):
        return price(members, functions)
    group = Group(tuple(member.trajectory for member in members))
    found: list[dict[str, Credit]] = [{} for _ in members]
    for label, function in functions.items():
        credits = function(group)
        if len(credits) != len(members):
            raise CreditError(f"'{label}' gave {len(credits)} credits for a group of {len(members)}: expected one each")
        for row, credit in zip(found, credits, strict=True):
            row[label] = credit
    return found
