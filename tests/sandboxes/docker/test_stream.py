"""Frames of an attached container, whole or in pieces."""

import socket
import struct
import threading
import time

import pytest

from accredit.sandboxes.docker.stream import AttachedStream


def framed(kind: int, data: bytes) -> bytes:
    return struct.pack(">BxxxI", kind, len(data)) + data


@pytest.fixture
def ends() -> tuple[AttachedStream, socket.socket]:
    ours, theirs = socket.socketpair()
    return AttachedStream(ours), theirs


def read(stream: AttachedStream, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size and (part := stream.recv(size - len(parts))):
        parts += part
    return bytes(parts)


def test_output_comes_without_frames_and_complaints_are_kept_apart(ends: tuple[AttachedStream, socket.socket]) -> None:
    stream, theirs = ends
    text = framed(1, b"abc") + framed(2, b"oh" * 3000) + framed(1, b"") + framed(1, b"defgh")
    sending = threading.Thread(target=lambda: [theirs.sendall(text[n : n + 1]) for n in range(len(text))])
    sending.start()
    assert read(stream, 8) == b"abcdefgh"
    sending.join()
    assert bytes(stream.complaints) == (b"oh" * 3000)[-2000:]
    theirs.close()
    assert stream.recv(1) == b""
    stream.close()


def test_complaints_do_not_put_off_a_deadline(ends: tuple[AttachedStream, socket.socket]) -> None:
    stream, theirs = ends
    stop = threading.Event()

    def complain() -> None:
        while not stop.wait(0.05):
            theirs.sendall(framed(2, b"oh"))

    talking = threading.Thread(target=complain)
    talking.start()
    stream.settimeout(0.5)
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        stream.recv(1)
    assert time.monotonic() - begun < 30.0
    stop.set()
    talking.join()
    stream.close()
    theirs.close()
