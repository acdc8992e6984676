"""Time of `import accredit...` in a fresh interpreter, beside the packages that it stands on.

Prints medians of user plus system CPU seconds, which a busy machine moves less than the clock, the clock's too, and the
ratio of the CPU seconds to those of the bare dependencies, measured in turn. Exits 1 when `accredit.envs` takes 0.3 CPU
seconds or more.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

ROWS = (
    ("numpy", "import numpy"),
    ("gymnasium, numpy, pydantic", "import gymnasium, numpy, pydantic"),
    ("accredit", "import accredit"),
    ("accredit.credit", "import accredit.credit"),
    ("accredit.envs", "import accredit.envs"),
)
PEER, MEASURED, LIMIT_S = "gymnasium, numpy, pydantic", "accredit.envs", 0.3


class Taken(NamedTuple):
    """Seconds of one interpreter: on the processor, and by the clock."""

    cpu_s: float
    clock_s: float


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--repeats", type=int, default=11, help="fresh interpreters a row, rows in turn")
    repeats = parser.parse_args(arguments).repeats
    taken: dict[str, list[Taken]] = {name: [] for name, _ in ROWS}
    bare = [_run("pass") for _ in range(repeats)]
    for _ in range(repeats):
        for name, code in ROWS:
            taken[name].append(_run(code))
    start = _median(bare)
    medians = {name: _median(runs) for name, runs in taken.items()}
    cpu_s = {name: median.cpu_s - start.cpu_s for name, median in medians.items()}
    print(f"medians of {repeats}, less the interpreter's own {start.cpu_s:.3f} CPU s and {start.clock_s:.3f} s")
    print(f"| import | CPU s | s | ratio to {PEER} |\n|---|---|---|---|")
    for name, median in medians.items():
        print(
            f"| {name} | {cpu_s[name]:.3f} | {median.clock_s - start.clock_s:.3f} | {cpu_s[name] / cpu_s[PEER]:.2f} |"
        )
    if cpu_s[MEASURED] >= LIMIT_S:
        print(f"missed: {MEASURED} took {cpu_s[MEASURED]:.3f} CPU s, expected less than {LIMIT_S}")
        return 1
    return 0


def _run(code: str) -> Taken:
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Taken(cpu_s, time.perf_counter() - started)


def _median(runs: list[Taken]) -> Taken:
    return Taken(statistics.median(run.cpu_s for run in runs), statistics.median(run.clock_s for run in runs))


if __name__ == "__main__":
    sys.exit(main())
