"""Learning Symbols from random weights: counterfactual credit against GRPO, with luck and without.

Tasks, rewards, splits, sampling noise and credit are the package's own; only the sampling is a compact loop of its own,
in `symbols_sampling`. Both members of a pair count as episodes. Advantages are divided by their root mean square over a
step, so that functions differ in direction alone. The whole table takes about 13 minutes of one idle core.

Exits 1 when the curve of counterfactual credit is not the same to the last digit for every sigma: equal luck cancels.
"""

import argparse
import os
import sys
import time
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from symbols_sampling import CHOICE, COIN, SYMBOL, Lived, Setting, Transformer, offered, sample
from torch import Tensor, nn

from accredit.agents.policy import sampling_noise
from accredit.agents.rollout import seeds_of
from accredit.credit import Group, Recorder, StopReason, Trajectory
from accredit.credit.functions import credit_function
from accredit.envs.catalogue.symbols import Symbols, choice_reward, luck_reward

PAIRED = "counterfactual"
GOAL, WINDOW = 0.9, 5  # success per decision, over so many steps

HELP = {
    "turns": "turns K of an episode",
    "filler": "free tokens F before each choice",
    "groups": "tasks a step",
    "group_size": "episodes a task, both members of a pair counted",
    "steps": "optimizer steps",
    "lr": "learning rate of AdamW",
    "width": "width of the transformer",
    "layers": "layers of the transformer",
    "heldout": "held-out tasks tried at the end, one episode each",
}


class Curve(NamedTuple):
    """Success per decision of each step's episodes, and at the end on held-out tasks."""

    success: list[float]
    heldout: float


def recorded(lived: Lived, index: int, sigma: float, setting: Setting, seeds: dict[str, int]) -> Trajectory:
    """Write one episode down as the trajectory that credit functions read."""
    ids, size = lived.ids[index].tolist(), setting.filler + 3
    recorder = Recorder("Symbols", seeds=seeds)
    recorder.prompt(ids[:2])
    for turn, logprobs in enumerate(lived.logprobs[index].tolist()):
        start = 2 + turn * size
        recorder.decision(ids[start : start + size - 2], np.minimum(logprobs, 0.0))
        recorder.feedback(ids[start + size - 2 : start + size])
    heads = sum(token - COIN for token in ids[size::size])
    luck = luck_reward(heads, setting.turns, setting.turns, sigma)
    return recorder.finish(choice_reward(int(lived.right[index]), setting.turns) + luck, StopReason.DONE)


def live_groups(model: Transformer, function: str, sigma: float, setting: Setting, *place: int) -> list[Group]:
    """Live one step's groups; for paired credit, half of each group are branches of the other half."""
    size = setting.group_size // (2 if function == PAIRED else 1)
    count, turns = setting.groups * size, setting.turns
    rows = [row for group in range(setting.groups) for row in [task(setting, "train", *place, group)] * size]
    samplers = [seeds_of(*place, index, 7) for index in range(count)]
    rng = np.random.default_rng(seeds_of(*place, 8))
    coins_BK = torch.as_tensor(rng.integers(2, size=(count, turns)))
    noise_BKN = noise(samplers, setting)
    lived = sample(model, rows, coins_BK, noise_BKN, setting)
    if function != PAIRED:
        members = [[recorded(lived, index, sigma, setting, {})] for index in range(count)]
    else:
        forks_B = torch.tensor([seeds_of(sampler, 1) % turns for sampler in samplers])
        anew_BKN = noise([seeds_of(sampler, 2) for sampler in samplers], setting)
        here_BK = (torch.arange(turns) == forks_B[:, None])[:, :, None]
        forked = sample(model, rows, coins_BK, torch.where(here_BK, anew_BKN, noise_BKN), setting, lived, forks_B)
        members = [
            [recorded(one, index, sigma, setting, {"fork_turn": int(forks_B[index]), "pair": index % size})
             for one in (lived, forked)]
            for index in range(count)
        ]  # fmt: skip
    return [
        Group(tuple(member for pair in members[start : start + size] for member in pair))
        for start in range(0, count, size)
    ]


def task(setting: Setting, split: str, *place: int) -> str:
    """Return the row of symbols that the environment draws for a place in the run."""
    env = Symbols(turns=setting.turns)
    env.reset(seed=seeds_of(*place), options={"split": split})
    return env.task.id


def noise(samplers: list[int], setting: Setting) -> Tensor:
    """Return the uniforms [B, K, F+1] of each sampler seed, turn by turn."""
    return torch.tensor(
        np.array(
            [[sampling_noise(seed, turn, setting.filler + 1) for turn in range(setting.turns)] for seed in samplers]
        )
    )


