"""Reads the configuration of a run from a file and from overrides of the command line.

Dotted overrides (`rollout.groups=8`) go over the file, and every mistake is reported at once, unknown keys with their
nearest match.
"""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from .config import ConfigError, RunConfig

__all__ = ["load_config", "load_run"]

C = TypeVar("C", bound=RunConfig)


def load_config(kind: type[C], path: Path | str | None, overrides: Sequence[str] = ()) -> C:
    """Read `path` (YAML or TOML; None: nothing but overrides) and apply overrides of the form `a.b=value`.

    An environment's file (`env: grocer.py:Grocer`) is looked up from the working directory, then beside `path`. Values
    of overrides are read as YAML, so `loss.kl=0.01`, `rollout.turns=null` and `env_options={level: hard}` work.

    Raises:
        ConfigError: the file cannot be read, or anything in it is wrong; all mistakes are listed.

    """
    data = _read(Path(path)) if path is not None else {}
    if path is not None and isinstance(data.get("env"), str):
        data["env"] = _beside(data["env"], Path(path))
    mistakes: list[str] = []
    for override in overrides:
        key, separator, text = override.partition("=")
        if not separator or not key:
            mistakes.append(f"override '{override}': expected key=value, such as optimizer.lr=1e-4")
            continue
        _set(data, key.strip().split("."), yaml.safe_load(text), mistakes)
    try:
        config = kind.model_validate(_numbers(data))
    except ValidationError as error:
        mistakes += [_explain(kind, dict(item)) for item in error.errors()]
    else:
        if not mistakes:
            return config
    where = f" in {path}" if path else ""
    listed = "\n".join(f"  - {mistake}" for mistake in mistakes)
    raise ConfigError(f"{len(mistakes)} mistake{'s' if len(mistakes) > 1 else ''}{where}:\n{listed}")


def load_run(kind: type[C], path: Path, overrides: Sequence[str], resume: bool) -> C:
    """Read `path`, a file or the directory of a run; with `resume` it is the run that is named, wherever it lies now.

    Raises:
        ConfigError: as of `load_config`.

    """
    config = load_config(kind, path / "config.yaml" if path.is_dir() else path, overrides)
    if resume and path.is_dir():
        where = path.resolve()
        config = config.model_copy(update={"runs_dir": str(where.parent), "name": where.name})
    return config


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from error
    try:
        data = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} is not valid {'TOML' if path.suffix == '.toml' else 'YAML'}: {error}") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds a {type(data).__name__}, expected keys and values")
    return data


def _beside(env: str, config: Path) -> str:
    """Return `env` with its file's whole path, where it names a file that lies beside the configuration only."""
    place, colon, name = env.partition(":")
    file = config.parent / place
    if not place.endswith(".py") or Path(place).expanduser().exists() or not file.is_file():
        return env
    return f"{file.resolve()}{colon}{name}"


def _set(data: dict[str, Any], keys: list[str], value: Any, mistakes: list[str]) -> None:
    for key in keys[:-1]:
        data = data.setdefault(key, {})
        if not isinstance(data, dict):
            mistakes.append(f"override '{'.'.join(keys)}': '{key}' is a value, not a table")
            return
    data[keys[-1]] = value


def _numbers(data: Any) -> Any:
    """Read numbers such as 1e-4, which YAML 1.1 takes for text."""
    if isinstance(data, Mapping):
        return {key: _numbers(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_numbers(value) for value in data]
    if isinstance(data, str) and data[:1] in "+-.0123456789" and "e" in data.lower():
        try:
            return float(data)
        except ValueError:
            return data
    return data


def _explain(kind: type[BaseModel], error: dict[str, Any]) -> str:
    path = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        fields = _fields(kind, error["loc"][:-1])
        near = difflib.get_close_matches(str(error["loc"][-1]), fields, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(sorted(fields))}"
        return f"{path}: unknown key; {hint}"
    found = "" if error["type"] == "missing" else f" (found {error['input']!r})"
    return f"{path or 'configuration'}: {error['msg']}{found if len(found) < 80 else ''}"


def _fields(kind: type[BaseModel], path: Sequence[Any]) -> list[str]:
    for part in path:
        annotation: Any = kind.model_fields[part].annotation
        kind = next(each for each in (annotation, *get_args(annotation)) if hasattr(each, "model_fields"))
    return list(kind.model_fields)
