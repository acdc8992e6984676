"""The host's side of the check: secrets to be found, a server that tells one, and a look at all processes."""

import os
import secrets
import shutil
import socket
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_VARIABLE = "ACCREDIT_SECRET_TOKEN"


class Hosted:
    """Secrets of this machine, as a context: a file that everybody may read, a variable, and a server's answer.

    All hold the `canary`, a word that no program is told. `connections` counts who came to the server.
    """

    def __init__(self) -> None:
        self.canary = f"accredit-canary-{secrets.token_hex(12)}"
        self.connections = 0
        self._folder = tempfile.mkdtemp(prefix="hosted-")
        os.chmod(self._folder, 0o755)
        self.path = f"{self._folder}/canary"
        with open(self.path, "w") as file:
            file.write(self.canary)
        os.chmod(self.path, 0o644)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]

    def __enter__(self) -> Self:
        os.environ[_VARIABLE] = self.canary
        threading.Thread(target=self._serve, name="accredit-canary", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.environ.pop(_VARIABLE, None)
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._server.accept()
                self.connections += 1
                with caller, suppress(OSError):
                    caller.sendall(self.canary.encode())


class Trace:
    """What a program's processes are known by on the whole machine: a name, and an argument of what they execute."""

    def __init__(self) -> None:
        self.name = f"hc{secrets.token_hex(6)}"
        self.nap = f"{1_000_000 + secrets.randbelow(9_000_000)}.{secrets.randbelow(9_000_000)}"

    @property
    def naming(self) -> str:
        """The line of a program that gives its process the name."""
        return f"import ctypes; ctypes.CDLL(None).prctl(15, b'{self.name}', 0, 0, 0); del ctypes\n"

    def survivors(self, within_s: float) -> list[int]:
        """Return its processes that are still there after so long; returns early when there are none."""
        until = time.monotonic() + within_s
        while (found := self._found()) and time.monotonic() < until:
            time.sleep(0.05)
        return found

    def _found(self) -> list[int]:
        found: list[int] = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with suppress(OSError):
                    name, line = Path(f"/proc/{entry}/comm").read_bytes(), Path(f"/proc/{entry}/cmdline").read_bytes()
                    if name.strip() == self.name.encode() or self.nap.encode() in line:  # which need not be text
                        found.append(int(entry))
        return found
