"""An evaluation suite: one model on the held-out tasks of several environments, several samples a task.

Resumable where a folder is given: ended episodes lie in a journal until their environment is done, then in traces, and
its result in `result.json`. The same command goes on where it was killed and repeats nothing.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from accredit.agents.policy import Policy
from accredit.credit import Group, Trajectory
from accredit.credit.traces import TraceWriter
from accredit.credit.traces.cutting import cut_after

from .config import SFTConfig
from .evaluation import evaluation_line
from .journal import Journal
from .passk import Proportion, clustered, pass_at_k
from .run import RunError
from .setup import Bench, crew_of, held_out
from .whole_file import replace_file

__all__ = ["Result", "cells", "evaluate_on", "open_suite", "summarise_tasks", "to_json", "to_markdown"]


@dataclass(frozen=True, slots=True)
class Result:
    """What the held-out tasks of one environment say. Intervals are 95 %, over tasks.

    `pass_at[k]` is the chance that one of k samples succeeds; `pass_at[1]` is success. Means are an episode.
    """

    env: str
    level: str | None
    tasks: int
    samples: int
    unscored: int
    pass_at: Mapping[int, Proportion]
    reward: float
    turns: float
    tokens: float
    charges: float

    @property
    def success(self) -> Proportion:
        """The share of episodes that succeed."""
        return self.pass_at[1]

    def line(self) -> str:
        """Return one line for people."""
        more = "".join(
            f", pass@{k} {p.value:.3f} [{p.low:.3f}, {p.high:.3f}]" for k, p in self.pass_at.items() if k > 1
        )
        return evaluation_line(self.success, self.tasks, self.unscored, self.turns, self.charges) + more


def summarise_tasks(env: str, level: str | None, lived: Sequence[Trajectory], samples: int) -> Result:
    """Summarise episodes that stand by task, `samples` each. An episode succeeds when its reward reaches 1."""
    rewards = np.array([np.nan if t.reward is None else t.reward for t in lived]).reshape(-1, samples)
    n_K = (~np.isnan(rewards)).sum(axis=1)
    c_K = (rewards >= 1 - 1e-9).sum(axis=1)
    ks = sorted({*(2**power for power in range(samples.bit_length())), samples})
    return Result(
        env,
        level,
        len(rewards),
        samples,
        int(np.isnan(rewards).sum()),
        {k: clustered(pass_at_k(n_K.tolist(), c_K.tolist(), k), samples) for k in ks},
        float(np.nanmean(rewards)) if n_K.any() else float("nan"),
        float(np.mean([t.turns for t in lived])),
        float(np.mean([len(t) for t in lived])),
        float(np.mean([len(t.charges) for t in lived])),
    )


def open_suite(folder: Path, settings: Mapping[str, Any]) -> None:
    """Make the folder of a suite, or go on with the one that it holds.

    Raises:
        RunError: the folder holds something else, or a suite with other settings.

    """
    path = folder / "settings.json"
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        changed = sorted(key for key in {*before, *settings} if before.get(key) != settings.get(key))
        if changed:
            told = "; ".join(f"{key}: {before.get(key)!r}, now {settings.get(key)!r}" for key in changed)
            raise RunError(f"{folder} holds an evaluation with other settings ({told}): choose another --out")
        return
    if folder.exists() and any(entry.name != "run.lock" for entry in folder.iterdir()):
        raise RunError(f"{folder} already holds something: choose another --out; nothing was overwritten")
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(settings, indent=1) + "\n")


def evaluate_on(
    bench: Bench,
    policy: Policy,
    config: SFTConfig,
    tasks: int,
    samples: int,
    temperature: float,
    folder: Path | None,
    on_done: Callable[[Trajectory], None] | None = None,
) -> Result:
    """Live the held-out tasks of `config.env` and summarise them; what `folder` holds is not lived again.

    Raises:
        RunError: every episode ended unscored.

    """
    level = config.env_options.get("level")
    if folder is not None and (folder / "result.json").exists():
        return _from_json(json.loads((folder / "result.json").read_text(encoding="utf-8")))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    journal = None if folder is None else Journal(folder / "journal.jsonl")

    def ended(trajectory: Trajectory) -> None:
        if journal is not None:
            journal.add(trajectory)
        if on_done is not None:
            on_done(trajectory)

    known = {} if journal is None else journal.ended(policy.version)
    try:
        _, lived = held_out(
            *(bench, crew_of(policy, bench, config), config, tasks, temperature, "eval"),
            samples=samples,
            on_done=ended,
            ended=known,
        )
        result = summarise_tasks(config.env, level, lived, samples)
        if result.unscored == len(lived):
            errors = [t.error for t in lived if t.error]
            first = f"; the first error was: {errors[0]}" if errors else ""
            raise RunError(f"all {len(lived)} episodes on {config.env} ended unscored{first}")
        if folder is not None and journal is not None:
            cut_after(folder / "traces", -1)
            groups = [Group(tuple(lived[at : at + samples])) for at in range(0, len(lived), samples)]
            TraceWriter(folder / "traces").write(0, groups, None, bench.loaded.renderer.token_bytes, split="heldout")
            replace_file(folder / "result.json", json.dumps(to_json(result), indent=1) + "\n")
            journal.clear()
    finally:
        if journal is not None:
            journal.close()
    return result


def to_json(result: Result) -> dict[str, Any]:
    """Return the JSON object of a result; what cannot be known is null."""
    found = asdict(result)
    found["pass_at"] = {str(k): p._asdict() for k, p in result.pass_at.items()}
    found["episodes"] = result.tasks * result.samples
    found["success"], found["success_low"], found["success_high"], _ = result.success
    return {key: None if value != value else value for key, value in found.items()}


def _from_json(found: Mapping[str, Any]) -> Result:
    names = [name for name in Result.__dataclass_fields__ if name != "pass_at"]
    pass_at = {int(k): Proportion(**p) for k, p in found["pass_at"].items()}
    return Result(**{name: found[name] for name in names}, pass_at=pass_at)


def to_markdown(model: str, results: Sequence[Result]) -> str:
    """Return a Markdown table, one line an environment."""
    ks = sorted({k for result in results for k in result.pass_at})
    head = ["environment", "tasks", "samples", *(f"pass@{k}" for k in ks), "unscored", "turns", "charges"]
    lines = [f"# {model}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cells(result, ks)) + " |" for result in results]
    return "\n".join([*lines, "", "Intervals are 95 %, over tasks. Turns and charges are means an episode.", ""])


def cells(result: Result, ks: Sequence[int]) -> list[str]:
    """Return the cells of a result in a table."""
    shares = [f"{p.value:.3f} [{p.low:.3f}, {p.high:.3f}]" if (p := result.pass_at.get(k)) else "" for k in ks]
    name = f"{result.env} ({result.level})" if result.level else result.env
    counts = [str(result.tasks), str(result.samples)]
    return [name, *counts, *shares, str(result.unscored), f"{result.turns:.1f}", f"{result.charges:.2f}"]
