"""Signal-to-noise of one group's gradient on Chain: group-mean baseline, anchored credit, exact V, optimal baseline.

Prices the same rollouts with the credit functions of this repository. Exits 1 when anchored credit misses its floor:
1.7 times the group baseline at 20 turns, 10 relevant, groups of 8; 4 times at 20 turns, 5 relevant, groups of 16; and a
cosine of 0.98 with the exact gradient in every row.
"""

import argparse
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from accredit.credit.exact import ChainProcess, Signal, exact_function, measure_signal
from accredit.credit.functions import credit_function

ROWS = (  # process, group size, least ratio of anchored to the group baseline
    (ChainProcess(turns=8, relevant=4, p=0.8, luck=0.03), 8, None),
    (ChainProcess(turns=20, relevant=10, p=0.9, luck=0.02), 8, 1.7),
    (ChainProcess(turns=20, relevant=5, p=0.8, luck=0.02), 16, 4.0),
    (ChainProcess(turns=40, relevant=10, p=0.9, luck=0.01), 8, None),
    (ChainProcess(turns=6, relevant=6, p=0.65, luck=0.0), 8, None),  # every decision must be right: V is no help
    (ChainProcess(turns=6, relevant=6, p=0.8, luck=0.0), 8, None),
    (ChainProcess(turns=6, relevant=6, p=0.9, luck=0.0), 8, None),
)
LEAST_COSINE = 0.98
GROUP, ANCHORED, EXACT, OPTIMAL = "group mean", "anchored", "exact V", "anchored, optimal baseline"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--groups", type=int, default=400, help="groups a repeat")
    parser.add_argument(
        "--repeats", type=int, default=3, help="independent repeats; figures are mean and spread of them"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the first repeat")
    parser.add_argument("--kappa", type=float, default=1.0, help="anchored: visits that the previous value counts for")
    parser.add_argument("--lam", type=float, default=0.0, help="anchored: lambda, 0 is pure Doob")
    given = parser.parse_args(arguments)
    print(
        f"|mean g|^2 / sum var g: {given.repeats} repeats of {given.groups} groups, seeds from {given.seed}, ", end=""
    )
    print(f"kappa {given.kappa:g}, lambda {given.lam:g}")
    print(
        "| turns (relevant) p | group | group mean | anchored | exact V | anchored, optimal baseline "
        "| anchored / group mean | optimal / group mean | cosine of anchored | of optimal |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    missed = []
    for process, size, least_ratio in ROWS:
        functions = {
            GROUP: credit_function("dr_grpo"),
            ANCHORED: credit_function("anchored", kappa=given.kappa, lam=given.lam),
            EXACT: exact_function(process),
            OPTIMAL: credit_function("anchored", kappa=given.kappa, lam=given.lam, baseline="optimal"),
        }
        seeds = range(given.seed, given.seed + given.repeats)
        measured = [measure_signal(process, functions, size, given.groups, np.random.default_rng(s)) for s in seeds]
        ratio = _mean(measured, ANCHORED) / _mean(measured, GROUP)
        cosine = float(np.mean([one[ANCHORED].cosine for one in measured]))
        optimal = _mean(measured, OPTIMAL) / _mean(measured, GROUP)
        bent = float(np.mean([one[OPTIMAL].cosine for one in measured]))
        name = f"{process.turns} ({process.relevant}) {process.p}"
        figures = [f"{ratio:.2f}", f"{optimal:.2f}", f"{cosine:.4f}", f"{bent:.4f}"]
        cells = [name, str(size), *(_cell(measured, column) for column in functions), *figures]
        print(f"| {' | '.join(cells)} |", flush=True)
        if least_ratio is not None and ratio < least_ratio:
            missed.append(f"{name}, groups of {size}: ratio {ratio:.2f}, expected at least {least_ratio}")
        if cosine < LEAST_COSINE:
            missed.append(f"{name}, groups of {size}: cosine {cosine:.4f}, expected at least {LEAST_COSINE}")
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0


def _mean(measured: list[dict[str, Signal]], name: str) -> float:
    return float(np.mean([one[name].signal_to_noise for one in measured]))


def _cell(measured: list[dict[str, Signal]], name: str) -> str:
    spread = float(np.std([one[name].signal_to_noise for one in measured], ddof=1)) if len(measured) > 1 else 0.0
    return f"{_mean(measured, name):.3f} ± {spread:.3f}"


if __name__ == "__main__":
    sys.exit(main())
