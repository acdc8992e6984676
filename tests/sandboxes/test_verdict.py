"""The verdict table, without any sandbox."""

import signal
from dataclasses import asdict, replace

import pytest

from accredit.sandboxes import Blame, Evidence, Status, classify
from accredit.sandboxes.verdict import FAULTS, Reported, Stopped


def exited(code: int) -> int:
    return code << 8


TABLE = [
    (Evidence(wait_status=0, reported=Reported.END), Status.OK, Blame.NOBODY),
    (Evidence(wait_status=0), Status.NO_RESULT, Blame.MODEL),
    (Evidence(wait_status=0, reported=Reported.EXIT), Status.EXIT, Blame.NOBODY),
    (Evidence(wait_status=0, reported=Reported.EXCEPTION), Status.NO_RESULT, Blame.MODEL),
    (Evidence(wait_status=exited(1), reported=Reported.SYNTAX_ERROR), Status.SYNTAX_ERROR, Blame.MODEL),
    (Evidence(wait_status=exited(1), reported=Reported.EXCEPTION), Status.EXCEPTION, Blame.MODEL),
    (Evidence(wait_status=exited(1), reported=Reported.END), Status.EXIT, Blame.MODEL),
    (Evidence(wait_status=exited(3), reported=Reported.EXIT), Status.EXIT, Blame.MODEL),
    (Evidence(wait_status=exited(137)), Status.EXIT, Blame.MODEL),
    (Evidence(wait_status=exited(124)), Status.EXIT, Blame.MODEL),
    (Evidence(wait_status=signal.SIGKILL, cpu_s=0.1, cpu_limit_s=5), Status.SIGNAL, Blame.MODEL),
    (Evidence(wait_status=signal.SIGKILL, cpu_s=5.0, cpu_limit_s=5), Status.TIMEOUT_CPU, Blame.MODEL),
    (Evidence(wait_status=signal.SIGXCPU, cpu_s=4.0, cpu_limit_s=5), Status.TIMEOUT_CPU, Blame.MODEL),
    (Evidence(wait_status=signal.SIGXCPU, cpu_s=0.1, cpu_limit_s=5), Status.SIGNAL, Blame.MODEL),
    (Evidence(wait_status=signal.SIGSEGV, cpu_s=5.0, cpu_limit_s=5), Status.SIGNAL, Blame.MODEL),
    (Evidence(wait_status=signal.SIGKILL, oom_kills=1), Status.OUT_OF_MEMORY, Blame.MODEL),
    (Evidence(wait_status=0, reported=Reported.END, oom_kills=1), Status.OUT_OF_MEMORY, Blame.MODEL),
    (Evidence(stopped=Stopped.WALL), Status.TIMEOUT_WALL, Blame.MODEL),
    (Evidence(stopped=Stopped.CPU), Status.TIMEOUT_CPU, Blame.MODEL),
    (Evidence(wait_status=signal.SIGXFSZ), Status.LIMIT_HIT, Blame.MODEL),
    (Evidence(wait_status=0, command=True), Status.OK, Blame.NOBODY),
    (Evidence(wait_status=exited(2), command=True), Status.EXIT, Blame.MODEL),
    (Evidence(wait_status=exited(2), command=True, disk_full=True), Status.LIMIT_HIT, Blame.MODEL),
    (Evidence(stopped=Stopped.OUTPUT, wait_status=0, reported=Reported.END), Status.OUTPUT_LIMIT, Blame.MODEL),
    (Evidence(wait_status=exited(1), pids_refused=3), Status.LIMIT_HIT, Blame.MODEL),
    (Evidence(wait_status=exited(1), disk_full=True), Status.LIMIT_HIT, Blame.MODEL),
    (Evidence(wait_status=0, reported=Reported.END, pids_refused=3), Status.OK, Blame.NOBODY),
    (Evidence(wait_status=exited(1), denied=True), Status.DENIED, Blame.MODEL),
    (Evidence(unsupported=True), Status.UNSUPPORTED, Blame.NOBODY),
    (Evidence(wait_status=exited(1), verifier_failed=True), Status.VERIFIER_ERROR, Blame.AUTHOR),
    (Evidence(cancelled=True), Status.CANCELLED, Blame.NOBODY),
    (Evidence(), Status.LOST, Blame.INFRASTRUCTURE),
]


@pytest.mark.parametrize(("evidence", "status", "blame"), TABLE)
def test_evidence_has_one_verdict(evidence: Evidence, status: Status, blame: Blame) -> None:
    assert classify(evidence) == (status, blame)


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_host_side_fault_is_never_the_models(fault: Status) -> None:
    for evidence, _, _ in TABLE:
        assert classify(replace(evidence, fault=fault)) == (fault, Blame.INFRASTRUCTURE)


@pytest.mark.parametrize("reported", [None, *Reported])
def test_a_report_never_turns_a_models_failure_into_anothers(reported: Reported | None) -> None:
    for evidence, status, blame in TABLE:
        if status in (Status.OK, Status.EXIT, Status.NO_RESULT):
            continue
        assert classify(replace(evidence, reported=reported)).blame is blame


def test_evidence_refuses_a_fault_that_is_not_host_side() -> None:
    with pytest.raises(ValueError, match="expected a host-side fault"):
        Evidence(fault=Status.OK)


def test_evidence_survives_the_way_through_json() -> None:
    for evidence, _, _ in TABLE:
        assert Evidence.from_json(asdict(evidence)) == evidence
