"""How a slot is started: directly here, or inside something that another backend brings (bubblewrap, a container).

Whoever launches it, the slot is the same program with the same protocol on one stream; a launcher only says where it
runs and how it is ended.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any, Protocol

from accredit.sandboxes.errors import SandboxError
from accredit.sandboxes.protocol import Layer
from accredit.sandboxes.verdict import Evidence, Status

__all__ = ["BOOTSTRAP", "ENVIRONMENT", "DirectLauncher", "Launched", "Launcher", "Process", "interpreter", "package"]

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}
"""All that a slot is given of an environment."""

BOOTSTRAP = """
import sys, types
for name, path in (("accredit", []), ("accredit.sandboxes", [sys.argv[1]])):
    sys.modules[name] = package = types.ModuleType(name)
    package.__path__ = path
sys.modules["accredit"].sandboxes = package
from accredit.sandboxes.embedded.slot import main
main(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
"""
"""Runs the slot without the site hooks and without the rest of the suite. Its arguments: the folder of this package,
the descriptor of the stream, the process whose end ends the slot (0 where it cannot be seen: the stream's end does),
and the options as JSON."""


class Launched(Protocol):
    """A slot that was started: the stream to it, and the means to end it."""

    socket: socket.socket
    pid: int

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for the slot's end; False if it did not come in time."""
        ...

    def kill(self) -> None:
        """End the slot at once, and all that runs in it."""
        ...

    def last_words(self) -> str:
        """Return the last line of what it wrote to its standard error, or say that there is none."""
        ...

    def death(self, since: float) -> Evidence:
        """Return what the slot's end during a run means that was asked for at `since`, in seconds of the epoch."""
        ...

    def layers(self, found: tuple[Layer, ...]) -> tuple[Layer, ...]:
        """Return the layers that the slot found, and those that hold because of where it was launched."""
        ...

    def close(self) -> None:
        """Give back what belonged to it here. It has ended before."""
        ...


class Launcher(Protocol):
    """Starts slots. `name` is the backend's."""

    name: str

    def launch(self, options: Mapping[str, Any]) -> Launched:
        """Start a slot with these options; raise `SandboxError` with the reason if that cannot be."""
        ...


class Process:
    """A slot that is a process of this machine, at the other end of a socket pair."""

    def __init__(
        self,
        command: list[str],
        stream: socket.socket,
        theirs: socket.socket,
        environment: Mapping[str, str],
    ) -> None:
        self.socket = stream
        try:
            self._complaints = tempfile.TemporaryFile()
        except OSError as error:
            stream.close()
            theirs.close()
            raise SandboxError(f"the slot's file of complaints could not be made: {error}") from error
        try:
            self._process = subprocess.Popen(
                command,
                env=dict(environment),
                cwd="/",
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._complaints,
                start_new_session=True,  # Ctrl-C at the trainer's terminal is for the trainer
            )
        except OSError as error:
            self.socket.close()
            self._complaints.close()
            raise SandboxError(f"the slot could not be executed with {command[0]}: {error}") from error
        finally:
            theirs.close()
        self.pid = self._process.pid

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for the slot's end; False if it did not come in time."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End the slot at once; what runs in it dies with it."""
        try:
            self._process.send_signal(signal.SIGKILL)
        except ProcessLookupError:
            pass

    def last_words(self) -> str:
        """Return the last line of what it wrote to its standard error, or say that there is none."""
        try:
            size = os.fstat(self._complaints.fileno()).st_size
            text = os.pread(self._complaints.fileno(), 2000, max(0, size - 2000)).decode("utf-8", "replace").strip()
        except (OSError, ValueError):
            text = ""
        return text.splitlines()[-1] if text else "it left no message"

    def death(self, since: float) -> Evidence:
        """Return that the slot is lost: nothing that it runs can end it."""
        return Evidence(fault=Status.LOST, detail=f"the slot is gone: {self.last_words()}")

    def layers(self, found: tuple[Layer, ...]) -> tuple[Layer, ...]:
        """Return the layers as the slot found them."""
        return found

    def close(self) -> None:
        """Close the stream and the file of complaints."""
        self.socket.close()
        self._complaints.close()


class DirectLauncher:
    """Runs the slot as a process of this machine, which walls itself off."""

    name = "embedded"

    def launch(self, options: Mapping[str, Any]) -> Process:
        """Start a slot; raise `SandboxError` where this is not Linux or the interpreter cannot be executed."""
        if sys.platform != "linux":
            raise SandboxError(f"the embedded backend expected Linux, actually {sys.platform}: use a container there")
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise SandboxError(f"the slot's stream could not be made: {error}") from error
        arguments = [package(), str(theirs.fileno()), str(os.getpid()), json.dumps(options)]
        return Process([interpreter(), "-I", "-S", "-B", "-c", BOOTSTRAP, *arguments], ours, theirs, ENVIRONMENT)


def interpreter() -> str:
    """Return the interpreter below any virtual environment: inside the sandbox only that one exists."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def package() -> str:
    """Return the folder of `accredit.sandboxes`, which is all of the suite that a slot needs."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
