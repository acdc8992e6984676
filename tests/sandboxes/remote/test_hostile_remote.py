"""A pool over HTTP lets through as little as what it serves."""

from collections.abc import Callable

from accredit.sandboxes.remote import RemoteSandbox
from accredit.sandboxes.selfcheck import check
from accredit.sandboxes.selfcheck.intrusions import INTRUSIONS
from accredit.sandboxes.selfcheck.sessions import SESSIONS


def test_nothing_comes_through_from_far(serving: Callable[..., object]) -> None:
    server = serving(most=16)
    report = check(RemoteSandbox(server.url), (*INTRUSIONS, *SESSIONS))  # type: ignore[attr-defined]
    assert report.problems == ()
