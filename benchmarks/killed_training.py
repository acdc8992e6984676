"""Kills a training with SIGKILL again and again, resumes it, and compares the end with a run that was never killed.

Every other kill comes at a moment drawn from a seed, a share of what a whole run takes; the others come at a place by
name: while a checkpoint is drafted, between its rename and the pruning, between token columns and lines of the traces,
when half a line of metrics is written, in an evaluation, in an update, while a resume cuts back. Each life is a forked
process; a witness notes every episode as it ends, in a file of its own.

    python benchmarks/killed_training.py [--kills 20] [--seed 0] [--steps 6] [--max-staleness 0]

Prints a table. Exits with 1 if an episode that had ended was lost or lived twice, if weights, metrics or traces differ.
"""

import argparse
import hashlib
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.torch import load_file

import accredit.trainer.loop as loop
from accredit.credit import Trajectory
from accredit.credit.traces import TraceWriter, open_run, writer
from accredit.trainer import checkpoint
from accredit.trainer.config import TrainConfig
from accredit.trainer.config_file import load_config
from accredit.trainer.journal import Journal
from accredit.trainer.metrics import MetricsWriter
from accredit.trainer.run import RunDirectory
from accredit.trainer.update import Updater

Point = tuple[Any, str, int] | float | None
PLACES = (
    (checkpoint, "_sync", 3),
    (checkpoint, "point_best", 1),
    (checkpoint, "prune", 1),
    (shutil, "rmtree", 3),
    (TraceWriter, "_append", 2),
    (writer, "write_atomically", 1),
    (MetricsWriter, "write", 2),
    (loop, "held_out", 1),
    (Journal, "add", 5),
    (Journal, "clear", 1),
    (Updater, "update", 1),
    (loop, "cut_traces_after", 1),
)
"""Owner, function, and before which call of it in a life."""

CHANCE = ("ema/", "time/", "health/alarms", "alarms")


class Silent:
    """Hears of a run and says nothing."""

    def started(self, run: Any, config: Any, first_step: int) -> None:
        """Hear nothing."""

    def lived(self, done: int, of: int) -> None:
        """Hear nothing."""

    def stepped(self, step: int, metrics: Any) -> None:
        """Hear nothing."""

    def evaluated(self, step: int, evaluation: Any) -> None:
        """Hear nothing."""


class Outcome(NamedTuple):
    """What is left of the runs that were killed."""

    kills: int
    places: list[str]
    runs: int
    witnessed: int
    lost: int
    twice: int
    same_weights: bool
    same_metrics: bool
    same_traces: bool

    @property
    def clean(self) -> bool:
        """Whether nothing was lost, doubled or changed."""
        same = self.same_weights and self.same_metrics and self.same_traces
        return same and not self.lost and not self.twice


def settings(folder: Path, name: str, steps: int, staleness: int) -> TrainConfig:
    """Return a small training that has everything: groups, charges, evaluations, several checkpoints."""
    wanted: dict[str, Any] = {
        "name": name,
        "runs_dir": str(folder),
        "env": "Shop-v0",
        "env_options": {"level": "easy"},
        "steps": steps,
        "rollout.groups": 2,
        "rollout.group_size": 4,
        "rollout.decision_tokens": 40,
        "rollout.episode_tokens": 640,
        "rollout.workers": 2,
        "rollout.max_staleness": staleness,
        "loss.importance": "token",
        "optimizer.lr": 1e-3,
        "evaluation.episodes": 6,
        "evaluation.every": 2,
        "save.every": 2,
        "save.keep": 1,
        "credit.check": False,
    }
    return load_config(TrainConfig, None, [f"{key}={json.dumps(value)}" for key, value in wanted.items()])


