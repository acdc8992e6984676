"""Chooses a backend: tries each on this machine and takes the strongest that really works.

It fails closed. A sandbox below the floor (level 3: own namespaces and a filter on system calls) is only given to a
caller who says `allow_weaker=True`. Nothing is concluded from configuration: each backend opens a session, shows its
layers and runs a canary.

A run says once which backend it wants: `use("docker")`, or the environment variables `ACCREDIT_SANDBOX` and
`ACCREDIT_SANDBOX_ALLOW_WEAKER`, which `use` sets, so that processes started from here agree.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import NamedTuple, cast

from .errors import SandboxError
from .protocol import IsolationReport, Level, Limits, Sandbox
from .verdict import Status

__all__ = [
    "BACKENDS",
    "ENOUGH",
    "FLOOR",
    "NAME_VARIABLE",
    "WEAKER_VARIABLE",
    "Backend",
    "Choice",
    "check_name",
    "choose",
    "default_names",
    "load",
    "probe",
    "select",
    "use",
]

FLOOR = Level.L3
"""The weakest level that is used without being asked for."""

ENOUGH = Level.L4
"""The level at which the search for the default ends: what needs no daemon gets no stronger."""

NAME_VARIABLE = "ACCREDIT_SANDBOX"
"""Environment variable that names the backend of a run: one of `BACKENDS`, or a pool's address."""

WEAKER_VARIABLE = "ACCREDIT_SANDBOX_ALLOW_WEAKER"
"""Environment variable that accepts a sandbox below the floor: "1" or "0"."""

_log = logging.getLogger(__name__)
_lock = threading.RLock()
_sandboxes: dict[str, Sandbox] = {}
_reports: dict[int, tuple[Sandbox, IsolationReport]] = {}  # holds the sandbox, so that its identity stays its own
_chosen: dict[tuple[str, ...], Sandbox] = {}
_logged: set[str] = set()


class Backend(NamedTuple):
    """A backend by its name: where its class is, with which options, and what it takes to have it."""

    name: str
    module: str
    sandbox: str
    advice: str
    options: Mapping[str, str] = {}


class Choice(NamedTuple):
    """A sandbox and what it isolates."""

    sandbox: Sandbox
    report: IsolationReport


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend(
            "embedded", ".embedded.session", "EmbeddedSandbox", "needs Linux, and namespaces for its full strength"
        ),
        Backend("bubblewrap", ".bwrap", "BubblewrapSandbox", "apt-get install bubblewrap"),
        Backend("docker", ".docker", "DockerSandbox", "pip install 'accredit[docker]', and start a Docker engine"),
        Backend(
            "gvisor",
            ".docker",
            "DockerSandbox",
            "pip install 'accredit[docker]', and give a Docker engine the runtime runsc",
            {"runtime": "runsc"},
        ),
        Backend("subprocess", ".plain", "SubprocessSandbox", "needs Linux; only for code that you trust"),
        Backend("monty", ".monty", "MontySandbox", "pip install 'accredit[monty]'; a small part of Python"),
    )
}
"""Every backend that has a name."""


def use(name: str | None = None, allow_weaker: bool = False) -> None:
    """Set the backend of this process, and of those it starts, for every `select()` that names none.

    No name goes back to the strongest that works. Nothing is started here; an unknown name is refused.
    """
    if name is not None:
        check_name(name)
    for variable, value in ((NAME_VARIABLE, name), (WEAKER_VARIABLE, "1" if allow_weaker else None)):
        if value is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = value


def select(name: str | None = None, allow_weaker: bool | None = None) -> Sandbox:
    """Return a sandbox that works here; raise `SandboxError` that names each backend tried and why.

    `name` is one of `BACKENDS` or the `http://` address of a pool. Without one it is what `use` or the environment
    says, else the strongest that needs no daemon (off Linux: Docker). `allow_weaker=None` is as the environment says.
    """
    name = name or os.environ.get(NAME_VARIABLE) or None
    weaker = _weaker_by_environment() if allow_weaker is None else allow_weaker
    if name is not None:
        check_name(name)
    names = default_names() if name is None else (name,)
    key = (*names, str(weaker))
    with _lock:
        if key not in _chosen:
            _chosen[key] = choose([lambda name=name: load(name) for name in names], weaker).sandbox
        return _chosen[key]


