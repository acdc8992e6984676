"""What a run shows while it goes: a live bar on a terminal, one plain line a step anywhere else."""

import math
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from accredit.trainer.config import SFTConfig, TrainConfig
    from accredit.trainer.evaluation import Evaluation
    from accredit.trainer.run import RunDirectory

__all__ = ["EpisodeBar", "RunProgress"]


class RunProgress:
    """Hears of a run (`accredit.trainer.loop.Listener`) and prints what it hears. Use it in a `with` block."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._live = sys.stdout.isatty()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._live,
            transient=True,
        )
        self._steps: TaskID | None = None
        self._episodes: TaskID | None = None
        self._started = time.monotonic()
        self._resumable: str | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if kind is KeyboardInterrupt and self._resumable is not None:
            print(f"interrupted; go on with: accredit {self._resumable} --resume", file=sys.stderr)

    def started(self, run: "RunDirectory", config: "TrainConfig | SFTConfig", first_step: int) -> None:
        """Say what begins."""
        self._resumable = f"{run.command} {run.path}"
        goes = f"goes on after step {first_step}" if first_step else "begins"
        self._say(f"{run.path}: {goes} ({config.steps} steps on {config.env}, model {config.model.path})")
        self._steps = self._bar.add_task("steps", total=config.steps, completed=first_step)
        self._episodes = self._bar.add_task("episodes", total=None)

    def lived(self, done: int, of: int) -> None:
        """Move the bar of episodes."""
        if self._episodes is not None:
            self._bar.update(self._episodes, completed=done, total=of)

    def stepped(self, step: int, metrics: dict[str, Any]) -> None:
        """Print one line for a step."""
        if self._steps is not None:
            self._bar.update(self._steps, completed=step)
        if "loss/nll_nats" in metrics:
            self._say(
                f"step {step:4d}  loss {metrics['loss/nll_nats']:.4f} nats a token  {metrics['time/step_s']:.1f} s"
            )
            return
        norm = metrics["optimizer/grad_norm"]
        grad = "none" if norm is None or math.isnan(norm) else f"{norm:.2f}"  # nothing was to be learned
        self._say(
            f"step {step:4d}  reward {metrics['rollout/reward']:.3f}  charges {metrics['rollout/charges']:.2f}  "
            f"turns {metrics['rollout/turns']:.1f}  credit spread {metrics['credit/spread']:.3f}  "
            f"entropy {metrics['policy/entropy_nats']:.3f}  grad {grad}  "
            f"{metrics['time/step_s']:.1f} s (rollout {metrics['time/rollout_s']:.1f})"
        )

    def evaluated(self, step: int, evaluation: "Evaluation") -> None:
        """Print a held-out evaluation."""
        self._say(f"step {step:4d}  held out: {evaluation.line()}  [{time.monotonic() - self._started:.0f} s]")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False)


class EpisodeBar:
    """A bar of episodes for an evaluation, on a terminal only, beside what is printed. Use it in a `with` block."""

    def __init__(self, env: str, of: int) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._episodes = self._bar.add_task(env, total=of)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def lived(self, _: object) -> None:
        """Move the bar by one episode."""
        self._bar.advance(self._episodes)
