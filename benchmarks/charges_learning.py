"""What charges teach: failing calls an episode with and without them, at equal budget, same seeds, held-out tasks.

Trains one configuration twice for every seed, with `credit.charge_scale` as it is there and with 0, all else equal, and
prints held-out failing calls and success of both at every evaluation. Runs are ordinary run directories, and what is
finished there is not lived again. Exits 1 when the charged runs do not make fewer failing calls over the whole curve,
by the mean over seeds.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from accredit.progress import RunProgress
from accredit.trainer.ablation import mean_interval, run_arms
from accredit.trainer.config import TrainConfig
from accredit.trainer.config_file import load_config
from accredit.trainer.run import RunDirectory

ARMS = ("charged", "not charged")
METRICS = {"eval/charges": "failing calls an episode, held out", "eval/success": "success, held out"}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument(
        "config", type=Path, nargs="?", default=Path("benchmarks/charges_python.yaml"), help="as for accredit train"
    )
    parser.add_argument("overrides", nargs="*", help="settings over the file's, such as steps=20")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each, from the configuration's seed upward")
    parser.add_argument("--arm", choices=ARMS, help="train this one only, without a table; for two at once")
    parser.add_argument("--plot", type=Path, help="write the curves here")
    given = parser.parse_args(arguments)
    config = load_config(TrainConfig, given.config, given.overrides)
    if not config.credit.charge_scale:
        parser.error("credit.charge_scale is 0: expected the charge whose effect is to be seen")
    runs: dict[str, list[RunDirectory]] = {}
    for arm in ARMS if given.arm is None else (given.arm,):
        scale = config.credit.charge_scale if arm == "charged" else 0.0
        credit = config.credit.model_copy(update={"charge_scale": scale})
        ours = config.model_copy(update={"credit": credit, "name": f"{config.name}-{arm.replace(' ', '-')}"})
        (found,) = run_arms(ours, [config.credit.function], given.seeds, RunProgress)
        for seed, why in found.failures.items():
            print(f"{arm}, seed {seed}: {why}")
        runs[arm] = [RunDirectory(path) for path in found.runs]
    if given.arm is not None:
        return 0
    curves = {metric: {arm: _curves(runs[arm], metric) for arm in ARMS} for metric in METRICS}
    _print(curves, config)
    if given.plot:
        _plot(curves, given.plot)
    failing = curves["eval/charges"]
    saved = failing["not charged"][1][:, 1:].mean(axis=1) - failing["charged"][1][:, 1:].mean(axis=1)
    mean, low, high = mean_interval(saved)
    print(f"failing calls saved an episode, mean of the curve after the start: {mean:.3f} [{low:.3f}, {high:.3f}]")
    return 0 if mean > 0 else 1


def _curves(runs: list[RunDirectory], metric: str) -> tuple[list[int], NDArray[np.float64]]:
    """Return the steps of the evaluations and float64 [S, points]."""
    by_run = [{line["step"]: line[metric] for line in run.history() if metric in line} for run in runs]
    steps = sorted(set.intersection(*map(set, by_run)))
    return steps, np.array([[one[step] for step in steps] for one in by_run], dtype=np.float64)


def _print(curves: dict[str, dict[str, tuple[list[int], NDArray[np.float64]]]], config: TrainConfig) -> None:
    steps = curves["eval/charges"]["charged"][0]
    print(f"{config.env} {config.env_options}, {config.rollout.groups * config.rollout.group_size} episodes a step")
    print(f"| | {' | '.join(f'step {step}' for step in steps)} |\n|---|{'---|' * len(steps)}")
    for metric, words in METRICS.items():
        for arm in ARMS:
            values = curves[metric][arm][1]
            spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
            cells = [f"{mean:.3f} ± {each:.3f}" for mean, each in zip(values.mean(axis=0), spread, strict=True)]
            print(f"| {words}, {arm} | {' | '.join(cells)} |")


def _plot(curves: dict[str, dict[str, tuple[list[int], NDArray[np.float64]]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.8), constrained_layout=True)
    for axis, (metric, words) in zip(axes, METRICS.items(), strict=True):
        for arm, colour in zip(ARMS, ("#0072b2", "#d55e00"), strict=True):
            steps, values = curves[metric][arm]
            axis.plot(steps, values.mean(axis=0), color=colour, marker="o", label=arm)
            axis.fill_between(steps, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15)
        axis.set(title=words, xlabel="optimizer steps")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(path, dpi=110)
    print(f"curves: {path}")


if __name__ == "__main__":
    sys.exit(main())
