"""A training that is killed with SIGKILL and resumed loses nothing and ends with the bits of one left alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "killed_training.py"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("staleness", ["0", "1"])
def test_killed_runs_lose_no_episode_and_end_with_the_same_bits(staleness):
    """Six kills, three of them at places by name; `benchmarks/killed_training.py` does twenty."""
    words = [sys.executable, str(SCRIPT), "--kills", "6", "--steps", "3", "--max-staleness", staleness]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=900, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "lost 0, lived twice 0" in done.stdout
    assert "weights the same, metrics the same, traces the same" in done.stdout
