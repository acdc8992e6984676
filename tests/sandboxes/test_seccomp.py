"""The system call filter, interpreted here step by step; nothing is installed."""

import errno
import struct

import pytest

from accredit.sandboxes.embedded.seccomp import assemble
from accredit.sandboxes.embedded.syscalls import AARCH64, CLONE, CLONE3, DENIED, IOCTL, PRLIMIT64, X86_64

ALLOW, KILL = 0x7FFF0000, 0x80000000
MACHINE_IDS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
WRITE = {"x86_64": 1, "aarch64": 64}
both = pytest.mark.parametrize("machine", sorted(DENIED))


def decide(machine: str, number: int, first: int = 0, second: int = 0, machine_id: int | None = None) -> int:
    """Run the filter on one call, as the kernel would."""
    program = assemble(machine)
    data = {0: number, 4: machine_id or MACHINE_IDS[machine], 16: first & 0xFFFFFFFF, 24: second & 0xFFFFFFFF}
    at, loaded = 0, 0
    while True:
        operation, if_true, if_false, value = struct.unpack_from("<HBBI", program, at * 8)
        at += 1
        if operation == 0x06:
            return value
        if operation == 0x20:
            loaded = data[value]
            continue
        holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[operation]
        at += if_true if holds else if_false


def refused(number: int) -> int:
    return 0x50000 | number


@both
def test_denied_calls_fail_with_eperm(machine: str) -> None:
    for name, number in DENIED[machine].items():
        assert decide(machine, number) == refused(errno.EPERM), name


@both
def test_ordinary_calls_pass(machine: str) -> None:
    assert decide(machine, WRITE[machine]) == ALLOW
    assert decide(machine, CLONE[machine], first=17) == ALLOW
    assert decide(machine, IOCTL[machine], second=0x5401) == ALLOW
    assert decide(machine, PRLIMIT64[machine], first=0) == ALLOW


@both
def test_arguments_that_reach_outside_are_denied(machine: str) -> None:
    assert decide(machine, CLONE[machine], first=0x10000000 | 17) == refused(errno.EPERM)
    assert decide(machine, CLONE[machine], first=0x8000 | 17) == refused(errno.EPERM)  # a child of the supervisor
    assert decide(machine, IOCTL[machine], second=0x5412) == refused(errno.EPERM)
    assert decide(machine, PRLIMIT64[machine], first=1) == refused(errno.EPERM)


@both
def test_calls_newer_than_the_table_do_not_exist(machine: str) -> None:
    assert decide(machine, CLONE3) == refused(errno.ENOSYS)
    assert decide(machine, 463) == refused(errno.ENOSYS)


@both
def test_calls_for_another_machine_kill(machine: str) -> None:
    assert decide(machine, WRITE[machine], machine_id=0x40000003) == KILL


def test_x32_calls_kill() -> None:
    assert decide("x86_64", 0x40000001) == KILL


def test_a_machine_without_a_table_is_refused() -> None:
    with pytest.raises(OSError, match="no table of system calls for riscv64"):
        assemble("riscv64")


def test_both_tables_deny_the_same_calls() -> None:
    assert set(X86_64) - set(AARCH64) == {"iopl", "ioperm", "modify_ldt"}
    assert set(AARCH64) <= set(X86_64)
