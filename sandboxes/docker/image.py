"""The images of the containers, made on this machine without a registry.

By default the root is a small one made of this machine's own interpreter, standard library and command line tools, and
the libraries they need; a user's own image works too, if it has Python 3.11 or newer. The slot's code is laid over
either. Images are named by their content, so a changed slot or interpreter gets a new one.

Everything here makes tar files and names; `engine.py` talks to the engine.
"""

import functools
import hashlib
import io
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from accredit.sandboxes.embedded.launch import interpreter, package
from accredit.sandboxes.errors import SandboxError

REPOSITORY = "accredit-sandbox"
SLOT_HOME = "/usr/lib/accredit-sandbox"
"""Where the slot's code lies in every image."""

TOOLS = tuple(
    "sh bash [ awk base64 basename cat chmod cmp comm cp cut date dd diff dirname du echo env expand expr false find "
    "fold grep egrep fgrep gzip gunzip head id install join ln ls md5sum mkdir mkfifo mktemp mv nl od paste printf pwd "
    "readlink realpath rm rmdir sed seq sha1sum sha256sum shuf sleep sort split stat sum tac tail tar tee test timeout "
    "touch tr true truncate tsort uname uniq unlink wc which xargs yes".split()
)
"""Commands of the image, as far as this machine has them."""

