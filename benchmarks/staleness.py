"""Learning Symbols from stale episodes: how many steps behind, and what importance weights give back.

Episodes of step s are sampled with the weights of step max(0, s - k), which is the pipeline of `rollout.max_staleness`,
simulated in turn: the table is about learning, not about time. Loss, weights, tasks and credit are the package's own;
only the sampling is the compact loop of `symbols_sampling`. All runs of a seed begin with the same weights and live the
same tasks with the same noise. A larger learning rate makes the same staleness worse: --lr.

    python benchmarks/staleness.py [--seeds 3] [--stale 0 1 4] [--lr 1e-3]

Prints a table: success per decision on held-out tasks after equal numbers of episodes, mean and deviation over the
seeds, and the difference, seed by seed, from the runs on policy.
"""

import argparse
import copy
import os
import sys
import time
from collections import deque
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from symbols_learning import live_groups, noise, task
from symbols_sampling import Setting, Transformer, offered, sample
from torch import nn

from accredit.agents.rollout import seeds_of
from accredit.credit.functions import credit_function
from accredit.trainer.importance import gap_metrics, importance_of
from accredit.trainer.loss import policy_loss

CREDIT = "anchored"


class Run(NamedTuple):
    """Held-out success a decision at the middle and the end, and means over the steps of what the weights say."""

    middle: float
    end: float
    kl_nats: float
    ess: float
    truncated: float
    clipped: float


def learn(seed: int, k: int, importance: str, cap: float, setting: Setting) -> Run:
    """Train from random weights on episodes that are `k` steps old."""
    torch.manual_seed(seed)
    model = Transformer(setting)
    optimizer = torch.optim.AdamW(model.parameters(), lr=setting.lr, weight_decay=0.0)
    price, size = credit_function(CREDIT), setting.filler + 3
    places = [(2 + turn * size + place, place) for turn in range(setting.turns) for place in range(size - 2)]
    at_N = [at for at, _ in places]
    kept: deque[Transformer] = deque(maxlen=k + 1)
    seen: list[list[float]] = []
    middle = 0.0
    for step in range(setting.steps):
        kept.append(copy.deepcopy(model))
        groups = live_groups(kept[0], CREDIT, 0.0, setting, seed, step)
        members = [member for group in groups for member in group.trajectories]
        ids_BT = torch.tensor(np.stack([member.token_ids for member in members]), dtype=torch.long)
        sampled_BN = torch.tensor(np.stack([member.logprobs for member in members]))[:, at_N]
        advantages_BT = torch.tensor(np.stack([credit.advantage.total for group in groups for credit in price(group)]))
        advantages_BN = advantages_BT[:, at_N].float()
        advantages_BN = advantages_BN / (advantages_BN.square().mean().sqrt() + 1e-8)
        logits_BTV = model(ids_BT[:, :-1])
        logprobs_BN = torch.cat(
            [offered(logits_BTV[:, at - 1], place, setting).gather(1, ids_BT[:, at, None]) for at, place in places], 1
        )
        now = logprobs_BN.detach()
        found = importance_of(
            list(now.numpy()), list(sampled_BN.numpy()), range(len(now)), importance.replace("none", "token"), cap
        )
        weights_BN, against_BN = torch.ones_like(now), sampled_BN
        if importance != "none" and k:
            weights_BN, against_BN = torch.from_numpy(np.stack(found.weights)), now
        loss_BN, clipped_BN = policy_loss(logprobs_BN, against_BN, advantages_BN)
        optimizer.zero_grad()
        (weights_BN * loss_BN).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        gap = gap_metrics(now.numpy().ravel(), sampled_BN.numpy().ravel())
        seen.append(
            [
                gap["policy/sampler_kl_nats"],
                found.metrics["policy/importance_ess_share"],
                found.metrics["policy/importance_truncated_share"],
                float(clipped_BN.float().mean()),
            ]
        )
        if step + 1 == setting.steps // 2:
            middle = heldout(model, setting)
    return Run(middle, heldout(model, setting), *np.mean(seen, axis=0).tolist())


def heldout(model: Transformer, setting: Setting) -> float:
    """Return the share of right choices on held-out tasks."""
    rows = [task(setting, "heldout", index) for index in range(setting.heldout)]
    coins = torch.zeros(setting.heldout, setting.turns, dtype=torch.long)
    tried = sample(
        model, rows, coins, noise([seeds_of(index, 9) for index in range(setting.heldout)], setting), setting
    )
    return float(tried.right.double().mean()) / setting.turns


def spread(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) if len(values) > 1 else 0.0:.3f}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each")
    parser.add_argument("--stale", type=int, nargs="+", default=[1, 4], help="steps behind, beside 0")
    parser.add_argument("--importance", nargs="+", default=["none", "token", "sequence"], help="kinds of weights")
    parser.add_argument("--cap", type=float, default=2.0, help="largest weight")
    parser.add_argument("--lr", type=float, default=3e-3, help="learning rate of AdamW")
    parser.add_argument("--steps", type=int, default=60, help="optimizer steps")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    setting = Setting(turns=4, filler=1, groups=8, group_size=8, steps=given.steps, lr=given.lr, width=32)
    a_step = setting.groups * setting.group_size
    kinds = [(0, "none"), *((k, kind) for k in given.stale for kind in given.importance)]
    print(f"{setting.turns} turns, {a_step} episodes a step, lr {given.lr:g}, cap {given.cap:g}, {given.seeds} seeds")
    print("success per decision on held-out tasks (chance 0.125); the rest are means over the steps")
    half, whole = setting.steps // 2 * a_step, setting.steps * a_step
    heads = (
        f"after {half} episodes | after {whole} | from on policy, seed by seed | KL, nats | ESS | truncated | clipped"
    )
    print(f"| steps behind | weights | {heads} | s a run |")
    print("|---" * 10 + "|")
    ends: dict[tuple[int, str], list[float]] = {}
    for k, kind in kinds:
        started = time.monotonic()
        runs = [learn(seed, k, kind, given.cap, setting) for seed in range(given.seeds)]
        seconds = (time.monotonic() - started) / given.seeds
        ends[k, kind] = [run.end for run in runs]
        apart = [end - on_policy for end, on_policy in zip(ends[k, kind], ends[0, "none"], strict=True)]
        means = [f"{np.mean(column):.3f}" for column in list(zip(*runs, strict=True))[2:]]
        cells = [spread([run.middle for run in runs]), spread(ends[k, kind]), spread(apart), *means, f"{seconds:.0f}"]
        print(f"| {k} | {kind if k else '-'} | {' | '.join(cells)} |", flush=True)
    for k in given.stale:
        for kind in [kind for kind in given.importance if kind != "none" and "none" in given.importance]:
            better = np.mean(ends[k, kind]) - np.mean(ends[k, "none"])
            print(f"{k} behind: {kind} weights {'win' if better > 0 else 'lose'} {abs(better):.3f} against none")
    return 0


if __name__ == "__main__":
    sys.exit(main())
