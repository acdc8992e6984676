"""Folders that slots without namespaces keep on the host, and what becomes of those of killed slots."""

import fcntl
import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

from accredit.sandboxes import EmbeddedSandbox
from accredit.sandboxes.embedded import place


def test_a_place_is_removed_with_those_that_nobody_holds_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(place, "_YOUNG_S", -1.0)
    held, own = place.make_place(), place.make_place()
    abandoned, foreign, link = tmp_path / "accredit-slot-abc", tmp_path / "accredit-other", tmp_path / "accredit-slot-l"
    (abandoned / "work" / "deep").mkdir(parents=True)
    foreign.mkdir()
    link.symlink_to(foreign)
    place.leave_place(own)
    assert {path.name for path in tmp_path.iterdir()} == {os.path.basename(held), foreign.name, link.name}


def test_a_killed_slot_lets_go_of_its_place(sandbox: EmbeddedSandbox) -> None:
    before = set(Path(tempfile.gettempdir()).glob("accredit-slot-*"))
    client = EmbeddedSandbox(without=["namespaces"]).open_blocking()
    try:
        client.run("open('x', 'w')")
        mine = [
            path for path in set(Path(tempfile.gettempdir()).glob("accredit-slot-*")) - before
            if (path / "work" / "x").exists()
        ]  # fmt: skip
        assert len(mine) == 1
        os.kill(client.pid, signal.SIGKILL)
        fd, until = os.open(mine[0], os.O_RDONLY), time.monotonic() + 20.0
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                assert time.monotonic() < until, "its lock is still held"
                time.sleep(0.05)
        place.leave_place(str(mine[0]))
        os.close(fd)
        assert not mine[0].exists()
    finally:
        client.close()
