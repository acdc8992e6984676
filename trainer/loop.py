"""The loop: tasks, groups, rollouts, credit, batches, loss, step, new weights to the engine.

Reads top to bottom: `train` sets up and resumes, `_Training.step` is one step. It prints nothing; a `Listener` hears
what happens. Every seed is derived from the run's seed and a place in the run, so a resumed run repeats its future.

A killed run goes on from its newest checkpoint. Metrics and traces of later steps are cut off, for those steps are made
again; their episodes are not, for the journal has kept those that had ended.

With `rollout.max_staleness` the next steps' episodes are lived while a step is learnt from (`trainer.overlap`).

Under torchrun every process runs this loop alike, on the same trajectories; the first one alone writes and speaks
(`trainer.distributed`).

Counterfactual credit compares pairs: half of a group's episodes are then lived as ever, and the other half are their
branches (`accredit.agents.branch`). Both count as episodes, in `rollout.group_size` and in every metric.
"""

import gc
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from accredit.agents.rollout import seeds_of
from accredit.credit import Credit, Group
from accredit.credit.functions import credit_function
from accredit.credit.traces import TraceWriter
from accredit.credit.traces.cutting import cut_after as cut_traces_after

from . import checkpoint
from .alarms import Monitor
from .config import ConfigError, TrainConfig
from .distributed import Processes, Unheard, processes_of
from .evaluation import Evaluation, evaluation_of
from .health import step_metrics
from .journal import Journal
from .learner import make_learner
from .metrics import open_metrics
from .overlap import Ahead, OverlappedCrew, staleness
from .preflight import check_credit
from .rollouts import Rollouts, check, lost, read_ahead, write_ahead
from .run import RunDirectory, RunError, open_or_create, told_of_disk
from .setup import check_installed, held_out, learning_rate, prepare
from .signals import TokenSignals

__all__ = ["Listener", "Result", "charge_scale", "train"]


class Listener(Protocol):
    """Hears of a run as it goes."""

    def started(self, run: RunDirectory, config: TrainConfig, first_step: int) -> None:
        """Hear that a run begins, or goes on, at `first_step` (0-based)."""
        ...

    def lived(self, done: int, of: int) -> None:
        """Hear how many episodes of the current rollout have ended."""
        ...

    def stepped(self, step: int, metrics: dict[str, Any]) -> None:
        """Hear that a step (1-based) is done."""
        ...

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        """Hear how the held-out tasks went after `step` steps."""
        ...


class Result(NamedTuple):
    """What a run left behind."""

    run: RunDirectory
    before: Evaluation | None
    after: Evaluation


def train(config: TrainConfig, listener: Listener, *, resume: bool = False) -> Result:
    """Train as the configuration says and return where the run lies and how the held-out tasks went.

    Raises:
        ConfigError: groups of an odd size cannot be lived in pairs, or several processes cannot live ahead.
        PreflightError: the credit function breaks what training needs.
        ProcessLost: another process of the run died, or the first could not go on.
        RunError: the run directory is taken, cannot be resumed, or every episode of a step failed.

    """
    paired = _in_pairs(config)
    check_credit(config.credit)
    check_installed(config)
    with processes_of(config.model.device) as processes:
        if processes.sharded and config.rollout.max_staleness:
            raise ConfigError(
                f"rollout.max_staleness is {config.rollout.max_staleness}, expected 0 under torchrun: its processes "
                "live and learn in turn. Train with one process, or set it to 0"
            )
        run = _open(config, resume, processes)
        try:
            with told_of_disk(run):
                training = _Training(config, run, listener if processes.first else Unheard(), paired, processes)
                gc.freeze()  # else every full collection walks through all that torch and transformers have loaded
                try:
                    return training.run_all()
                finally:
                    gc.unfreeze()
                    training.close()
        finally:
            run.unlock()


def _open(config: TrainConfig, resume: bool, processes: Processes) -> RunDirectory:
    """Open the run directory in the first process, which holds its lock; return it everywhere."""
    opened: list[RunDirectory] = []

    def open_it() -> Path:
        opened.append(open_or_create(config.runs_dir, config.name, config, resume))
        return opened[0].path

    path = processes.from_first(open_it)
    return opened[0] if opened else RunDirectory(path)


