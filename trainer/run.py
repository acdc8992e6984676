"""The run directory: what it holds, and that nothing in it is overwritten silently.

runs/NAME/ holds `config.yaml` (resolved), `environment.json` (versions, git state), `metrics.jsonl`, `tensorboard/`,
`checkpoints/` and `traces/`.
"""

import importlib.metadata
import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from accredit.sandboxes.errors import AccreditError

from .metrics import read_metrics

__all__ = ["RunDirectory", "RunError", "open_or_create"]

_PACKAGES = ("accredit", "torch", "transformers", "tokenizers", "numpy", "gymnasium", "pyarrow", "pydantic")


class RunError(AccreditError, RuntimeError):
    """A run cannot start, or cannot go on."""


class RunDirectory:
    """Paths of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.traces = path / "traces"
        self.metrics = path / "metrics.jsonl"
        self.config = path / "config.yaml"

    def history(self) -> list[dict[str, Any]]:
        """Return the metrics so far, oldest first; empty for a new run."""
        return read_metrics(self.metrics) if self.metrics.exists() else []

    def differences(self, config: BaseModel) -> list[str]:
        """Return the settings in which `config` differs from that of the run, apart from where the run lies."""
        before = yaml.safe_load(self.config.read_text(encoding="utf-8")) or {}
        now = config.model_dump(mode="json")
        return sorted(k for k in {*before, *now} - {"runs_dir", "name"} if before.get(k) != now.get(k))


def open_or_create(runs_dir: str, name: str, config: BaseModel, resume: bool) -> RunDirectory:
    """Make `runs_dir/name` for a new run, or open it to go on.

    Raises:
        RunError: it exists and `resume` was not asked for, or it does not exist or was started with another
            configuration and `resume` was.

    """
    run = RunDirectory(Path(runs_dir) / name)
    resolved = config.model_dump(mode="json")
    if resume:
        if not run.config.exists():
            raise RunError(f"nothing to resume: {run.path} holds no run. Start it without --resume")
        changed = [key for key in run.differences(config) if key != "steps"]
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
    run.checkpoints.mkdir(parents=True, exist_ok=True)
    run.config.write_text(yaml.safe_dump(resolved, sort_keys=False))
    (run.path / "environment.json").write_text(json.dumps(_environment(), indent=1) + "\n")
    return run


def _holds_anything(path: Path) -> bool:
    """Whether there is more than a start that failed leaves behind: its settings, empty folders and empty files."""
    left = {"config.yaml", "environment.json"}
    files = [file.relative_to(path) for file in path.rglob("*") if not file.is_dir() and file.stat().st_size]
    return any(str(file) not in left and file.parts[0] != "tensorboard" for file in files)


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
