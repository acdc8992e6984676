"""Many runs of all kinds leave nothing behind. `benchmarks/sandbox_soak.py` does thousands of them."""

import os
from pathlib import Path

import pytest

from accredit.sandboxes import EmbeddedSandbox
from accredit.sandboxes.selfcheck.soak import KINDS, Counts, soak


def test_mixed_runs_leave_nothing_behind(sandbox: EmbeddedSandbox) -> None:
    result = soak(sandbox, 200, beside=4)
    assert result.problems == ()
    assert result.growth == ()
    assert sum(result.ended.values()) == 200
    assert len({kind for kind, _ in result.ended}) > len(KINDS) - 3


def test_what_is_left_behind_is_found_and_what_others_made_is_not(
    sandbox: EmbeddedSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    left: list[int] = []
    others = Path(f"/dev/shm/other-{os.getpid()}")

    def leave(done: int, counts: Counts) -> None:
        left.append(os.open("/dev/null", os.O_RDONLY))
        (tmp_path / f"accredit-slot-{done}").mkdir(exist_ok=True)
        others.touch()

    try:
        result = soak(sandbox, 4, beside=2, tell=leave)
        assert {line.partition(":")[0] for line in result.growth} == {"descriptors", "files"}, result.growth
        assert (result.before.files, result.after.files) == (0, 2)
    finally:
        others.unlink(missing_ok=True)
        for fd in left:
            os.close(fd)
