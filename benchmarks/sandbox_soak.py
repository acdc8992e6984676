"""Many mixed runs in a sandbox, and what they leave behind: descriptors, mounts, groups, processes, files, memory.

    python benchmarks/sandbox_soak.py --runs 10000 --backend embedded
    python benchmarks/sandbox_soak.py --hostile --backend docker

The second form runs the whole list of hostile programs instead. Exit code 1 if anything is left, a run ends as it
should not, or a program comes through. Best on a machine that runs no other sandboxes.
"""

import argparse
import sys
import time

from accredit.sandboxes import Sandbox
from accredit.sandboxes.select import BACKENDS, load
from accredit.sandboxes.selfcheck import HOSTILE, check
from accredit.sandboxes.selfcheck.soak import Counts, soak


def main() -> int:
    """Do what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--backend", default="embedded", help=f"one of {', '.join(BACKENDS)}, or a pool's address")
    parser.add_argument("--beside", type=int, default=4, help="runs at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hostile", action="store_true", help="run the hostile programs instead")
    options = parser.parse_args()
    sandbox = load(options.backend)
    return attack(sandbox, options.beside) if options.hostile else endure(sandbox, options)


def endure(sandbox: Sandbox, options: argparse.Namespace) -> int:
    """Soak, and print the counts as a table."""
    began = time.monotonic()
    print(f"{'runs':>8} {'s':>8} " + " ".join(f"{name:>11}" for name in Counts._fields), flush=True)

    def tell(done: int, counts: Counts) -> None:
        values = " ".join(f"{value:>11.1f}" if isinstance(value, float) else f"{value:>11}" for value in counts)
        print(f"{done:>8} {time.monotonic() - began:>8.1f} {values}", flush=True)

    result = soak(sandbox, options.runs, seed=options.seed, beside=options.beside, tell=tell)
    print()
    for (kind, status), times in sorted(result.ended.items()):
        print(f"{kind:>20} {status:<15} {times}")
    for problem in (*result.growth, *result.problems[:20]):
        print(f"! {problem}")
    print(f"{len(result.growth)} things grew, {len(result.problems)} runs ended as they should not")
    return 1 if result.growth or result.problems else 0


def attack(sandbox: Sandbox, beside: int) -> int:
    """Run the hostile programs, and print how each ended."""
    report = check(sandbox, HOSTILE, beside=beside)
    print(report.isolation.describe())
    for finding in report.findings:
        print(f"{'!' if finding.problems else ' '} {finding.program:<50} {', '.join(finding.statuses)}")
    for problem in report.problems:
        print(f"! {problem}")
    refused = f", {len(report.refused)} refused ({', '.join(report.refused)})" if report.refused else ""
    print(f"{len(report.findings)} programs, {len(report.problems)} problems{refused}")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
