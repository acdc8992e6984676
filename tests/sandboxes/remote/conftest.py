"""A real server in a process of its own, and a proxy that can lose its answers."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from accredit.sandboxes import EmbeddedSandbox
from accredit.sandboxes.remote import RemoteSandbox

SERVE = """
import json, sys
from accredit.sandboxes.pool import Pool, PoolOptions
from accredit.sandboxes.remote.server import serve
from accredit.sandboxes.select import select
options, more = json.loads(sys.argv[1]), json.loads(sys.argv[2])
pool = Pool(select("embedded"), PoolOptions(**options))
serve(pool, started=lambda url: print(url, flush=True), **{"port": 0, **more})
"""


class Server:
    def __init__(self, pool: dict[str, object], more: dict[str, object]) -> None:
        command = [sys.executable, "-c", SERVE, json.dumps({"warm": 0, **pool}), json.dumps(more)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http://127.0.0.1:"), "the server did not start"

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def health(self) -> dict[str, object]:
        return RemoteSandbox(self.url).health()

    def end(self, number: int = signal.SIGTERM) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)
        self.process.wait(30)


@pytest.fixture
def serving(sandbox: EmbeddedSandbox) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*, more: dict[str, object] | None = None, **pool: object) -> Server:
        servers.append(Server(pool, more or {}))
        return servers[-1]

    yield start
    for server in servers:
        server.end(signal.SIGKILL)


class Proxy:
    """Forwards connections. `lose` answers to requests that hold `about` are swallowed: cut off, or kept for ever."""

    def __init__(self, port: int) -> None:
        self.about, self.lose, self.cut, self.lost = b"", 0, True, 0
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                there = socket.create_connection(("127.0.0.1", self._target))
                asked = bytearray()
                threading.Thread(target=self._requests, args=(here, there, asked), daemon=True).start()
                threading.Thread(target=self._answers, args=(here, there, asked), daemon=True).start()

    def _requests(self, here: socket.socket, there: socket.socket, asked: bytearray) -> None:
        with suppress(OSError):
            while part := here.recv(65536):
                asked += part
                there.sendall(part)
            there.shutdown(socket.SHUT_WR)

    def _answers(self, here: socket.socket, there: socket.socket, asked: bytearray) -> None:
        with suppress(OSError):
            while part := there.recv(65536):
                if self.lose and self.about in asked:
                    self.lose, self.lost = self.lose - 1, self.lost + 1
                    if self.cut:
                        here.shutdown(socket.SHUT_RDWR)
                        return
                    continue
                asked.clear()
                here.sendall(part)
            here.shutdown(socket.SHUT_WR)


@pytest.fixture
def proxied() -> Iterator[Callable[[int], Proxy]]:
    proxies: list[Proxy] = []

    def start(port: int) -> Proxy:
        proxies.append(Proxy(port))
        return proxies[-1]

    yield start
    for proxy in proxies:
        proxy.close()


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    def wait(holds: Callable[[], object]) -> None:
        until = time.monotonic() + 20
        while not holds():
            assert time.monotonic() < until, "it did not come about"
            time.sleep(0.05)

    return wait