def check_name(name: str) -> None:
    """Raise `SandboxError`, with the nearest match, if this is neither a backend's name nor the address of a pool."""
    if name not in BACKENDS and not _is_address(name):
        near = get_close_matches(name, BACKENDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise SandboxError(f"unknown sandbox {name!r}: expected {', '.join(BACKENDS)} or the http:// of a pool{hint}")


def default_names() -> tuple[str, ...]:
    """Return the backends that are tried without a name, in this order."""
    return ("embedded", "bubblewrap") if sys.platform == "linux" else ("docker",)


def load(name: str) -> Sandbox:
    """Return the backend of a name, untried; raise `SandboxError` if it is unknown or cannot be imported."""
    with _lock:
        if name not in _sandboxes:
            _sandboxes[name] = _load(name)
        return _sandboxes[name]


def choose(candidates: Sequence[Sandbox | Callable[[], Sandbox]], allow_weaker: bool = False) -> Choice:
    """Probe the candidates, or what makes them, in order, until one is strong enough; return the strongest."""
    refusals: list[str] = []
    working: list[Choice] = []
    for candidate in candidates:
        try:
            sandbox = candidate() if callable(candidate) else candidate
            working.append(Choice(sandbox, probe(sandbox)))
        except SandboxError as error:
            refusals.append(str(error))
            continue
        if working[-1].report.level >= ENOUGH:
            break
    working.sort(key=lambda choice: choice.report.level, reverse=True)
    if working and (allow_weaker or working[0].report.level >= FLOOR):
        _say_once(working[0].report)
        return working[0]
    refusals += [f"{choice.report.describe()} (below {FLOOR.name})" for choice in working]
    advice = "allow_weaker=True accepts the weaker one" if working else "nothing that was tried works here"
    raise SandboxError(
        f"expected a sandbox of level {FLOOR.name} or more, found none: {'; '.join(refusals) or 'none tried'}; "
        f"{advice}; `accredit sandbox doctor` shows them all"
    )


def probe(sandbox: Sandbox) -> IsolationReport:
    """Open a session, run a canary and return the layers found; remembered for the life of this process."""
    with _lock:
        if id(sandbox) not in _reports:
            session = sandbox.open_blocking(Limits(wall_s=20.0))
            try:
                outcome = session.run("print(6 * 7)")
            finally:
                session.close()
            if outcome.status is not Status.OK or outcome.stdout != b"42\n":
                raise SandboxError(
                    f"{sandbox.name}: expected the canary to print 42, actually {outcome.status} "
                    f"{outcome.stdout[:100]!r} {outcome.stderr[-300:]!r} {outcome.evidence.detail}".rstrip()
                )
            _reports[id(sandbox)] = (sandbox, session.report)
        return _reports[id(sandbox)][1]


def _load(name: str) -> Sandbox:
    if _is_address(name):
        module, kind, arguments, options = ".remote", "RemoteSandbox", [name], {}
    else:
        check_name(name)
        backend = BACKENDS[name]
        module, kind, arguments, options = backend.module, backend.sandbox, [], backend.options
    try:
        return cast(Sandbox, getattr(import_module(module, __package__), kind)(*arguments, **options))
    except ImportError as error:
        advice = BACKENDS[name].advice if name in BACKENDS else "install what is missing"
        raise SandboxError(f"{name}: {error}: {advice}") from error


def _is_address(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def _weaker_by_environment() -> bool:
    value = os.environ.get(WEAKER_VARIABLE, "0")
    if value not in ("", "0", "1"):
        raise SandboxError(f"expected {WEAKER_VARIABLE} to be 1 or 0, actually {value!r}")
    return value == "1"


def _say_once(report: IsolationReport) -> None:
    if report.level < Level.L4 and report.isolation_id not in _logged:
        _logged.add(report.isolation_id)
        _log.warning("this sandbox is not the strongest kind: %s", report.describe())