_LEFT_OUT = {"site-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "__pycache__"}
_NOT_COPIED = ("_tkinter", "_test", "_xx", "_ctypes_test", "xx")  # tests, and what would bring a window system along
_FOLDERS = ("dev", "etc", "proc", "sys", "tmp", "usr", "usr/bin", "usr/lib", "work")
_LINKS = {
    **{name: "usr/bin" for name in ("bin", "sbin")},
    **{name: "usr/lib" for name in ("lib", "lib64")},
    **{"usr/sbin": "bin", "usr/lib64": "lib"},
}
_ETC = {
    "etc/passwd": b"root:x:0:0::/tmp:/bin/sh\nnobody:x:65534:65534::/tmp:/bin/false\n",
    "etc/group": b"root:x:0:\nnogroup:x:65534:\n",
}


class Root(NamedTuple):
    """What goes into an image: path in the image -> file of this machine."""

    files: dict[str, Path]

    def tar(self) -> bytes:
        """Return the whole root as a tar file."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name in _FOLDERS:
                _add(tar, name, kind=tarfile.DIRTYPE, mode=0o1777 if name == "tmp" else 0o755)
            for name, target in _LINKS.items():
                _add(tar, name, kind=tarfile.SYMTYPE, target=target)
            for name, content in _ETC.items():
                _add(tar, name, content)
            for path, source in sorted(self.files.items()):
                status = source.stat()
                mode = 0o755 if status.st_mode & 0o111 else 0o644
                _add(tar, path, source.read_bytes(), mode=mode, time=int(status.st_mtime))
            _add(tar, "usr/bin/python3", kind=tarfile.SYMTYPE, target=_version())
            _add(tar, "usr/bin/python", kind=tarfile.SYMTYPE, target="python3")
        return buffer.getvalue()


def own_fingerprint() -> str:
    """Return a name for the root of this machine; it changes with the interpreter, the tools and this module."""
    seen = hashlib.sha256(Path(__file__).read_bytes() + sys.version.encode())
    library = Path(sysconfig.get_path("stdlib"), "os.py")
    for path, source in sorted({**_programs(), "library": library}.items()):
        status = source.stat()
        seen.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return seen.hexdigest()[:16]


def own_root() -> Root:
    """Collect this machine's interpreter and tools; raise `SandboxError` where they would not run in a container."""
    if sys.platform != "linux":
        raise SandboxError(
            f"expected Linux to make an image of this machine's interpreter, actually {sys.platform}: name an image "
            "with Python 3.11 or newer, such as DockerSandbox(image='python:3.12-slim')"
        )
    programs = _programs()
    files = dict(_library(Path(sysconfig.get_path("stdlib")), f"usr/lib/{_version()}")) | programs
    for library in _libraries([*programs.values(), *(path for path in files.values() if path.suffix == ".so")]):
        files[f"usr/lib/{library.name}"] = library
    return Root(files)


def _version() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def _programs() -> dict[str, Path]:
    found = {name: shutil.which(name, path="/usr/bin:/bin:/usr/sbin") for name in TOOLS}
    programs = {f"usr/bin/{name}": Path(os.path.realpath(path)) for name, path in found.items() if path is not None}
    return programs | {f"usr/bin/{_version()}": Path(interpreter())}


def slot_tar() -> bytes:
    """Return the slot's code, to be laid over an image that has an interpreter."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in ("", "/embedded", "/docker"):
            _add(tar, SLOT_HOME[1:] + folder, kind=tarfile.DIRTYPE, mode=0o755)
        for name, source in _slot_files():
            _add(tar, name, source.read_bytes())
        _add_compiled(tar)
    return buffer.getvalue()


@functools.cache
def slot_fingerprint() -> str:
    """Return a name for the slot's code."""
    seen = hashlib.sha256(Path(__file__).read_bytes())
    for name, source in _slot_files():
        seen.update(f"{name}\0".encode() + source.read_bytes())
    return seen.hexdigest()[:16]


def _slot_files() -> Iterator[tuple[str, Path]]:
    home = Path(package())
    for source in sorted([*home.glob("*.py"), *home.glob("embedded/*.py"), *home.glob("docker/*.py")]):
        yield f"{SLOT_HOME[1:]}/{source.relative_to(home)}", source


def _add_compiled(tar: tarfile.TarFile) -> None:
    """Add the slot's code compiled, for interpreters of this version: containers cannot keep what they compile."""
    with tempfile.TemporaryDirectory() as folder:
        for name, source in _slot_files():
            compiled = os.path.join(folder, "compiled")
            py_compile.compile(
                str(source), compiled, f"/{name}", invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
            )
            home, _, module = name.rpartition("/")
            target = f"{home}/__pycache__/{module.removesuffix('.py')}.{sys.implementation.cache_tag}.pyc"
            _add(tar, target, Path(compiled).read_bytes())


def _add(
    tar: tarfile.TarFile,
    name: str,
    content: bytes = b"",
    *,
    kind: bytes = tarfile.REGTYPE,
    mode: int = 0o644,
    target: str = "",
    time: int = 0,
) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname, entry.size, entry.mtime = kind, mode, target, len(content), time
    tar.addfile(entry, io.BytesIO(content))


def _library(home: Path, target: str) -> Iterator[tuple[str, Path]]:
    """Yield the standard library with its compiled files, which are only valid with the sources' times."""
    compiled = f".{sys.implementation.cache_tag}.pyc"
    for folder, folders, names in os.walk(home):
        folders[:] = [
            name for name in folders if name not in _LEFT_OUT and not name.startswith(("config-", "__pycache__"))
        ]
        inside = Path(folder).relative_to(home)
        for name in names:
            if name.endswith((".py", ".so")) and not name.startswith(_NOT_COPIED):
                yield f"{target}/{inside / name}", Path(folder, name)
        cache = Path(folder, "__pycache__")
        if cache.is_dir():
            for file in cache.iterdir():
                if file.name.endswith(compiled):
                    yield f"{target}/{inside}/__pycache__/{file.name}", file


def _libraries(programs: Iterable[Path]) -> list[Path]:
    """Return the shared libraries that some programs need; `ldd` prints one a line, with the loader among them."""
    try:
        listed = subprocess.run(
            ["ldd", *map(str, programs)], capture_output=True, text=True, timeout=60, check=False, env={"LC_ALL": "C"}
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"the libraries of this machine's interpreter could not be listed: {error}") from error
    return [Path(path) for path in sorted(set(re.findall(r"\s(/\S+\.so\S*) \(0x", listed)))]
