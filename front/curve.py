"""The learning curve of a run: in the terminal, and as a PNG."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from accredit.trainer.ablation import Arm

__all__ = ["Curve", "draw", "draw_arms", "print_curve", "read_curve"]

_BLUE, _ORANGE = "#2166ac", "#b35806"
_ARM_COLORS = ("#2166ac", "#b35806", "#1b7837", "#762a83", "#878787", "#d6604d")


class Curve(NamedTuple):
    """Held-out points (step, success, low, high), and training points (step, mean reward, charges an episode)."""

    held_out: list[tuple[int, float, float, float]]
    training: list[tuple[int, float, float]]


def read_curve(history: Sequence[dict[str, Any]]) -> Curve:
    """Take the curve out of a run's metrics."""
    held_out = [
        (line["step"], line["eval/success"], line["eval/success_low"], line["eval/success_high"])
        for line in history
        if line.get("eval/success") is not None
    ]
    training = [
        (line["step"], line["rollout/reward"], line["rollout/charges"])
        for line in history
        if line.get("rollout/reward") is not None
    ]
    return Curve(sorted(held_out), sorted(training))


def print_curve(curve: Curve, width: int = 40) -> None:
    """Print held-out success by step: a bar a point, the 95 % interval as a lighter end."""
    print("held-out success (bar), 95 % interval (dots)")
    for step, success, low, high in curve.held_out:
        filled, least, most = (round(share * width) for share in (success, low, high))
        cells = ["█" if at < filled else " " for at in range(width)]
        for at in range(least, most):
            cells[at] = "▒" if at < filled else "░"
        print(f"  step {step:4d} |{''.join(cells)}| {success:.3f} [{low:.3f}, {high:.3f}]")


def draw(curve: Curve, path: Path, title: str) -> Path:
    """Draw the curve into `path` (PNG) and return it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    left = figure.add_subplot()
    if curve.training:
        steps, rewards, charges = zip(*curve.training, strict=True)
        left.plot(steps, rewards, color=_BLUE, alpha=0.35, linewidth=1, label="training reward, mean of a step")
        right = left.twinx()
        right.plot(steps, charges, color=_ORANGE, alpha=0.6, linewidth=1, linestyle="--")
        right.set_ylabel("charges an episode (dashed)", color=_ORANGE)
        right.set_ylim(bottom=0)
    if curve.held_out:
        steps, success, low, high = zip(*curve.held_out, strict=True)
        left.fill_between(steps, low, high, color=_BLUE, alpha=0.15, label="95 % interval")
        left.plot(steps, success, color=_BLUE, marker="o", linewidth=2, label="held-out success")
    left.set_xlabel("optimizer steps")
    left.set_ylabel("reward, share of tasks solved")
    rewards = [reward for _, reward, _ in curve.training]
    left.set_ylim(min([0.0, *rewards]), max([1.0, *rewards]))  # rewards may leave [0, 1]
    left.grid(alpha=0.25)
    if left.lines:
        left.legend(loc="lower right", frameon=False)
    left.set_title(title)
    figure.savefig(path)
    return path


def draw_arms(arms: "Sequence[Arm]", path: Path, title: str) -> Path:
    """Draw the held-out curve of every credit function, mean and range of its seeds, into `path` (PNG); return it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for index, arm in enumerate(arms):
        if not len(arm.held_out):
            continue
        color = _ARM_COLORS[index % len(_ARM_COLORS)]
        seeds = f"{len(arm.held_out)} seeds" if len(arm.held_out) > 1 else "one seed"
        axes.fill_between(arm.steps, arm.held_out.min(axis=0), arm.held_out.max(axis=0), color=color, alpha=0.15)
        axes.plot(
            arm.steps, arm.held_out.mean(axis=0), color=color, marker="o", linewidth=2, label=f"{arm.credit}, {seeds}"
        )
    axes.set_xlabel("optimizer steps")
    axes.set_ylabel("held-out success: mean, range of seeds")
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.25)
    if axes.lines:
        axes.legend(loc="best", frameon=False)
    axes.set_title(title)
    figure.savefig(path)
    return path
