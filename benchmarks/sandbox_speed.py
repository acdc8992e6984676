"""Times every sandbox that works here beside what one would do without it: `docker exec`, `bwrap` and `python -c`.

All run `print(1)` and have to print it. They take turns, round after round, so that a busy machine slows all alike:
then the figures are worth little and the ratios still something. Printed are medians; `n` says of how many.
  open       a session until it can take its first run; for `docker exec`, a warm container
  run        the second and later runs of a burst, one right after the other
  paused     the first run of a burst: the session has had time to make the next processes ready
  runs/s     that many sessions at once, each with runs one right after the other
  cell       `print(1)` in the live interpreter of the session, where it has one
  x          of our backends, how many times as fast as the peer, by `run` and by `runs/s`. The peer `docker exec` is
             the faster of command line and SDK, in the same runtime
The peers start Python with `-I -S`, its fastest start, and `docker exec` in the same container as the session's. An
engine started by `.ci/docker-engine` gives its containers more than a fair share of a busy machine.

Targets, on two quiet cores: embedded below 5 ms a run and 250 runs/s or more; a container's session 5 times as fast as
`docker exec` by either measure. `--strict` exits 1 where one is missed or could not be measured.
"""

import argparse
import functools
import itertools
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from accredit.sandboxes import AccreditError, Limits, Outcome, SandboxError
from accredit.sandboxes.embedded.launch import interpreter
from accredit.sandboxes.embedded.namespaces import interpreter_paths
from accredit.sandboxes.select import BACKENDS, load

PROGRAM, PRINTED = "print(1)", b"1\n"
PYTHON = ("-I", "-S", "-c", PROGRAM)
RUN_MS, RATE, TIMES_EXEC = 5.0, 250.0, 5.0
PATIENCE_S = 120.0
WITHOUT_CELLS = ("gvisor",)
_turns = itertools.count()


class Runner(NamedTuple):
    """What a contender opens. A run, or a cell, is the whole way from the program to its output, checked."""

    run: Callable[[], None]
    close: Callable[[], None]
    cell: Callable[[], None] | None = None


class Contender(NamedTuple):
    """A row of the table. `container` names the runtime that its `docker exec` peers have, too."""

    name: str
    open: Callable[[], Runner]
    container: str | None = None
    peer: bool = False


@dataclass
class Times:
    """What was measured of one contender: milliseconds, and runs a second."""

    open: list[float] = field(default_factory=list)
    run: list[float] = field(default_factory=list)
    paused: list[float] = field(default_factory=list)
    cell: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="turns that each contender gets, alone (20)")
    parser.add_argument("--burst", type=int, default=5, help="runs a turn, and as many cells (5)")
    parser.add_argument("--sessions", type=int, default=8, help="sessions at once (8)")
    parser.add_argument("--parallel-rounds", type=int, default=5, help="turns that each contender gets, at once (5)")
    parser.add_argument("--parallel-runs", type=int, default=10, help="runs of each session in such a turn (10)")
    parser.add_argument("--only", nargs="*", default=[], help="names of contenders; all by default")
    parser.add_argument("--strict", action="store_true", help="exit 1 where a target is missed")
    given = parser.parse_args(arguments)
    load_before = os.getloadavg()[0]
    with ExitStack() as stack:
        opened, times = open_all(given.only, given.sessions, stack)
        for _ in range(given.rounds):
            for name, runners in opened.items():
                one_turn(runners[0], given.burst, times[name])
        for _ in range(given.parallel_rounds):
            for name, runners in opened.items():
                times[name].rate.append(rate_of(runners, given.parallel_runs))
    contenders = {contender.name: contender for contender in every_contender() if contender.name in times}
    print(
        f"{os.cpu_count()} cores, load average {load_before:.1f} before and {os.getloadavg()[0]:.1f} after; medians: "
        f"open n={given.sessions}, run n={given.rounds * (given.burst - 1)}, paused n={given.rounds}, "
        f"cell n={given.rounds * given.burst}, runs/s n={given.parallel_rounds} of "
        f"{given.sessions * given.parallel_runs} runs"
    )
    print_table(contenders, times, given.sessions)
    misses = list(missed(contenders, times))
    for miss in misses:
        print(f"missed: {miss}")
    return int(given.strict and bool(misses))


