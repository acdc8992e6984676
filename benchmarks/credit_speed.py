"""Times every registered credit function on one million tokens: groups of 8 rollouts of 20 turns.

A turn is a decision, feedback and a template token; three in four rollouts meet in one of three states after a turn,
and rollouts that left one state share the first tokens of their decision, so that anchors of both kinds are found.
Every function prices all groups; printed are the medians of the repeats with the lowest and the highest. The clock is
the processor time of the process, which runs on one core: on an idle machine the wall clock shows the same, on a busy
one it shows the neighbours too. `exact` gets its values ready-made; `gae` and `vineppo` take the group's state values
and pay for them. Exits 1 when anchored credit misses its target, a median below 100 ms.
"""

import argparse
import os
import statistics
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from accredit.credit import CreditFunction, Group, Recorder, StopReason, Trajectory
from accredit.credit.functions import CREDIT_FUNCTIONS, StepScores, credit_function

TARGET_MS = 100.0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1_000_000, help="tokens in all")
    parser.add_argument("--group", type=int, default=8, help="rollouts a group")
    parser.add_argument("--turns", type=int, default=20, help="turns a rollout")
    parser.add_argument("--turn-tokens", type=int, default=300, help="tokens a turn")
    parser.add_argument("--repeats", type=int, default=7, help="times that each function prices all groups")
    parser.add_argument("--only", nargs="*", default=[], help="names of functions; all by default")
    given = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    size = given.group * given.turns * given.turn_tokens
    groups = [
        Group(tuple(rollout(rng, member, given.turns, given.turn_tokens) for member in range(given.group)))
        for _ in range(max(1, round(given.tokens / size)))
    ]
    tokens = sum(len(trajectory) for group in groups for trajectory in group.trajectories)
    print(f"{tokens:,} tokens: {len(groups)} groups of {given.group} rollouts of {given.turns} turns")
    print("| function | CPU ms, median | lowest | highest | wall ms, median |\n|---|---|---|---|---|")
    anchored_ms = 0.0
    for name in given.only or CREDIT_FUNCTIONS:
        cpu_ms, wall_ms = times_ms(prepared(name, groups), groups, given.repeats)
        median_ms = statistics.median(cpu_ms)
        anchored_ms = median_ms if name == "anchored" else anchored_ms
        row = (median_ms, min(cpu_ms), max(cpu_ms), statistics.median(wall_ms))
        print(f"| {name} | {' | '.join(f'{cell:.1f}' for cell in row)} |", flush=True)
    if anchored_ms * 1_000_000 / tokens > TARGET_MS:
        print(f"missed: anchored took {anchored_ms:.1f} ms, expected less than {TARGET_MS:g} ms a million tokens")
        return 1
    return 0


def rollout(rng: np.random.Generator, member: int, turns: int, turn_tokens: int) -> Trajectory:
    """Return a rollout whose odd and even members, and some by chance, meet in the same states."""
    recorder = Recorder("Speed", "speed", str(member), seeds={"pair": member // 2, "fork_turn": turns // 2})
    decided = max(2, turn_tokens // 3)
    state = 0
    for turn in range(turns):
        ids = rng.integers(0, 50_000, decided)
        ids[: decided // 4] = turn  # all begin a turn alike
        ids[decided // 4] = state
        recorder.decision(ids, -rng.random(decided))
        recorder.feedback(rng.integers(0, 50_000, turn_tokens - decided - 1))
        recorder.scaffold([1])
        recorder.reward(float(rng.random() < 0.1))
        state = int(rng.integers(0, 4))
        recorder.state_key(f"{turn + 1}:{state}" if state else f"{turn + 1}:{member}")
    return recorder.finish(float(rng.random() < 0.5), StopReason.DONE)


def prepared(name: str, groups: list[Group]) -> CreditFunction:
    """Return the function `name` with what it needs, made before the clock starts."""
    if name == "exact":
        values = {t: walk_of_values(t) for group in groups for t in group.trajectories}
        return credit_function(name, values=values.__getitem__)
    if name == "prm_broadcast":
        scores = {t: turn_scores(t) for group in groups for t in group.trajectories}
        return credit_function(name, scores=scores.__getitem__)
    return credit_function(name)


def walk_of_values(trajectory: Trajectory) -> np.ndarray:
    assert trajectory.reward is not None
    return np.linspace(0.5, trajectory.reward, len(trajectory) + 1)


def turn_scores(trajectory: Trajectory) -> StepScores:
    step_T = np.full(len(trajectory), -1)
    for step, span in enumerate(trajectory.decisions):
        step_T[span.start : span.end] = step
    return StepScores(step_T, np.arange(len(trajectory.decisions)) % 3.0)


def times_ms(price: CreditFunction, groups: list[Group], repeats: int) -> tuple[list[float], list[float]]:
    """Price all groups once to warm up, then `repeats` times; return the milliseconds of each, CPU and wall."""
    cpu_ms, wall_ms = [], []
    for _ in range(repeats + 1):
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        for group in groups:
            price(group)
        cpu_ms.append(1000 * (time.process_time() - cpu_s))
        wall_ms.append(1000 * (time.perf_counter() - wall_s))
    return cpu_ms[1:], wall_ms[1:]


if __name__ == "__main__":
    sys.exit(main())
