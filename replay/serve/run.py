"""What a server knows of a run: its listing, its episodes as blocks, its metrics. It speaks no HTTP.

Episodes are read when they are asked for, a group at a time, since scales and further credit functions are those of a
whole group. The last few groups are kept.
"""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accredit.credit.errors import CreditError, TraceError
from accredit.credit.traces import IndexRow, TraceReader
from accredit.credit.traces.chosen import ChosenRows
from accredit.credit.traces.table import IndexTable
from accredit.replay.html_file import shown_group
from accredit.replay.pack import episode_block
from accredit.replay.reencoding import encoder_of_run

from .metric_events import whole_metrics
from .table_listing import listing_of_table

__all__ = ["ServedRun", "Unknown"]

_LEVEL = 1  # of zlib: the reader sits on this machine
_KEPT_BYTES = 256 << 20  # blocks of groups that were asked for


class Unknown(Exception):
    """What was asked for does not exist; the message is for the reader of the page."""


class ServedRun:
    """One run, opened for a page. All methods may be called from several threads.

    Args:
        folder: the traces folder; it may still be empty.
        title: the page's title.
        functions: labels of further credit functions that a page may ask for.
        where: a filter (`accredit.credit.traces.where`): no other episode is listed or given. Groups stay whole to
            those that reckon: scales and further credit functions are those of all rollouts.

    Raises:
        TraceError: the filter cannot be read.

    """

    def __init__(self, folder: Path, title: str, functions: Sequence[str] = (), where: str = "") -> None:
        self.folder, self.title = folder, title
        self.functions = list(dict.fromkeys(functions))
        self._index = IndexTable(folder)
        self.chosen = ChosenRows(self._index, where) if where.strip() else None
        self._born = secrets.token_hex(4)  # cursors of another server count other rows
        self._lock = threading.Lock()  # of the index
        self._reading = threading.Lock()  # of what follows
        self._encode: Any = None
        self._kept: OrderedDict[tuple[Any, ...], dict[str, bytes]] = OrderedDict()

    def about(self) -> dict[str, Any]:
        """Return what the page asks for first."""
        metrics, position = whole_metrics(self.metrics_path)
        return {
            "title": self.title,
            "notice": "" if self.chosen is None else f"only episodes that fit {self.chosen.where}",
            "live": True,
            "metrics": metrics,
            "events_from": str(position),
            "functions": self.functions,
        }

    @property
    def metrics_path(self) -> Path:
        """The run's `metrics.jsonl`, beside the traces."""
        return self.folder.parent / "metrics.jsonl"

    def refresh(self) -> int:
        """Look for new rows; return the cursor after the last."""
        with self._lock:
            self._refresh()
            return self._index.cursor

    def listing(self, cursor: int, generation: str = "") -> bytes:
        """Return the rows after `cursor` as a listing block (`accredit.replay.listing` has the layout).

        Its header also has `generation`, to pass with the cursor `next`. Where another one is passed, rows were taken
        back since (or another server counted them): the block then has all rows, and says so by `anew`.
        """
        with self._lock:
            self._refresh()
            chosen = self.chosen
            now = f"{self._born}.{self._index.generation}.{0 if chosen is None else chosen.taken_back}"
            further = {"generation": now, "anew": generation != now}
            fitting_N = None if chosen is None else chosen.fitting_N
            return listing_of_table(self._index, cursor if generation in ("", now) else 0, further, fitting_N)

    def _refresh(self) -> bool:
        found = self._index.refresh()
        if self.chosen is not None:
            self.chosen.refresh()
        return found

    def episode(self, step: int, episode_id: str, functions: Sequence[str] = ()) -> bytes:
        """Return an episode's block.

        Raises:
            Unknown: there is no such episode, or a function is not among those of the run.

        """
        for label in functions:
            if label not in self.functions:
                known = ", ".join(self.functions) or "none: start the server with --credit"
                raise Unknown(f"no credit function '{label}' is offered here, expected one of: {known}")
        with self._lock:
            row = self._index.find(step, episode_id)
            if row is None and self._refresh():
                row = self._index.find(step, episode_id)
            members = [] if row is None else self._index.group(row)
            generation = self._index.generation
        if row is None:
            raise Unknown(f"no episode '{episode_id}' at step {step}: the run may have gone back to a checkpoint")
        if self.chosen is not None and not self.chosen.fits(row):
            raise Unknown(f"episode '{episode_id}' of step {step} does not fit {self.chosen.where!r}, as --where asks")
        key = (generation, *row.group_key, *functions, *(member.offset for member in members))
        with self._reading:
            if key not in self._kept:
                self._kept[key] = self._blocks(members, functions)
                self._forget()
            self._kept.move_to_end(key)
            return self._kept[key][episode_id]

    def _blocks(self, members: Sequence[IndexRow], functions: Sequence[str]) -> dict[str, bytes]:
        reader = TraceReader(self.folder)
        if self._encode is None:
            self._encode = encoder_of_run(self.folder)
        try:
            shown = shown_group([reader.load(row) for row in members], functions, None, self._encode)
        except (TraceError, CreditError) as error:
            raise Unknown(str(error)) from error
        return {row.episode_id: episode_block(one, _LEVEL) for row, one in zip(members, shown, strict=True)}

    def _forget(self) -> None:
        held = [sum(map(len, blocks.values())) for blocks in self._kept.values()]
        while len(held) > 1 and sum(held) > _KEPT_BYTES:
            self._kept.popitem(last=False)
            held.pop(0)
