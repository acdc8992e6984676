"""What every sandbox backend speaks: limits in, outcomes out.

A *sandbox* opens *sessions*; a session belongs to one episode and runs programs one after another. A run is a fresh
process in the session's folder, whose files stay from run to run, with a `/tmp` of its own, which does not. A *cell* is
run by the session's live interpreter instead, whose names stay from cell to cell. Nothing crosses sessions. This module
holds data and protocols only; it starts nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import TracebackType, UnionType
from typing import Protocol, Self

from .verdict import Blame, Evidence, Status

LAYERS = ("namespaces", "landlock", "seccomp", "rlimits", "uid_drop", "cgroup")
"""Names of the isolation layers, in the order in which reports list them."""

_MOST: Mapping[str, tuple[type | UnionType, int]] = {
    "wall_s": (int | float, 1_000_000),
    "cpu_s": (int | float, 1_000_000),
    "memory_mb": (int, 1 << 24),
    "output_bytes": (int, 1 << 30),
    "disk_mb": (int, 1 << 24),
    "pids": (int, 1 << 22),
}
"""Kind and highest value of each limit: what the kernel can be told. A mistake in one must not look like its fault."""


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
        for name, (kind, most) in _MOST.items():
            value = getattr(self, name)
            if not isinstance(value, kind) or not 0 < value <= most:
                what = "a whole number" if kind is int else "a number"
                raise ValueError(f"expected {name} to be {what} > 0 and at most {most}, actually {value!r}")
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
    """How strong an isolation is: L5 is a container, L6 a container with a kernel of its own."""

    L1 = 1
    L2 = 2
    L3 = 3
    L4 = 4
    L5 = 5
    L6 = 6


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

        A read-only root of its own confines files at least as well as Landlock, so L3 does without it. A backend that
        runs its slots in containers adds the layer `container`, and `own_kernel` where it is not the host's.
        """
        if self.has("own_kernel"):
            return Level.L6
        if self.has("container"):
            return Level.L5
        if not self.has("seccomp"):
            return Level.L1
        if not self.has("namespaces"):
            return Level.L2 if self.has("landlock") else Level.L1
        return Level.L4 if all(self.has(name) for name in LAYERS) else Level.L3

    @property
    def isolation_id(self) -> str:
        """Short stable name of this set of layers, for trajectories."""
        import hashlib  # not in the slots, whose every fork would pay for it

        text = self.backend + "".join(f"{layer.name}={layer.on}" for layer in self.layers)
        return f"{self.backend}-{self.level.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    def describe(self) -> str:
        """One line for people: the level, and each layer with the reason where it is off."""
        parts = []
        for layer in self.layers:
            note = f" ({layer.reason})" if layer.reason else ""
            parts.append(f"{layer.name} {'yes' if layer.on else 'NO'}{note}")
        return f"{self.backend} {self.level.name}: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a session's folder. `kind` is "file", "folder", "link" or "other"; `size` is in bytes, of files."""

    path: str
    kind: str
    size: int


class Session(Protocol):
    """One episode's sandbox. Everything asked of it is done in turn, one thing at a time.

    Programs never raise here: whatever they do is an `Outcome`. `SandboxError` is raised for what the caller did: a
    closed session, a path that leaves the folder, a file that is too large.
    """

    @property
    def report(self) -> IsolationReport:
        """The layers this session really has."""
        ...

    async def run(self, program: str | Sequence[str], limits: Limits | None = None, *, stdin: bytes = b"") -> Outcome:
        """Run Python source (a string) or a command (its arguments) to its end or its limits, in the session folder."""
        ...

    async def run_cell(self, code: str, limits: Limits | None = None) -> Outcome:
        """Run Python source in the live interpreter, which starts at the first cell and keeps its names.

        An exception leaves what was done before it. A cell that dies, or is killed at a limit, is undone: the next one
        sees the names as they were before it.
        """
        ...

    async def read(self, path: str, most_bytes: int = 1 << 20) -> bytes:
        """Return a file of the folder; follows no link, waits for nothing, and never returns more than `most_bytes`."""
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Write a file of the folder and the folders above it; follows no link; bounded by `disk_mb`."""
        ...

    async def list(self, path: str = ".") -> tuple[Entry, ...]:
        """Return all that lies below a folder, sorted by path, at most 4,096 entries; follows no link."""
        ...

    async def branch(self) -> "Session":
        """Return another session in the same state: files copied, live interpreter forked. A checkpoint is a branch."""
        ...

    async def close(self) -> None:
        """End the session and all its processes. Idempotent; finishes even if the caller is cancelled."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class BlockingSession(Protocol):
    """A session for ordinary blocking code, callable from any thread: the same methods without `await`."""

    @property
    def report(self) -> IsolationReport: ...  # noqa: D102

    def run(self, program: str | Sequence[str], limits: Limits | None = None, *, stdin: bytes = b"") -> Outcome: ...  # noqa: D102

    def run_cell(self, code: str, limits: Limits | None = None) -> Outcome: ...  # noqa: D102

    def read(self, path: str, most_bytes: int = 1 << 20) -> bytes: ...  # noqa: D102

    def write(self, path: str, data: bytes) -> None: ...  # noqa: D102

    def list(self, path: str = ".") -> tuple[Entry, ...]: ...  # noqa: D102

    def branch(self) -> "BlockingSession": ...  # noqa: D102

    def close(self) -> None: ...  # noqa: D102


class Sandbox(Protocol):
    """A backend that opens sessions. `name` is the word by which a configuration names it."""

    name: str

    async def open(self, limits: Limits | None = None) -> Session:
        """Start a session whose runs use these limits unless told otherwise; raise `SandboxError` if it cannot."""
        ...

    def open_blocking(self, limits: Limits | None = None) -> BlockingSession:
        """Start a session from ordinary, blocking code."""
        ...
