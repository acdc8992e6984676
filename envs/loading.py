"""Finds an environment by what a command line or a config names: a registered name, a file, or a module.

    Shop-v0                      a registered name
    examples/prices.py:Prices    a class in a file (or a name that the file registers)
    examples/prices.py           the only ToolEnv in a file
    my_package.envs:Prices       a class in an importable module

A file is run once a process, however often it is named.
"""

import hashlib
import importlib
import importlib.util
import sys
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from gymnasium.envs.registration import EnvSpec

from .core import ToolEnv
from .errors import EnvError
from .registry import make

__all__ = ["load_env", "module_of_file"]


def load_env(reference: str, **settings: Any) -> ToolEnv:
    """Make the environment that `reference` names; `settings` go to its constructor.

    Raises:
        EnvError: there is no such file, module, class or name, or it cannot be made; says which and what is near.

    """
    place, _, name = reference.rpartition(":") if _has_place(reference) else ("", "", reference)
    if not place:
        if not _is_file(reference):
            return make(reference, **settings)
        place, name = reference, ""
    module = module_of_file(place) if _is_file(place) else _module(place, reference)
    found = getattr(module, name, None) if name else _only_env(module, place)
    if found is None and "-v" in name:
        return make(name, **settings)
    if not (isinstance(found, type) and issubclass(found, ToolEnv)):
        raise EnvError(f"'{reference}': {_what_is_there(module, place, name, found)}")
    found.check_class()
    try:
        env = found(**settings)
    except TypeError as error:
        raise EnvError(f"'{reference}' cannot be made with {settings}: {error}") from error
    env.spec = EnvSpec(
        id=found.__name__, entry_point=cast(Any, found), order_enforce=False, disable_env_checker=True, kwargs=settings
    )
    return env


def module_of_file(path: str) -> ModuleType:
    """Run a Python file as a module, or return the module if it was run before.

    Raises:
        EnvError: the file is missing or fails; names its line.

    """
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        folder = file.parent
        near = get_close_matches(file.name, [p.name for p in folder.glob("*.py")], 1) if folder.is_dir() else []
        hint = f"did you mean {Path(path).with_name(near[0])}?" if near else f"looked in {folder}"
        raise EnvError(f"there is no file {path}: {hint}")
    name = f"{file.stem}_{hashlib.blake2b(str(file).encode(), digest_size=4).hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    found = importlib.util.spec_from_file_location(name, file)
    if found is None or found.loader is None:
        raise EnvError(f"{path} is no Python file: expected path/to/file.py:Class")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    sys.path.insert(0, str(file.parent))
    try:
        found.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise EnvError(f"{path}{_line_of(error, file)} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(file.parent))
    return module


def _has_place(reference: str) -> bool:
    place, colon, name = reference.rpartition(":")
    return bool(colon) and len(place) > 1 and "/" not in name and "\\" not in name


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place.removeprefix("accredit/") or Path(place).is_file()


def _module(place: str, reference: str) -> ModuleType:
    try:
        return importlib.import_module(place)
    except ImportError as error:
        raise EnvError(
            f"'{reference}': cannot import {place} ({error}); a file is named as path/to/file.py:Class"
        ) from error


def _envs_in(module: ModuleType) -> list[str]:
    return [
        name
        for name, member in vars(module).items()
        if isinstance(member, type) and issubclass(member, ToolEnv) and member.__module__ == module.__name__
    ]


def _only_env(module: ModuleType, place: str) -> Any:
    names = _envs_in(module)
    if len(names) != 1:
        raise EnvError(
            f"{place} defines {len(names)} environments ({', '.join(names) or 'none'}): name one as {place}:Class"
        )
    return getattr(module, names[0])


def _what_is_there(module: ModuleType, place: str, name: str, found: Any) -> str:
    names = _envs_in(module)
    if found is not None:
        return f"{name} is a {type(found).__name__}, expected a ToolEnv class"
    near = get_close_matches(name, names, 1)
    return f"{place} has no '{name}', " + (
        f"did you mean {near[0]}?" if near else f"its environments: {', '.join(names) or 'none'}"
    )


def _line_of(error: Exception, file: Path) -> str:
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f", line {line},"
