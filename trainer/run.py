"""The run directory: what it holds, and that nothing in it is overwritten silently.

runs/NAME/ holds `config.yaml` (resolved), `environment.json` (versions, git state), `metrics.jsonl`, `tensorboard/`,
`checkpoints/`, `traces/`, and `journal.jsonl`, the episodes since the newest checkpoint. One process at a time works on
a run: it holds a lock on `run.lock`, which the system takes back when the process ends, however it ends.
"""

import errno
import fcntl
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import yaml
from pydantic import BaseModel, ValidationError

from accredit.sandboxes.errors import AccreditError

from .metrics import read_metrics
from .whole_file import replace_file

__all__ = ["RunDirectory", "RunError", "open_or_create", "told_of_disk"]

_PACKAGES = (
    *("accredit", "torch", "transformers", "tokenizers", "peft", "vllm", "ray"),
    *("numpy", "gymnasium", "pyarrow", "pydantic"),
)
_MAY_CHANGE = ("steps", "trackers")
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
_PLACE = {*_DISK, errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.ENAMETOOLONG}


class RunError(AccreditError, RuntimeError):
    """A run cannot start, or cannot go on."""


class RunDirectory:
    """Paths of one run, and the command that makes it and goes on with it."""

    def __init__(self, path: Path, command: str = "train") -> None:
        self.path, self.command = path, command
        self.checkpoints = path / "checkpoints"
        self.traces = path / "traces"
        self.metrics = path / "metrics.jsonl"
        self.journal = path / "journal.jsonl"
        self.config = path / "config.yaml"
        self._lock: TextIO | None = None

    def lock(self) -> None:
        """Take the run for this process, until it ends or calls `unlock`.

        Raises:
            RunError: another process works on it.

        """
        file = (self.path / "run.lock").open("a+", encoding="utf-8")
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            owner = file.read().strip()
            file.close()
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise RunError(
                f"{self.path} is in use by {owner or 'another process'}: wait for it, stop it, or choose another name "
                "(name=...)"
            ) from error
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}\n")
        file.flush()
        self._lock = file

    def unlock(self) -> None:
        """Let others have the run."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def history(self) -> list[dict[str, Any]]:
        """Return the metrics so far, oldest first; empty for a new run."""
        return read_metrics(self.metrics) if self.metrics.exists() else []

    def differences(self, config: BaseModel) -> list[str]:
        """Return the settings in which `config` differs from that of the run, apart from where the run lies.

        Settings that are newer than the run have their defaults in it.
        """
        before = yaml.safe_load(self.config.read_text(encoding="utf-8")) or {}
        with suppress(ValidationError):  # of another kind, or with a setting that is no more: compared as it stands
            before = type(config).model_validate(before).model_dump(mode="json")
        now = config.model_dump(mode="json")
        return sorted(k for k in {*before, *now} - {"runs_dir", "name"} if before.get(k) != now.get(k))


def open_or_create(runs_dir: str, name: str, config: BaseModel, resume: bool, command: str = "train") -> RunDirectory:
    """Make `runs_dir/name` for a new run, or open it to go on.

    Raises:
        RunError: it exists and `resume` was not asked for, or it does not exist or was started with another
            configuration and `resume` was.

    """
    run = RunDirectory(Path(runs_dir) / name, command)
    if resume and not run.config.exists():
        raise RunError(f"nothing to resume: {run.path} holds no run. Start it without --resume")
    with told_of_disk(run, _PLACE):
        run.path.mkdir(parents=True, exist_ok=True)
        run.lock()
        try:
            _check_free(run, config, resume)
            run.checkpoints.mkdir(exist_ok=True)
            replace_file(run.config, yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
            replace_file(run.path / "environment.json", json.dumps(_environment(), indent=1) + "\n")
        except BaseException:
            run.unlock()
            raise
    return run


@contextmanager
def told_of_disk(run: RunDirectory, kinds: Collection[int] = _DISK) -> Iterator[None]:
    """Turn a disk that is full, or takes no files, into a `RunError` that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in kinds:
            raise
        place = next(path for path in (run.path, *run.path.absolute().parents) if path.is_dir())
        free_mb = shutil.disk_usage(place).free / 2**20
        if run.command == "eval":
            go_on = "make room and give the same command again, or another --out"
        elif run.config.exists():
            go_on = f"make room, then: accredit {run.command} {run.path} --resume"
        else:
            go_on = "set runs_dir=..."
        raise RunError(
            f"cannot write to {run.path}: {error.strerror or error} ({error.filename or 'a file there'}; "
            f"{free_mb:,.0f} MB are free). What was written before is whole; {go_on}"
        ) from error


def _check_free(run: RunDirectory, config: BaseModel, resume: bool) -> None:
    """Raise `RunError` unless the folder is free, or holds the run that is to be resumed."""
    if resume:
        changed = [key for key in run.differences(config) if key not in _MAY_CHANGE]
        if changed:
            raise RunError(
                f"{run.path} was started with another configuration (differs in: {', '.join(changed)}): resume it "
                f"with its own {run.config}, or start a run of another name"
            )
    elif _holds_anything(run.path):
        raise RunError(
            f"{run.path} already holds a run: go on with --resume, or choose another name (name=...); nothing was "
            "overwritten"
        )


def _holds_anything(path: Path) -> bool:
    """Whether there is more than a start that failed leaves behind: its settings, empty folders and empty files."""
    left = {"config.yaml", "environment.json", "run.lock", "trackers.json"}
    files = [file.relative_to(path) for file in path.rglob("*") if not file.is_dir() and file.stat().st_size]
    return any(str(file) not in left and file.parts[0] not in ("tensorboard", "wandb") for file in files)


def _environment() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "git": {
            "commit": _git("rev-parse", "HEAD"),
            "changed_files": len((_git("status", "--short") or "").splitlines()),
        },
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
