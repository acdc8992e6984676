"""Many runs of all kinds leave nothing behind. `benchmarks/sandbox_soak.py` does thousands of them."""

import os

from accredit.sandboxes import EmbeddedSandbox
from accredit.sandboxes.selfcheck.soak import KINDS, soak


def test_mixed_runs_leave_nothing_behind(sandbox: EmbeddedSandbox) -> None:
    result = soak(sandbox, 200, beside=4)
    assert result.problems == ()
    assert result.growth == ()
    assert sum(result.ended.values()) == 200
    assert len({kind for kind, _ in result.ended}) > len(KINDS) - 3


def test_what_is_left_behind_is_found(sandbox: EmbeddedSandbox) -> None:
    left: list[int] = []
    try:
        result = soak(sandbox, 4, beside=2, tell=lambda done, counts: left.append(os.open("/dev/null", os.O_RDONLY)))
        assert any(line.startswith("descriptors: expected") for line in result.growth), result.growth
    finally:
        for fd in left:
            os.close(fd)
