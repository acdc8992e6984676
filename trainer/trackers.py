"""Trackers: where a run's numbers go beside `metrics.jsonl`. TensorBoard always; W&B and Trackio on request.

A tracker is a courtesy: one that fails is told of once and left out from then on, and the run goes on. Only a package
that is not installed is refused, before anything is lived.
"""

import json
import logging
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from .whole_file import replace_file

__all__ = ["Tracker", "Trackers"]

_log = logging.getLogger(__name__)


class Tracker(Protocol):
    """Takes numbers."""

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Take the numbers of one step."""
        ...

    def close(self) -> None:
        """Send what is left and close."""
        ...


class Trackers:
    """All trackers of a run in `folder`, none of which can end it.

    `after` is the step that a resumed run goes on after, None for a new run. TensorBoard then hides what an earlier
    process wrote of later steps; outside services, which cannot take anything back, are sent no line twice.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
        after: int | None = None,
    ) -> None:
        self._open: dict[str, Tracker] = {}
        self._state = _State(folder / "trackers.json") if names else None
        for name in ("tensorboard", *names):
            try:
                self._open[name] = self._start(name, folder, settings or {}, after)
            except Exception as error:  # whatever an outside service raises, the run is worth more
                _tell(name, error)

    def _start(self, name: str, folder: Path, settings: Mapping[str, Any], after: int | None) -> Tracker:
        if self._state is None or name == "tensorboard":
            return _TensorBoard(folder, after)
        return _Service({"wandb": _wandb, "trackio": _trackio}[name](folder, settings, self._state.id))

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Hand the numbers of `metrics` to every tracker."""
        numbers = {k: v for k, v in metrics.items() if isinstance(v, int | float) and not isinstance(v, bool)}
        place = (step, int("eval/success" in metrics))  # a run writes its lines in this order
        sent_before = self._state is not None and place <= self._state.sent
        for name, tracker in list(self._open.items()):
            if sent_before and name != "tensorboard":
                continue
            try:
                tracker.log(step, numbers)
            except Exception as error:
                _tell(name, error)
                del self._open[name]
        if self._state is not None and not sent_before:
            self._state.note(place)

    def close(self) -> None:
        """Close every tracker."""
        for name, tracker in self._open.items():
            try:
                tracker.close()
            except Exception as error:
                _tell(name, error)
        self._open = {}


class _State:
    """The id under which outside services know the run, and the last line that they were sent."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            state = json.loads(path.read_text())
            self.id, self.sent = str(state["id"]), (int(state["sent"][0]), int(state["sent"][1]))
        except (OSError, ValueError, KeyError):
            self.id, self.sent = secrets.token_hex(4), (-1, 0)

    def note(self, sent: tuple[int, int]) -> None:
        self.sent = sent
        replace_file(self._path, json.dumps({"id": self.id, "sent": sent}) + "\n")


class _TensorBoard:
    def __init__(self, folder: Path, after: int | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=None if after is None else after + 1)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._board.add_scalar(name, value, step)
        self._board.flush()

    def close(self) -> None:
        self._board.close()


class _Service:
    """A run at W&B or Trackio, which offer the same."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        self._run.finish()


def _wandb(folder: Path, settings: Mapping[str, Any], run_id: str) -> Any:
    import wandb  # pyright: ignore[reportMissingImports]

    return wandb.init(
        project=os.environ.get("WANDB_PROJECT", "accredit"),
        name=settings.get("name"),
        id=run_id,
        resume="allow",
        dir=str(folder),
        config=dict(settings),
        settings=wandb.Settings(console="off"),
    )


def _trackio(folder: Path, settings: Mapping[str, Any], run_id: str) -> Any:
    import trackio  # pyright: ignore[reportMissingImports]

    return trackio.init(
        project=os.environ.get("TRACKIO_PROJECT", "accredit"),
        name=f"{settings.get('name')}-{run_id}",
        config=dict(settings),
        resume="allow",
    )


def _tell(name: str, error: Exception) -> None:
    _log.warning("tracker %s failed and is left out from here on: %s: %s", name, type(error).__name__, error)
