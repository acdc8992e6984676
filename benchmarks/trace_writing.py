"""What storing every episode costs: seconds a training step beside the step's own, and bytes a token.

It trains the quickstart's recipe for a few steps, as `accredit train` does, and reads `time/traces_s` and `time/step_s`
from the run's metrics. With `--run` it reads a run that is there instead. The bytes are those of the files on disk
(token columns, records, index). On a busy machine both times stretch; the share is of the two in one step.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from accredit.credit.traces import TraceWriter, open_run
from accredit.trainer.metrics import read_metrics


def train_briefly(folder: Path, steps: int) -> Path:
    from accredit.commands.quickstart import CONFIG
    from accredit.progress import RunProgress
    from accredit.trainer.config import TrainConfig
    from accredit.trainer.config_file import load_config
    from accredit.trainer.loop import train

    overrides = [f"steps={steps}", f"runs_dir={folder}", "name=traces", "evaluation.episodes=8"]
    with RunProgress() as progress:
        return train(load_config(TrainConfig, CONFIG, overrides), progress).run.path


def spread(values: Sequence[float], unit: str = "") -> str:
    return f"{statistics.median(values):8.3f}{unit} [{min(values):.3f}, {max(values):.3f}]"


def report(run: Path) -> None:
    lines = [line for line in read_metrics(run / "metrics.jsonl") if "time/traces_s" in line]
    shares = [100 * line["time/traces_s"] / line["time/step_s"] for line in lines]
    tokens = sum(row.tokens for row in open_run(run).index())
    episodes = len(open_run(run).index())
    print(f"{run}: {len(lines)} steps, {episodes} episodes, {tokens} tokens; medians [least, most]")
    print(f"step          {spread([line['time/step_s'] for line in lines], ' s')}")
    print(f"traces        {spread([line['time/traces_s'] for line in lines], ' s')}")
    print(f"share of step {spread(shares, ' %')}")
    print(f"traces, CPU   {spread(written_again(run), ' s')}")
    for kind, pattern in (
        ("token columns", "tokens-*.parquet"),
        ("records", "episodes.jsonl"),
        ("index", "index.jsonl"),
    ):
        size = sum(path.stat().st_size for path in (run / "traces").glob(pattern))
        print(f"{kind:13} {size / tokens:8.2f} bytes a token ({size / 1e6:.2f} MB)")


def written_again(run: Path) -> list[float]:
    """Write every step of the run again and return its processor time in seconds: it does not stretch with the load."""
    reader, found = open_run(run), []
    with tempfile.TemporaryDirectory() as folder:
        writer = TraceWriter(folder)
        for step in sorted({row.step for row in reader.index() if row.split == "train"}):
            episodes = list(reader.episodes(step=step, split="train"))
            started = time.process_time()
            writer.write_stored(step, episodes)
            found.append(time.process_time() - started)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--run", type=Path, help="a run that is there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report(options.run or train_briefly(Path(folder), options.steps))


if __name__ == "__main__":
    main()
