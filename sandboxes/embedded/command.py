"""Executes a command in the process that is already walled off, in the environment of an ordinary small machine.

A command that is not there, or cannot be executed, ends as in a shell: a line on standard error and 127 or 126. So does
one that no kernel can be given, with a null character or half of one.
"""

import os
import signal
import sys
from typing import NoReturn

_PATHS = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


def run(argv: list[str], scratch: str) -> NoReturn:
    """Become the command; it inherits standard input, output and error and nothing else."""
    paths = dict.fromkeys((os.path.dirname(sys.executable), *_PATHS))
    environment = {
        "PATH": ":".join(path for path in paths if path),
        "HOME": scratch,
        "TMPDIR": scratch,
        "PWD": os.getcwd(),
        "LANG": "C.UTF-8",
    }
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):  # Python ignores them, and so would the command
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(argv[0], argv, environment)
    except (FileNotFoundError, NotADirectoryError):
        _leave(argv[0], "not found", _NOT_FOUND)
    except (OSError, ValueError) as error:
        _leave(argv[0], getattr(error, "strerror", None) or str(error), _NOT_EXECUTABLE)


def _leave(name: str, why: str, code: int) -> NoReturn:
    os.write(2, f"{name}: {why}\n".encode("utf-8", "backslashreplace"))
    os._exit(code)