class _Training:
    def __init__(
        self, config: TrainConfig, run: RunDirectory, listener: Listener, paired: bool, processes: Processes
    ) -> None:
        self.config, self.run, self.listener, self.paired = config, run, listener, paired
        self.processes = processes
        self.bench = prepare(config)
        self.crew, self.optimizer, self.updater = make_learner(config, self.bench, processes)
        self.monitor = Monitor()
        self.best: tuple[float, int] = (-1.0, 0)
        self.rollouts = Rollouts(config, self.bench.options, paired, listener.lived)
        self.ahead: Ahead | None = None
        if isinstance(self.crew, OverlappedCrew):
            self.ahead = Ahead(self.crew, self.rollouts.live, config.rollout.max_staleness, config.steps)
        self.journal = self.traces = self.metrics = Unheard()
        try:
            self.first = self.load_newest()
            self.told: dict[int, Evaluation] = processes.from_first(self.open_files)
        except BaseException:
            self.close()
            raise

    def open_files(self) -> dict[int, Evaluation]:
        """Cut off what came after the checkpoint, open what the run writes; return the evaluations until then."""
        config, run = self.config, self.run
        checkpoint.sweep(run.checkpoints)
        cut_traces_after(run.traces, self.first or -1)  # as `open_metrics` cuts
        self.journal = Journal(run.journal)
        self.rollouts.note_in(self.journal)
        self.traces = TraceWriter(run.traces)
        self.metrics = open_metrics(run.path, config.trackers, config.model_dump(mode="json"), self.first)
        self.monitor.replay(run.history(), self.first)
        return {line["step"]: evaluation_of(line) for line in run.history() if "eval/success" in line}

    def load_newest(self) -> int:
        """Load the newest checkpoint, if there is one; return the number of steps that are done."""
        newest = self.processes.from_first(lambda: checkpoint.latest(self.run.checkpoints))
        if newest is None:
            return 0
        facts = checkpoint.load_into(newest, self.bench.loaded, self.optimizer)
        self.best = (facts["best_success"], facts["best_step"])
        self.crew.updated(int(facts["step"]))
        if self.ahead is not None:
            self.ahead.restore(read_ahead(newest, facts["ahead"]))
        return int(facts["step"])

    def close(self) -> None:
        """Close what is open; episodes that are being lived ahead are given up."""
        self.rollouts.stop()
        self.crew.close()
        self.metrics.close()
        self.journal.close()

    def run_all(self) -> Result:
        config, first = self.config, self.first
        if first > config.steps:
            raise RunError(f"{self.run.path} has done {first} steps and steps is {config.steps}: nothing was changed")
        self.listener.started(self.run, config, first)
        if first == 0:
            self.evaluate(0)
        for step in range(first, config.steps):
            self.step(step)
            done = step + 1
            last = done == config.steps
            if last or (config.evaluation.every and done % config.evaluation.every == 0):
                self.evaluate(done)
            if last or done % config.save.every == 0 or self.best[1] == done:
                self.save(done)
        if config.steps not in self.told:  # the run was resumed with fewer steps, at one that was not evaluated
            self.evaluate(config.steps)
            self.save(config.steps)
        return Result(self.run, self.told.get(0), self.told[config.steps])

    def step(self, step: int) -> None:
        """Live, price and learn from one step's groups."""
        config = self.config
        started = time.monotonic()
        torch.manual_seed(seeds_of(config.seed, step, 5))  # for models with dropout
        trajectories, faults, rollout_s = self.ahead.take(step) if self.ahead else self.rollouts.live(step, self.crew)
        check(trajectories, config.rollout.episode_tokens)
        ages = staleness(trajectories, self.crew.version, config.rollout.max_staleness)
        waited = {"time/wait_s": time.monotonic() - started} if self.ahead else {}
        size = config.rollout.group_size
        groups = [Group(tuple(trajectories[at : at + size])) for at in range(0, len(trajectories), size)]
        shares = self.processes.gather(self.price(self.processes.share(groups), step))
        credits = self.processes.together(shares)
        flat = [credit for group in credits for credit in group]
        metrics = step_metrics(trajectories, flat, groups)
        metrics["rollout/undecided_share"] = sum(not t.decisions for t in trajectories) / len(trajectories)
        metrics["rollout/infrastructure_rate"] = faults / (len(trajectories) + faults - lost(trajectories))
        metrics |= ages
        stores = bool(config.save.traces_every) and step % config.save.traces_every == 0
        signals = TokenSignals(trajectories) if stores else None
        metrics |= self.updater.update(
            trajectories,
            [credit.advantage.total for credit in flat],
            learning_rate(config.optimizer, step, config.steps),
            seeds_of(config.seed, step, 3),
            apart=ages["rollout/staleness_max"] > 0 or self.inexact,
            signals=signals,
        )
        metrics |= self.crew.updated(step + 1)
        stored_s = time.monotonic()
        if signals is not None:
            token_bytes = self.bench.loaded.renderer.token_bytes
            self.traces.write(step + 1, groups, credits, token_bytes, split="train", signals=signals.columns)
        metrics |= {
            "time/rollout_s": rollout_s,
            **waited,
            "time/traces_s": time.monotonic() - stored_s,
            "time/step_s": time.monotonic() - started,
        }
        if self.processes.first:
            metrics |= self.monitor.observe(step + 1, metrics)
        self.metrics.write(step + 1, metrics)
        self.listener.stepped(step + 1, metrics)

    @property
    def inexact(self) -> bool:
        """Whether log-probabilities of one version of the weights differ between the engine and the trainer."""
        return self.config.rollout.engine != "transformers" or self.config.model.dtype != "float32"

    def price(self, groups: Sequence[Group], step: int) -> list[Sequence[Credit]]:
        """Return the credit of every trajectory of every group."""
        credit = self.config.credit
        function = credit_function(credit.function, charge_scale=charge_scale(self.config, step), **credit.options)
        return [function(group) for group in groups]

    def evaluate(self, step: int) -> Evaluation:
        """Try the held-out tasks and keep what was seen."""
        wanted = self.config.evaluation
        started = time.monotonic()
        tag = f"e{step:06d}"
        evaluation, lived = held_out(
            self.bench,
            self.crew,
            self.config,
            wanted.episodes,
            wanted.temperature,
            tag,
            on_done=self.rollouts.note,
            ended=self.rollouts.ended(self.crew.version),
        )
        if self.processes.first:
            groups = [Group((trajectory,)) for trajectory in lived]
            credits = None if self.paired else self.price(groups, max(0, step - 1))  # held-out ones have no branches
            self.traces.write(step, groups, credits, self.bench.loaded.renderer.token_bytes, split="heldout")
        numbers = {f"eval/{name}": value for name, value in evaluation._asdict().items()}
        self.metrics.write(step, {**numbers, "time/eval_s": time.monotonic() - started})
        self.listener.evaluated(step, evaluation)
        self.told[step] = evaluation
        if evaluation.success > self.best[0]:
            self.best = (evaluation.success, step)
        return evaluation

    def save(self, step: int) -> Path:
        """Write a checkpoint and delete those that are neither new nor best."""
        facts: dict[str, Any] = {"best_success": self.best[0], "best_step": self.best[1]}
        state = self.optimizer.state_dict()
        ready = self.ahead.settled() if self.ahead else {}
        if self.ahead:
            facts["ahead"] = {str(later): [len(lot.trajectories), lot.faults] for later, lot in ready.items()}

        def write() -> Path:
            path = checkpoint.save(
                self.run.checkpoints, step, self.bench.loaded, state, facts, partial(write_ahead, ready)
            )
            self.journal.clear()
            checkpoint.tidy(self.run.checkpoints, self.config.save.keep, self.best[1])
            return path

        return self.processes.from_first(write)


def charge_scale(config: TrainConfig, step: int) -> float:
    """Return what multiplies every charge at 0-based `step`: annealed linearly where the configuration says so."""
    scale = config.credit.charge_scale
    if config.credit.charge_scale_end is not None and config.steps > 1:
        scale += (config.credit.charge_scale_end - scale) * step / (config.steps - 1)
    return scale


def _in_pairs(config: TrainConfig) -> bool:
    """Whether the credit function compares episodes with their branches."""
    if config.credit.function != "counterfactual":
        return False
    if config.rollout.group_size % 2:
        raise ConfigError(
            f"rollout.group_size is {config.rollout.group_size}, expected an even number: counterfactual credit "
            "compares pairs, and both members of a pair count"
        )
    return True
