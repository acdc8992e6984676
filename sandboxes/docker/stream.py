"""A container's attached standard streams as one stream of bytes.

The engine sends standard output and standard error over one connection in frames: a byte that says which, three of
padding, four of length. Reading here gives the bytes of standard output and keeps the end of standard error.
"""

import contextlib
import socket
import struct
import time
from typing import Any

_HEADER = struct.Struct(">BxxxI")
_STDERR = 2
_KEPT = 2000


class AttachedStream:
    """The part of a socket's methods that frames need. `raw` is what the SDK hands out; it is kept open by this."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._socket: Any = getattr(raw, "_sock", raw)
        self._socket.settimeout(None)
        self._kind, self._left = 0, 0
        self._head = bytearray()
        self.complaints = bytearray()

    def settimeout(self, timeout_s: float | None) -> None:
        """Bound each of the calls that follow."""
        self._socket.settimeout(timeout_s)

    def sendall(self, data: bytes) -> None:
        """Send to the container's standard input."""
        self._socket.sendall(data)

    def recv(self, size: int) -> bytes:
        """Return some bytes of standard output, nothing at the end; raise `TimeoutError` where a socket would."""
        timeout_s = self._socket.gettimeout()
        until = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while True:
                part = self._part(size)
                if part is None or self._kind != _STDERR:
                    return part or b""
                self.complaints += part
                del self.complaints[:-_KEPT]
                if until is not None:
                    self._socket.settimeout(max(until - time.monotonic(), 0.001))
        finally:
            with contextlib.suppress(OSError):
                self._socket.settimeout(timeout_s)

    def _part(self, size: int) -> bytes | None:
        while not self._left:
            part = self._socket.recv(_HEADER.size - len(self._head))
            if not part:
                return None
            self._head += part
            if len(self._head) == _HEADER.size:
                self._kind, self._left = _HEADER.unpack(self._head)
                self._head.clear()
        part = self._socket.recv(min(size, self._left))
        self._left -= len(part)
        return part or None

    def shutdown(self, how: int) -> None:
        """End the stream, and with it the container's standard input."""
        self._socket.shutdown(how)

    def fileno(self) -> int:
        """Return the descriptor, to wait on."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._raw.close()
