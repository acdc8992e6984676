"""Verification of a handed-in program: hidden arguments go in, values come out, and the host compares.

The expected values never enter the process that runs the program, so nothing it can do there (read frames, patch
modules, print what looks like a result, end early, fork) tells it what to answer. Whatever comes back is data: it is
read as JSON, rebuilt from plain types, and compared here, where no method of the program's own is called. A test whose
value did not come back is failed; one that does not end takes those after it along.

A checker that fails before the program's first line ran is not the program's doing: that is a `VerifierError`.
"""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from accredit.envs.catalogue.code import VerifierError, check_outcome
from accredit.sandboxes import Limits, Outcome
from accredit.sandboxes.select import select

__all__ = ["Verified", "verify"]

VERIFY_LIMITS = Limits(wall_s=5.0, cpu_s=5.0, output_bytes=65_536)

_HARNESS = """
def check(code, inputs, mark):
    import io, json, os, sys
    out, dumps, write = os.dup(1), json.dumps, os.write
    def say(*parts):
        write(out, (mark + dumps(parts) + "\\n").encode())
    def plain(value):
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind in (list, tuple):
            return {kind.__name__: [plain(item) for item in value]}
        if kind is dict:
            return {"dict": [[plain(key), plain(item)] for key, item in value.items()]}
        if kind in (set, frozenset):
            return {"set": [plain(item) for item in value]}
        raise TypeError(kind)
    say("begin")
    sys.stdout = sys.stderr = io.StringIO()
    names = {"__name__": "answer"}
    exec(compile(code, "<answer>", "exec", dont_inherit=True), names)
    for index, arguments in enumerate(inputs):
        try:
            value = plain(names["f"](*arguments))
        except BaseException:
            continue
        say(index, value)
check(CODE, INPUTS, MARK)
"""


@dataclass(frozen=True, slots=True)
class Verified:
    """Which hidden tests a program passed, and how its run ended."""

    passed: tuple[bool, ...]
    status: str

    @property
    def share(self) -> float:
        """The fraction of the tests that were passed."""
        return sum(self.passed) / len(self.passed)


def verify(code: str, inputs: Sequence[tuple[Any, ...]], expected: Sequence[Any]) -> Verified:
    """Run `code` on the hidden arguments in a sandbox of its own and compare the values of its function `f`.

    Raises:
        VerifierError: the checker itself failed.
        InfrastructureError: the sandbox failed.

    """
    mark = secrets.token_hex(16)
    program = f"CODE = {code!r}\nINPUTS = {tuple(inputs)!r}\nMARK = {mark!r}\n{_HARNESS}"
    session = select().open_blocking(VERIFY_LIMITS)
    try:
        outcome = session.run(program)
    finally:
        session.close()
    check_outcome(outcome)
    said = _lines(outcome, mark)
    if not said or said[0] != ["begin"]:
        raise VerifierError(
            f"verifier_error: the checker ended as {outcome.status} before the program's first line: "
            f"{outcome.stderr[-300:]!r}"
        )
    found: dict[int, Any] = {}
    for parts in said[1:]:
        if len(parts) == 2 and type(parts[0]) is int:
            found.setdefault(parts[0], parts[1])
    passed = tuple(index in found and _equal(found[index], value) for index, value in enumerate(expected))
    return Verified(passed, str(outcome.status))


def _lines(outcome: Outcome, mark: str) -> list[list[Any]]:
    said: list[list[Any]] = []
    for line in outcome.stdout.split(b"\n"):
        if not line.startswith(mark.encode()):
            continue
        try:
            parts = json.loads(line[len(mark) :])
        except (ValueError, RecursionError):
            continue
        if isinstance(parts, list):
            said.append(parts)
    return said


def _equal(found: Any, expected: Any) -> bool:
    """Compare as Python does, between plain values of the host; what cannot be rebuilt is not equal."""
    try:
        return bool(_rebuilt(found) == expected)
    except (TypeError, ValueError, LookupError, RecursionError):
        return False


def _rebuilt(value: Any) -> Any:
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise TypeError("a bare list is no value that the checker wrote")
        return value
    ((kind, items),) = value.items()
    if kind == "dict":
        return {_rebuilt(key): _rebuilt(item) for key, item in items}
    return {"list": list, "tuple": tuple, "set": set}[kind](_rebuilt(item) for item in items)
