"""Many runs of all kinds leave nothing behind. `benchmarks/sandbox_soak.py` does thousands of them."""

from accredit.sandboxes import EmbeddedSandbox
from accredit.sandboxes.selfcheck.soak import KINDS, soak


def test_mixed_runs_leave_nothing_behind(sandbox: EmbeddedSandbox) -> None:
    result = soak(sandbox, 200, beside=4)
    assert result.problems == ()
    assert result.growth == ()
    assert sum(result.ended.values()) == 200
    assert len({kind for kind, _ in result.ended}) > len(KINDS) - 3
