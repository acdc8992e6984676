"""A task's files in a sandbox session: written once, changed by shell commands, read from outside after each.

What the commands report of themselves is written behind a line that no command can guess, at the end of standard error.
"""

import re
import secrets
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from accredit.envs.catalogue.code import Tree, tree_of
from accredit.envs.errors import InfrastructureError
from accredit.sandboxes import Limits, Outcome, Status
from accredit.sandboxes.protocol import BlockingSession
from accredit.sandboxes.select import select

from .blame import Ran
from .parsing import Script

__all__ = ["Done", "Workspace"]

_MOST_REPORT = 4_000
_ATTEMPTS = 3
_DRIVER = """
report=${TMPDIR:-/tmp}/.report-$3
if [ -n "$2" ] && command -v bash >/dev/null 2>&1; then
  bash -o pipefail -c "$2" sh 9>"$report"
elif command -v bash >/dev/null 2>&1; then
  bash -o pipefail -c "$1" sh
else
  sh -c "$1" sh
fi
status=$?
printf '\\n%s\\n' "$3" >&2
[ -f "$report" ] && tail -c LIMIT "$report" >&2
exit $status
""".replace("LIMIT", str(_MOST_REPORT))
_INSIDE_FUNCTION = re.compile(r"^environment: line \d+: ", re.MULTILINE)
_MARK = re.compile(r"__ran \d+ ")


class Done(NamedTuple):
    """How a command ended: the sandbox's outcome, what it wrote to standard error, and what its parts reported."""

    outcome: Outcome
    stderr: str
    ran: tuple[Ran, ...]


class Workspace:
    """A session that is opened at the first command; a copy is a branch, which sees the files as they are now."""

    def __init__(self, files: Mapping[str, str], limits: Limits) -> None:
        self._files, self._limits = dict(files), limits
        self._session: BlockingSession | None = None

    def run(self, script: Script) -> Done:
        """Run a parsed text with bash, or whole with `sh` where there is no bash."""
        session = self._opened()
        left = _ATTEMPTS
        while True:
            nonce, left = secrets.token_hex(8), left - 1
            outcome = session.run(["/bin/sh", "-c", _DRIVER, "sh", script.text, script.traced, nonce])
            said, found, report = outcome.stderr.decode("utf-8", "replace").rpartition(f"\n{nonce}\n")
            if found:
                return Done(outcome, _cleaned(said), _read(report))
            if outcome.status is not Status.EXIT or not left:
                break
        if outcome.status is Status.EXIT:
            # The shell around the command never came to its end: on a machine out of processes it cannot start one.
            check = session.run(["/bin/sh", "-c", "/bin/true && exit 0"])
            if not check.ok:
                raise InfrastructureError(f"the sandbox cannot run a command ({check.status}): {check.stderr[-300:]!r}")
        return Done(outcome, _cleaned(report), ())

    def run_program(self, argv: list[str]) -> Outcome:
        """Run a program in the folder."""
        return self._opened().run(argv)

    def tree(self) -> Tree:
        """Return what the folder holds, read from outside, following no link; of too many files only the names.

        Raises:
            SandboxError: the session failed.

        """
        if self._session is None:
            return {**_folders(self._files), **self._files}
        return tree_of(self._session)

    def close(self) -> None:
        """End the session, if one was opened."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _opened(self) -> BlockingSession:
        if self._session is None:
            session = self._keep(select().open_blocking(self._limits))
            for path, text in sorted(self._files.items()):  # as a branch does, so that both list them alike
                session.write(path, text.encode())
        assert self._session is not None
        return self._session

    def _keep(self, session: BlockingSession) -> BlockingSession:
        self._session = session
        weakref.finalize(self, session.close)
        return session

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copy = type(self)(self._files, self._limits)
        if self._session is not None:
            copy._keep(self._session.branch())
        return copy


def _folders(files: Mapping[str, str]) -> Tree:
    parts = [path.split("/")[:-1] for path in files]
    return {"/".join(names[: depth + 1]): "<folder>" for names in parts for depth in range(len(names))}


def _cleaned(stderr: str) -> str:
    """Take out what only the reporting copy says of itself: a name for its function, and its marks."""
    return _MARK.sub("", _INSIDE_FUNCTION.sub("sh: ", stderr)).strip("\n")


def _read(report: str) -> tuple[Ran, ...]:
    found = re.findall(r"^(\d{1,4}) (\d{1,3})$", report, re.MULTILINE)
    return tuple(Ran(int(command), int(status)) for command, status in found)
