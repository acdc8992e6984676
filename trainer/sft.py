"""Supervised warm start: learn the scripted expert's decisions, with the masks of reinforcement learning.

The expert plays training tasks through the same recorder, so a token that the environment wrote is no target here
either. Only episodes that reach full reward are learnt from.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
import torch

from accredit.agents.rollout import Episode, live, seeds_of
from accredit.agents.scripted import ScriptedPolicy
from accredit.credit import Trajectory
from accredit.envs import ToolEnv

from . import checkpoint
from .batch import Row, collate, micro_batches, rows_of, weigh
from .config import SFTConfig
from .distributed import launched
from .evaluation import Evaluation, evaluation_of
from .logprobs import score
from .loop import Listener
from .metrics import open_metrics
from .run import RunDirectory, RunError, open_or_create, told_of_disk
from .setup import Bench, check_installed, crew_of, held_out, learning_rate, make_engine, make_optimizer, prepare

__all__ = ["SFTResult", "expert_trajectories", "imitate", "warm_start"]


class SFTResult(NamedTuple):
    """What a warm start left behind; `checkpoint` is a folder that `model.path` accepts."""

    run: RunDirectory
    checkpoint: str
    before: Evaluation
    after: Evaluation


def warm_start(config: SFTConfig, listener: Listener, *, resume: bool = False) -> SFTResult:
    """Imitate the expert for `config.steps` and return the checkpoint and held-out results before and after.

    With `resume` it goes on from the run's newest checkpoint, to the bits of a run that nobody stopped (on a CPU): the
    expert plays the same episodes again, and a step's batch is drawn from the run's seed and the step.

    Raises:
        RunError: several processes were started, the run directory is taken, or there is nothing to go on from.

    """
    if launched():
        raise RunError("a warm start runs in one process: start `accredit sft` without torchrun")
    check_installed(config)
    run = open_or_create(config.runs_dir, config.name, config, resume, "sft")
    with ExitStack() as opened:
        opened.callback(run.unlock)
        opened.enter_context(told_of_disk(run))
        bench = prepare(config)
        optimizer = make_optimizer(bench.loaded.model, config.optimizer)
        first = _load_newest(run, bench, optimizer)
        if first > config.steps:
            raise RunError(f"{run.path} has done {first} steps and steps is {config.steps}: nothing was changed")
        policy = make_engine(config, bench.loaded.model)
        opened.callback(policy.close)
        metrics = open_metrics(run.path, config.trackers, config.model_dump(mode="json"), first)
        opened.callback(metrics.close)
        told = {line["step"]: evaluation_of(line) for line in run.history() if "eval/success" in line}
        listener.started(run, config, first)

        def evaluate(step: int) -> None:
            wanted = config.evaluation
            policy.updated(step)
            found, _ = held_out(
                bench, crew_of(policy, bench, config), config, wanted.episodes, wanted.temperature, f"e{step:06d}"
            )
            metrics.write(step, {f"eval/{name}": value for name, value in found._asdict().items()})
            listener.evaluated(step, found)
            told[step] = found

        def best() -> int:
            return max(told, key=lambda step: told[step].success)

        def save(step: int) -> None:
            facts = {"best_success": told[best()].success, "best_step": best()}
            checkpoint.save(run.checkpoints, step, bench.loaded, optimizer.state_dict(), facts)
            checkpoint.tidy(run.checkpoints, config.save.keep, best())

        if first == 0:
            evaluate(0)
        rows = rows_of(*_priced(expert_trajectories(config, bench, listener))) if first < config.steps else []
        for step in range(first, config.steps):
            started = time.monotonic()
            torch.manual_seed(seeds_of(config.seed, step, 5))  # for models with dropout
            order = np.random.default_rng(seeds_of(config.seed, step, 4)).permutation(len(rows))[: config.batch]
            lr = learning_rate(config.optimizer, step, config.steps)
            chosen = [rows[index] for index in order]
            numbers = imitate(
                bench.loaded.model, optimizer, chosen, lr, config.optimizer.grad_clip, config.optimizer.micro_tokens
            )
            numbers["time/step_s"] = time.monotonic() - started
            done, last = step + 1, step + 1 == config.steps
            metrics.write(done, numbers)
            listener.stepped(done, numbers)
            if last or (config.evaluation.every and done % config.evaluation.every == 0):
                evaluate(done)
            if last or done % config.save.every == 0 or best() == done:
                save(done)
        if config.steps not in told:  # the run was resumed with fewer steps, at one that was not evaluated
            evaluate(config.steps)
            save(config.steps)
    return SFTResult(run, str(checkpoint.find(run.checkpoints, "last")), told[0], told[config.steps])


def _load_newest(run: RunDirectory, bench: Bench, optimizer: torch.optim.Optimizer) -> int:
    """Load the newest checkpoint, if there is one; return the number of steps that are done."""
    checkpoint.sweep(run.checkpoints)
    newest = checkpoint.latest(run.checkpoints)
    return 0 if newest is None else int(checkpoint.load_into(newest, bench.loaded, optimizer)["step"])


def expert_trajectories(config: SFTConfig, bench: Bench, listener: Listener) -> list[Trajectory]:
    """Let the expert play `config.episodes` training tasks; keep those that reach full reward.

    Raises:
        RunError: the environment has no expert, or none of its episodes reached full reward.

    """
    if type(bench.make_env()).expert is ToolEnv.expert:
        raise RunError(f"{config.env} has no expert to learn from: give its class a generator `expert` of messages")
    options = {**bench.options, "split": "train"}
    seeds = [seeds_of(config.seed, index, 5) for index in range(config.episodes)]
    episodes = [Episode(f"x{i:06d}", f"x{i:06d}", seed, seed, seed, options) for i, seed in enumerate(seeds)]
    done: list[Trajectory] = []

    def count(trajectory: Trajectory) -> None:
        done.append(trajectory)
        listener.lived(len(done), len(episodes))

    policy = ScriptedPolicy(bench.loaded.renderer)
    lived = live(episodes, policy, bench.make_env, bench.loaded.renderer, bench.limits, at_once=64, on_done=count)
    good = [trajectory for trajectory in lived if trajectory.reward is not None and trajectory.reward >= 1 - 1e-9]
    if not good:
        errors = [t.error for t in lived if t.error]
        raise RunError(
            f"none of the expert's {len(lived)} episodes reached full reward"
            + (f"; the first error was: {errors[0]}" if errors else "")
        )
    return good


def imitate(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, rows: Sequence[Row], lr: float, clip: float, most: int
) -> dict[str, float]:
    """Make one step of maximum likelihood on the rows' decision tokens, mean over tokens."""
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.zero_grad(set_to_none=True)
    total = 0.0
    for part in micro_batches(weigh(rows, "token_mean"), most):
        batch = collate(part, next(model.parameters()).device)
        loss = -(score(model, batch).logprobs_N * batch.weight_N).sum()
        loss.backward()
        total += float(loss.detach())
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]  # of 16 bits: their copies
    norm = torch.nn.utils.clip_grad_norm_(weights, clip)
    optimizer.step()
    return {"loss/nll_nats": total, "optimizer/grad_norm": float(norm), "optimizer/lr": lr}


def _priced(trajectories: Sequence[Trajectory]) -> tuple[Sequence[Trajectory], list[np.ndarray]]:
    return trajectories, [trajectory.credit_mask.astype(np.float64) for trajectory in trajectories]
