"""What every sandbox backend speaks: limits in, outcomes out.

A *sandbox* opens *sessions*; a session belongs to one episode and runs programs one after another. Each run is a fresh
process with an empty `/tmp`: nothing survives from one run to the next. Files, checkpoints and state between
runs are not part of this protocol yet. This module holds data and protocols only; it starts nothing.
"""

import hashlib
from dataclasses import dataclass, field
from enum import IntEnum
from types import TracebackType
from typing import Protocol, Self

from .verdict import Blame, Evidence, Status

LAYERS = ("namespaces", "landlock", "seccomp", "rlimits", "uid_drop", "cgroup")
"""Names of the isolation layers, in the order in which reports list them."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use. `output_bytes` counts standard output and standard error together."""

    wall_s: float = 10.0
    cpu_s: float = 10.0
    memory_mb: int = 256
    output_bytes: int = 1 << 20
    disk_mb: int = 64
    pids: int = 32

    def __post_init__(self) -> None:
        for name, least in (("wall_s", 0), ("cpu_s", 0), ("output_bytes", 0), ("disk_mb", 0), ("pids", 0)):
            if not getattr(self, name) > least:
                raise ValueError(f"expected {name} > {least}, actually {getattr(self, name)!r}")
        if self.memory_mb < 32:
            raise ValueError(f"expected memory_mb >= 32 (an interpreter needs that much), actually {self.memory_mb!r}")


@dataclass(frozen=True, slots=True)
class ErrorSpan:
    """Where in the submitted source an error arose: characters `[start, end)`, always inside the source.

    Distinct from evidence: the program's own process reports it, so it may lie about the place, but never about a
    place outside its own source, and never about the verdict. `line` counts from 1.
    """

    start: int
    end: int
    line: int
    error: str
    message: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run used. `peak_memory_mb` is `None` where nothing measured it."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory_mb: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run ended. `stdout_bytes` and `stderr_bytes` count all that was read, also what was cut off."""

    status: Status
    blame: Blame
    evidence: Evidence
    sandbox_id: str
    isolation_id: str
    exit_code: int | None = None
    signal: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    truncated: bool = False
    error_spans: tuple[ErrorSpan, ...] = ()
    usage: Usage = field(default_factory=Usage)

    @property
    def ok(self) -> bool:
        """Whether the last statement of the program ran and the process then ended with 0."""
        return self.status is Status.OK


class Level(IntEnum):
    """How strong an isolation is; each level includes the ones below it."""

    L1 = 1
    L2 = 2
    L3 = 3
    L4 = 4


@dataclass(frozen=True, slots=True)
class Layer:
    """One isolation layer as found by trying it; `reason` says why it is off, or what is missing from it."""

    name: str
    on: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class IsolationReport:
    """Which layers of a backend are really on. Found by doing, never by reading configuration."""

    backend: str
    layers: tuple[Layer, ...]

    def has(self, name: str) -> bool:
        """Whether the named layer is on."""
        return any(layer.name == name and layer.on for layer in self.layers)

    @property
    def level(self) -> Level:
        """L1 process and rlimits, L2 with seccomp and Landlock, L3 with namespaces, L4 with uid drop and cgroup.

        A read-only root of its own confines files at least as well as Landlock, so L3 does without it.
        """
        if not self.has("seccomp"):
            return Level.L1
        if not self.has("namespaces"):
            return Level.L2 if self.has("landlock") else Level.L1
        return Level.L4 if all(self.has(name) for name in LAYERS) else Level.L3

    @property
    def isolation_id(self) -> str:
        """Short stable name of this set of layers, for trajectories."""
        text = self.backend + "".join(f"{layer.name}={layer.on}" for layer in self.layers)
        return f"{self.backend}-{self.level.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    def describe(self) -> str:
        """One line for people: the level, and each layer with the reason where it is off."""
        parts = []
        for layer in self.layers:
            note = f" ({layer.reason})" if layer.reason else ""
            parts.append(f"{layer.name} {'yes' if layer.on else 'NO'}{note}")
        return f"{self.backend} {self.level.name}: {', '.join(parts)}"


class Session(Protocol):
    """One episode's sandbox. Runs are serialised; each is a fresh process, so no state passes between them."""

    @property
    def report(self) -> IsolationReport:
        """The layers this session really has."""
        ...

    async def run(self, code: str, limits: Limits | None = None) -> Outcome:
        """Run a program to its end or its limits. Never raises for what the program did."""
        ...

    async def close(self) -> None:
        """End the session and all its processes. Idempotent; finishes even if the caller is cancelled."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Sandbox(Protocol):
    """A backend that opens sessions."""

    async def open(self, limits: Limits | None = None) -> Session:
        """Start a session whose runs use these limits unless told otherwise; raise `SandboxError` if it cannot."""
        ...
