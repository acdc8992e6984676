"""The page of shared memory on which a program's process leaves its report.

Memory rather than a descriptor: the program has nothing above standard error to write to. A report counts only if it
starts with the run's nonce. A program that studies its own interpreter can still find the nonce and forge a report;
so a verdict never rests on it alone, and verification belongs in a second run.
"""

import json
import mmap
import os
import struct
from collections.abc import Mapping

_SIZE = 1 << 16
_NONCE_BYTES = 16


class ReportPage:
    """One run's page; made before the fork, written by the program's process, read by the supervisor after it."""

    def __init__(self) -> None:
        self._nonce = os.urandom(_NONCE_BYTES)
        self._memory = mmap.mmap(-1, _SIZE)

    @property
    def nonce(self) -> bytes:
        """The value that a report has to start with."""
        return self._nonce

    def renew(self, nonce: bytes | None = None) -> None:
        """Let reports with an older nonce count no more."""
        self._nonce = os.urandom(_NONCE_BYTES) if nonce is None else nonce

    def encode(self, report: Mapping[str, object]) -> bytes:
        """Return the bytes of a report, shortened to nothing but its kind if it does not fit."""
        text = json.dumps(report).encode()
        if len(text) > _SIZE - _NONCE_BYTES - 4:
            text = json.dumps({"ended": report["ended"]}).encode()
        return self._nonce + struct.pack("<I", len(text)) + text

    def write(self, encoded: bytes) -> None:
        """Leave an encoded report; uses no name that the program could have replaced."""
        self._memory.seek(0)
        self._memory.write(encoded)

    def read(self) -> bytes:
        """Return the report's JSON, unparsed, or nothing if the nonce is not there."""
        head = self._memory[: _NONCE_BYTES + 4]
        (length,) = struct.unpack("<I", head[_NONCE_BYTES:])
        if head[:_NONCE_BYTES] != self._nonce or length > _SIZE - len(head):
            return b""
        return self._memory[len(head) : len(head) + length]

    def close(self) -> None:
        """Free the page."""
        self._memory.close()
