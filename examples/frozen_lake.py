"""Credit without tokens: the same functions on Gymnasium's FrozenLake, where a decision is one move.

    python examples/frozen_lake.py --seeds 5

A policy with a table of logits walks the lake. Every episode becomes a trajectory whose decisions are moves and whose
feedback is the field that was reached; the field is the state key. Each credit function prices groups of episodes, and
its advantages move the logits along the plain policy gradient, by steps of equal length, so that no function gains from
the scale of its advantages (`grpo` and `dr_grpo` are the same here). The figure is the exact probability of reaching
the goal, by dynamic programming over the lake's own transition table, at equal numbers of episodes.
"""

import argparse
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from accredit.credit import Group, Recorder, StopReason, Trajectory
from accredit.credit.functions import credit_function
from accredit.credit.ledger import CreditFunction

FIRST_FIELD = 8  # tokens: 0 is the prompt, 1 to 4 are the moves, fields begin here
MOVES = 4


def walk(env: gymnasium.Env[Any, Any], policy: NDArray[np.float64], rng: np.random.Generator) -> Trajectory:
    """Live one episode with `policy`, float64 [S, A]."""
    field, _ = env.reset(seed=int(rng.integers(2**31)))
    recorder = Recorder("FrozenLake-v1", state_key=str(field))
    recorder.prompt([0])
    reward, ended = 0.0, False
    while not ended:
        move = min(int(np.searchsorted(np.cumsum(policy[field]), rng.random(), side="right")), MOVES - 1)
        recorder.decision([1 + move], [np.log(policy[field, move])])
        field, reward, done, cut, _ = env.step(move)
        recorder.feedback([FIRST_FIELD + int(field)])
        recorder.state_key(str(field))
        ended = done or cut
    return recorder.finish(float(reward), StopReason.DONE)


def gradient(group: Group, function: CreditFunction, policy: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64 [S, A]: the mean over the group of sum_t advantage_t grad log pi(move_t | field_t)."""
    gradient_SA = np.zeros_like(policy)
    for trajectory, credit in zip(group.trajectories, function(group), strict=True):
        advantage_T = credit.advantage.total
        for key, span in zip(trajectory.state_keys, trajectory.decisions, strict=False):
            field, move = int(str(key)), int(trajectory.token_ids[span.start]) - 1
            gradient_SA[field] -= advantage_T[span.start] * policy[field]
            gradient_SA[field, move] += advantage_T[span.start]
    return gradient_SA / len(group)


def goal_probability(env: gymnasium.Env[Any, Any], policy: NDArray[np.float64], moves: int) -> float:
    """Return the exact probability that an episode of at most `moves` moves ends at the goal."""
    table: dict[int, dict[int, list[tuple[float, int, float, bool]]]] = env.unwrapped.P  # type: ignore[attr-defined]
    value_S = np.zeros(len(table))
    for _ in range(moves):
        value_S = np.array(
            [
                sum(
                    policy[field, move] * chance * (reward + (0.0 if done else value_S[reached]))
                    for move, ways in table[field].items()
                    for chance, reached, reward, done in ways
                )
                for field in table
            ]
        )
    return float(value_S[0])


def learn(name: str, seed: int, *, slippery: bool, updates: int, size: int, rate: float, moves: int) -> list[float]:
    """Train from an even policy; return the probability of the goal after every tenth of the updates."""
    env = gymnasium.make("FrozenLake-v1", is_slippery=slippery, max_episode_steps=moves)
    rng, function = np.random.default_rng(seed), credit_function(name)
    logits_SA = np.zeros((16, MOVES))
    curve: list[float] = []
    tenths = [updates * tenth // 10 for tenth in range(1, 11)]
    for update in range(updates):
        policy_SA = np.exp(logits_SA) / np.exp(logits_SA).sum(axis=1, keepdims=True)
        group = Group(tuple(walk(env, policy_SA, rng) for _ in range(size)))
        step_SA = gradient(group, function, policy_SA)
        logits_SA += rate * step_SA / max(1e-12, float(np.linalg.norm(step_SA)))
        if update + 1 in tenths:
            policy_SA = np.exp(logits_SA) / np.exp(logits_SA).sum(axis=1, keepdims=True)
            curve.append(goal_probability(env, policy_SA, moves))
    env.close()
    return curve


def main(arguments: list[str] | None = None) -> dict[tuple[bool, str], NDArray[np.float64]]:
    """Print a table; return the curves, float64 [seeds, points], by (slippery, credit function)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--credit", nargs="+", default=["dr_grpo", "rloo", "anchored"], help="credit functions")
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds, from 0 (default: 5)")
    parser.add_argument("--updates", type=int, default=200, help="groups of episodes (default: 200)")
    parser.add_argument("--size", type=int, default=16, help="episodes in a group (default: 16)")
    parser.add_argument("--rate", type=float, default=0.5, help="length of a step of the logits (default: 0.5)")
    parser.add_argument("--moves", type=int, default=50, help="moves an episode may take (default: 50)")
    given = parser.parse_args(arguments)
    for name, least in (("seeds", 1), ("updates", 10), ("size", 1), ("moves", 1)):
        if getattr(given, name) < least:
            parser.error(f"--{name} is {getattr(given, name)}, expected at least {least}")
    found: dict[tuple[bool, str], NDArray[np.float64]] = {}
    tenths = np.arange(1, 11) * given.updates // 10 * given.size
    print("exact probability of the goal: mean ± standard deviation of the seeds")
    print(f"| lake | credit | {' | '.join(f'{tenths[i]} episodes' for i in (1, 4, 9))} |\n|---|---|---|---|---|")
    for slippery in (False, True):
        for name in given.credit:
            curves_NP = np.array(
                [
                    learn(
                        name,
                        seed,
                        slippery=slippery,
                        updates=given.updates,
                        size=given.size,
                        rate=given.rate,
                        moves=given.moves,
                    )
                    for seed in range(given.seeds)
                ]
            )
            found[slippery, name] = curves_NP
            cells = [f"{curves_NP[:, i].mean():.3f} ± {curves_NP[:, i].std():.3f}" for i in (1, 4, 9)]
            print(f"| {'slippery' if slippery else 'dry'} | {name} | {' | '.join(cells)} |", flush=True)
    return found


if __name__ == "__main__":
    main()