def every_contender() -> Iterator[Contender]:
    """Yield our backends and their peers, whether or not they work here."""
    for name in BACKENDS:
        container = {"docker": "runc", "gvisor": "runsc"}.get(name)
        yield Contender(name, lambda name=name: session_of(name), container)
    for runtime in ("runc", "runsc"):
        yield Contender(f"docker exec, CLI, {runtime}", lambda r=runtime: exec_by_cli(r), runtime, peer=True)
        yield Contender(f"docker exec, SDK, {runtime}", lambda r=runtime: exec_by_sdk(r), runtime, peer=True)
    yield Contender("bwrap python -c", by_bubblewrap, peer=True)
    yield Contender("python -c", lambda: peer(lambda: output_of([interpreter(), *PYTHON])), peer=True)


def open_all(only: Sequence[str], sessions: int, stack: ExitStack) -> tuple[dict[str, list[Runner]], dict[str, Times]]:
    """Open the sessions of all contenders, in turns; say which ones do not work here."""
    todo = [contender for contender in every_contender() if not only or contender.name in only]
    opened: dict[str, list[Runner]] = {}
    for contender in todo:
        try:
            runner = contender.open()  # makes the image, and compiles what is compiled once
        except (AccreditError, OSError, ImportError) as error:
            print(f"left out: {contender.name}: {error}", file=sys.stderr)
            continue
        try:
            runner.run()
        finally:
            runner.close()
        opened[contender.name] = []
    times = {name: Times() for name in opened}
    for _ in range(sessions):
        for contender in todo:
            if contender.name in opened:
                begin = time.perf_counter()
                runner = contender.open()
                times[contender.name].open.append(1000 * (time.perf_counter() - begin))
                stack.callback(runner.close)
                runner.run()
                opened[contender.name].append(runner)
    for runners in opened.values():
        if (cell := runners[0].cell) is not None:
            cell()  # starts the live interpreter
            runners[0].run()
    return opened, times


def one_turn(runner: Runner, burst: int, times: Times) -> None:
    for number in range(burst):
        (times.run if number else times.paused).append(milliseconds(runner.run))
    if runner.cell is not None:
        times.cell += [milliseconds(runner.cell) for _ in range(burst)]


def milliseconds(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - begin)


def rate_of(runners: Sequence[Runner], runs: int) -> float:
    """Return runs a second of all sessions together."""
    failures: list[BaseException] = []
    start = threading.Barrier(len(runners) + 1)

    def work(runner: Runner) -> None:
        start.wait(PATIENCE_S)
        try:
            for _ in range(runs):
                runner.run()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(runner,)) for runner in runners]
    for thread in threads:
        thread.start()
    start.wait(PATIENCE_S)
    begin = time.perf_counter()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return len(runners) * runs / (time.perf_counter() - begin)


def print_table(contenders: Mapping[str, Contender], times: Mapping[str, Times], sessions: int) -> None:
    peers = ("docker exec", "bwrap python -c", "python -c")
    titles = ["sandbox", "open ms", "run ms", "paused ms", f"runs/s, {sessions} at once", "cell ms"]
    titles += [f"x `{peer}`" for peer in peers]
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for name, contender in contenders.items():
        own = times[name]
        cells = [
            name,
            shown(own.open) if contender.container or not contender.peer else "",
            shown(own.run),
            shown(own.paused),
        ]
        cells += [f"{median(own.rate):,.0f}", shown(own.cell)]
        for peer in peers:
            rival = exec_peer(contender, contenders, times) if peer == "docker exec" else times.get(peer)
            by_run, by_rate = ("", "") if rival is None or contender.peer else faster(own, rival)
            cells.append(f"{by_run:.1f}, {by_rate:.1f}" if isinstance(by_run, float) else "")
        print(f"| {' | '.join(cells)} |")


def exec_peer(contender: Contender, contenders: Mapping[str, Contender], times: Mapping[str, Times]) -> Times | None:
    """Return the best figures of `docker exec`: in this container's runtime, for what is no container in runc."""
    runtime = contender.container or "runc"
    found = [times[other.name] for other in contenders.values() if other.peer and other.container == runtime]
    if not found:
        return None
    return Times(run=min((each.run for each in found), key=median), rate=max((each.rate for each in found), key=median))


def faster(own: Times, rival: Times) -> tuple[float, float]:
    """Return how many times as fast, by run and by rate."""
    return median(rival.run) / median(own.run), median(own.rate) / median(rival.rate)


