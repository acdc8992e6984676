"""Frames between client and slot: a JSON header and some blobs over a stream socket.

Both ends are ours; the program in the sandbox has neither. A frame is the header's length (4 bytes, little endian),
the header, then the blobs whose lengths the header gives.
"""

import json
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

SETUP_S = 10.0
"""How long the walls of a run may take to build; both ends reckon with it. The run's own clock starts after."""

_MOST_HEADER = 1 << 24
_MOST_BLOB = 1 << 31


class Frame(NamedTuple):
    """One message."""

    header: dict[str, Any]
    blobs: list[bytes]


def send(sock: socket.socket, header: Mapping[str, object], *blobs: bytes) -> None:
    """Send one frame; raise `OSError` if the other end is gone or does not read within the socket's timeout."""
    text = json.dumps({**header, "blobs": [len(blob) for blob in blobs]}).encode()
    sock.sendall(b"".join((struct.pack("<I", len(text)), text, *blobs)))


def receive(sock: socket.socket, timeout_s: float) -> Frame | None:
    """Return the next frame, or `None` at the end; raise `TimeoutError` when it does not arrive whole in time."""
    until = time.monotonic() + timeout_s
    prefix = _read(sock, 4, until)
    if prefix is None:
        return None
    (length,) = struct.unpack("<I", prefix)
    if length > _MOST_HEADER:
        raise ValueError(f"expected a frame header of at most {_MOST_HEADER} bytes, actually {length}")
    text = _read(sock, length, until)
    if text is None:
        return None
    header = json.loads(text)
    blobs: list[bytes] = []
    for size in header.pop("blobs"):
        if size > _MOST_BLOB:
            raise ValueError(f"expected a blob of at most {_MOST_BLOB} bytes, actually {size}")
        blob = _read(sock, size, until)
        if blob is None:
            return None
        blobs.append(blob)
    return Frame(header, blobs)


def _read(sock: socket.socket, size: int, until: float) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("no whole frame arrived in time")
        sock.settimeout(left)
        try:
            part = sock.recv(min(size - len(parts), 1 << 20))
        except ConnectionError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)