def kill_and_resume(folder: Path, kills: int, seed: int, steps: int, staleness: int = 0) -> Outcome:
    """Kill runs in `folder` `kills` times, resuming each to its end, and compare them with one left alone."""
    reference = folder / "whole"
    started = time.monotonic()
    _life(settings(folder, "whole", steps, staleness), folder / "whole.witness", None)
    whole_s = time.monotonic() - started
    rng = np.random.default_rng(seed)
    done, number = 0, 0
    told: list[str] = []
    while done < kills:
        config = settings(folder, f"killed-{number}", steps, staleness)
        number += 1
        ended = False
        while not ended:
            point: Point = None
            if done < kills:
                at_place = len(told) % 2 == 0
                point = PLACES[len(told) // 2 % len(PLACES)] if at_place else float(rng.uniform(0, 0.7 * whole_s))
            ended = _life(config, folder / f"{config.name}.witness", point)
            if point is not None:
                told.append(f"{_name(point)}{': the run had ended' if ended else ''}")
            done += not ended
    killed = [folder / f"killed-{at}" for at in range(number)]
    seen = [(folder / f"{run.name}.witness").read_text().split() for run in killed]
    stored = [_episodes(run) for run in killed]
    whole = _episodes(reference)
    return Outcome(
        done,
        told,
        number,
        sum(len(set(lines)) for lines in seen),
        sum(line not in found for lines, found in zip(seen, stored, strict=True) for line in lines),
        sum(len(lines) - len({line.split(":")[0] for line in lines}) for lines in seen),
        all(_same_weights(reference, run) for run in killed),
        all(_metrics(reference) == _metrics(run) for run in killed),
        all(found == whole for found in stored),
    )


def _life(config: TrainConfig, witness: Path, point: Point) -> bool:
    """Train in a forked process that dies at `point`; return whether it came to its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _watch(witness)
            if isinstance(point, tuple):
                _die_at(*point)
            loop.train(config, Silent(), resume=RunDirectory(Path(config.runs_dir) / config.name).config.exists())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if isinstance(point, float):
        time.sleep(point)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"a life of {config.name} ended with an error (point {_name(point)})")
    return True


def _die_at(owner: Any, name: str, nth: int) -> None:
    """Let this process die before the `nth` call of a function."""
    function, calls = getattr(owner, name), itertools.count(1)

    def called(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == nth:
            if name == "write":
                args[0]._file.write('{"step": 1, "roll')
                args[0]._file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    setattr(owner, name, called)


def _watch(witness: Path) -> None:
    """Note every episode in `witness` once the journal has it."""
    handle = os.open(witness, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    add = Journal.add

    def noted(self: Journal, trajectory: Trajectory) -> None:
        add(self, trajectory)
        os.write(handle, f"{trajectory.episode_id}:{_digest(trajectory)}\n".encode())

    Journal.add = noted


def _digest(trajectory: Trajectory) -> str:
    found = hashlib.blake2b(trajectory.token_ids.tobytes(), digest_size=8)
    found.update(trajectory.logprobs.tobytes())
    found.update(repr(trajectory.reward).encode())
    return found.hexdigest()


def _episodes(run: Path) -> list[str]:
    """Return the stored episodes line by line, and the token files that no line names."""
    reader = open_run(run)
    rows = reader.rows()
    files = {path.name for path in (run / "traces").glob("tokens-*")}
    strays = sorted(files - {row.file for row in rows})
    return [f"{row.episode_id}:{_digest(reader.load(row).trajectory)}" for row in rows] + strays


def _metrics(run: Path) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl without what is told by the clock."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith(CHANCE)} for line in lines]


def _same_weights(one: Path, other: Path) -> bool:
    newest = [checkpoint.find(run / "checkpoints", "last") for run in (one, other)]
    first, second = (load_file(path / "model.safetensors") for path in newest)
    return first.keys() == second.keys() and all(bool((first[name] == second[name]).all()) for name in first)


def _name(point: Point) -> str:
    if isinstance(point, tuple):
        return f"{point[0].__name__}.{point[1]}, call {point[2]}"
    return "none" if point is None else f"after {point:.2f} s"


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--max-staleness", type=int, default=0, help="steps that episodes are lived ahead")
    chosen = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = kill_and_resume(Path(folder), chosen.kills, chosen.seed, chosen.steps, chosen.max_staleness)
    print(f"kills {found.kills} in {found.runs} runs of {chosen.steps} steps, {time.monotonic() - started:.0f} s")
    print("  " + "\n  ".join(found.places))
    print(f"episodes that ended: {found.witnessed}; lost {found.lost}, lived twice {found.twice}")
    same = {"weights": found.same_weights, "metrics": found.same_metrics, "traces": found.same_traces}
    print(", ".join(f"{what} {'the same' if yes else 'DIFFERENT'}" for what, yes in same.items()))
    return 0 if found.clean else 1


if __name__ == "__main__":
    sys.exit(main())