def missed(contenders: Mapping[str, Contender], times: Mapping[str, Times]) -> Iterator[str]:
    if "embedded" not in times:
        yield "embedded was not measured"
    else:
        run_ms, rate = median(times["embedded"].run), median(times["embedded"].rate)
        if run_ms >= RUN_MS:
            yield f"embedded took {run_ms:.1f} ms a run, expected less than {RUN_MS:g}"
        if rate < RATE:
            yield f"embedded made {rate:.0f} runs/s, expected {RATE:g} or more"
    docker = contenders.get("docker")
    rival = None if docker is None else exec_peer(docker, contenders, times)
    if docker is None or rival is None:
        yield "docker and `docker exec` were not both measured"
        return
    for measure, ratio in zip(("run", "runs/s"), faster(times["docker"], rival), strict=True):
        if ratio < TIMES_EXEC:
            yield f"docker was {ratio:.1f} times as fast as `docker exec` by {measure}, expected {TIMES_EXEC:g} or more"


def median(found: Sequence[float]) -> float:
    return statistics.median(found) if found else 0.0


def shown(found: Sequence[float]) -> str:
    value = median(found)
    return "" if not found else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def expect_ok(outcome: Outcome) -> None:
    if not outcome.ok or outcome.stdout != PRINTED:
        raise SandboxError(f"expected {PRINTED!r}, actually {outcome.status} {outcome.stdout!r} {outcome.evidence}")


def session_of(name: str) -> Runner:
    session = load(name).open_blocking(Limits())

    def run() -> None:
        expect_ok(session.run(PROGRAM))

    def cell() -> None:
        expect_ok(session.run_cell(PROGRAM))

    return Runner(run, session.close, None if name in WITHOUT_CELLS else cell)


def peer(work: Callable[[], bytes], close: Callable[[], None] = lambda: None) -> Runner:
    """Return a runner for what returns its output."""

    def run() -> None:
        if (printed := work()) != PRINTED:
            raise SandboxError(f"expected {PRINTED!r}, actually {printed[-300:]!r}")

    return Runner(run, close)


def output_of(command: Sequence[str], environment: Mapping[str, str] | None = None) -> bytes:
    """Run a command as everyone does; return what it printed, with its complaints where it failed."""
    found = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, env=environment, check=False)
    return found.stdout if found.returncode == 0 else found.stdout + found.stderr


def by_bubblewrap() -> Runner:
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxError("bubblewrap is not installed")
    walls = [program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    for path in ("/usr", "/bin", "/sbin", "/lib", "/lib64"):
        walls += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind-try", path, path]
    for path in interpreter_paths():
        walls += ["--ro-bind", path, path]
    walls += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--", interpreter(), *PYTHON]
    return peer(lambda: output_of(walls, {}))


def exec_by_cli(runtime: str) -> Runner:
    program = shutil.which("docker")
    if program is None:
        raise SandboxError("the command docker is not installed")
    host, container, close = warm_container(runtime)
    return peer(lambda: output_of([program, "-H", host, "exec", container, "python3", *PYTHON]), close)


def exec_by_sdk(runtime: str) -> Runner:
    _, container, close = warm_container(runtime)
    api = engine().api

    def work() -> bytes:
        begun = api.exec_create(container, ["python3", *PYTHON])["Id"]
        printed = api.exec_start(begun)
        code = api.exec_inspect(begun)["ExitCode"]
        return printed if code == 0 else b"exit code %d: %s" % (code, printed)

    return peer(work, close)


@functools.cache
def engine() -> Any:
    from accredit.sandboxes.docker.engine import Engine

    return Engine()


def warm_container(runtime: str) -> tuple[str, str, Callable[[], None]]:
    """Start a container like a session's that only waits; return the engine's address, its id and its end."""
    from accredit.sandboxes.docker import owner
    from accredit.sandboxes.docker.engine import ContainerSpec

    found = engine()
    if runtime not in (known := found.runtimes()):
        raise SandboxError(f"expected the engine to have the runtime {runtime}, actually it has {', '.join(known)}")
    limits = Limits()
    spec = ContainerSpec(
        image=found.own_image(),
        command=("sleep", "infinity"),
        environment={"PATH": "/usr/bin:/bin"},
        labels=owner.labels("", 0, f"exec-{os.getpid()}-{next(_turns)}"),
        runtime=runtime,
        memory_mb=4 * limits.memory_mb,
        pids=4096,
        tmpfs_mb=limits.disk_mb,
    )
    container = found.create(spec)
    found.start(container)
    return found.host, container, lambda: found.remove(container)


if __name__ == "__main__":
    sys.exit(main())