def learn(function: str, sigma: float, seed: int, setting: Setting) -> Curve:
    """Train from random weights; return the curve."""
    torch.manual_seed(seed)
    model = Transformer(setting)
    optimizer = torch.optim.AdamW(model.parameters(), lr=setting.lr, weight_decay=0.0)
    price, success = credit_function(function), []
    size = setting.filler + 3
    places = [(2 + turn * size + place, place) for turn in range(setting.turns) for place in range(size - 2)]
    for step in range(setting.steps):
        groups = live_groups(model, function, sigma, setting, seed, step)
        members = [member for group in groups for member in group.trajectories]
        ids_BT = torch.tensor(np.stack([member.token_ids for member in members]), dtype=torch.long)
        advantages_BT = torch.tensor(np.stack([credit.advantage.total for group in groups for credit in price(group)]))
        logits_BTV = model(ids_BT[:, :-1])
        logprobs = [
            offered(logits_BTV[:, at - 1], place, setting).gather(1, ids_BT[:, at, None]) for at, place in places
        ]
        advantages_BN = advantages_BT[:, [at for at, _ in places]]
        scale = advantages_BN.square().mean().sqrt() + 1e-8
        loss = -(torch.cat(logprobs, 1) * (advantages_BN / scale).float()).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        choices_BK, shown_BK = ids_BT[:, 1 + size - 2 :: size], ids_BT[:, 1::size][:, : setting.turns]
        success.append(float((choices_BK - CHOICE == shown_BK - SYMBOL).double().mean()))
    rows = [task(setting, "heldout", index) for index in range(setting.heldout)]
    coins = torch.zeros(setting.heldout, setting.turns, dtype=torch.long)
    tried = sample(
        model, rows, coins, noise([seeds_of(index, 9) for index in range(setting.heldout)], setting), setting
    )
    return Curve(success, float(tried.right.double().mean()) / setting.turns)


def episodes_to_goal(curve: Curve, setting: Setting) -> float:
    """Return the episodes after which the mean of the last steps reached the goal, inf if it never did."""
    means = np.convolve(curve.success, np.ones(WINDOW) / WINDOW, "valid")
    reached = np.flatnonzero(means >= GOAL)
    return float((reached[0] + WINDOW) * setting.groups * setting.group_size) if reached.size else np.inf


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--functions", nargs="+", default=[PAIRED, "grpo"], help="credit functions")
    parser.add_argument("--sigmas", nargs="+", type=float, default=[0.5, 0.0], help="deviation of the luck in R")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    for name, default in Setting()._asdict().items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default, help=HELP[name])
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    setting = Setting(**{name: getattr(given, name) for name in Setting._fields})
    a_step = setting.groups * setting.group_size
    marks = sorted({max(1, round(setting.steps * part / 4)) for part in range(1, 5)})
    size = sum(weights.numel() for weights in Transformer(setting).parameters())
    print(
        f"{size / 1e6:.2f}M parameters, {setting.turns} turns, {setting.filler} filler tokens, {a_step} episodes a step"
    )
    print(f"{given.seeds} seeds from {given.seed}, success per decision (chance 0.125), mean ± spread over the seeds")
    heads = [f"{mark * a_step} episodes" for mark in marks]
    print(f"| credit | sigma | {' | '.join(heads)} | episodes to {GOAL} (median, reached) | held-out | s a run |")
    print("|---" * (len(marks) + 5) + "|")
    curves: dict[tuple[str, float], list[Curve]] = {}
    for function in given.functions:
        for sigma in given.sigmas:
            started = time.monotonic()
            runs = [learn(function, sigma, seed, setting) for seed in range(given.seed, given.seed + given.seeds)]
            seconds = (time.monotonic() - started) / given.seeds
            curves[function, sigma] = runs
            ends = [[float(np.mean(run.success[max(0, mark - WINDOW) : mark])) for run in runs] for mark in marks]
            goals = [episodes_to_goal(run, setting) for run in runs]
            reached = f"{np.median(goals):.0f}, {np.isfinite(goals).sum()} of {len(runs)}"
            cells = [*map(spread, ends), reached, spread([run.heldout for run in runs]), f"{seconds:.0f}"]
            print(f"| {function} | {sigma:g} | {' | '.join(cells)} |", flush=True)
    paired = [runs for (function, _), runs in curves.items() if function == PAIRED]
    if any(runs != paired[0] for runs in paired):
        print(f"missed: the curves of {PAIRED} credit differ between sigmas, expected the same to the last digit")
        return 1
    if len(paired) > 1:
        print(f"the curves of {PAIRED} credit are the same to the last digit for every sigma")
    return 0


def spread(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) if len(values) > 1 else 0.0:.3f}"


if __name__ == "__main__":
    sys.exit(main())
