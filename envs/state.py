"""Canonical text of a state, and its hash: equal states have equal keys in every process.

25 and 25.0 are the same number, the order of a mapping or a set says nothing, and a value whose equality cannot be told
from its content (a connection, an open file, a generator) is refused instead of guessed.
"""

import dataclasses
import datetime
import decimal
import hashlib
import json
import math
from collections.abc import Mapping, Set
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np

from .errors import EnvError

__all__ = ["canonical_json", "fingerprint"]


def fingerprint(text: str) -> str:
    """Return a 128-bit hash of `text` as 32 hexadecimal digits, the same in every process."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def canonical_json(value: Any, where: str = "state") -> str:
    """Return the one JSON text of `value`; `where` names it in errors.

    Raises:
        EnvError: the value holds something whose content cannot be compared.

    """
    try:
        return _dump(_plain(value, where))
    except RecursionError as error:
        raise EnvError(f"{where} is nested too deeply, or holds itself: override state_key()") from error


def _dump(plain: Any) -> str:
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def _plain(value: Any, where: str) -> Any:
    if value is None or isinstance(value, (bool, np.bool_)):
        return None if value is None else bool(value)
    if isinstance(value, Enum):
        return _plain(value.value, where)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return _number(float(value))
    if isinstance(value, np.ndarray):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value.tolist())]
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {_key(key, where): _plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, Set):
        return ["set", *sorted((_plain(item, f"{where}{{...}}") for item in value), key=_dump)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {f.name: _plain(getattr(value, f.name), f"{where}.{f.name}") for f in fields if f.compare}
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, decimal.Decimal):
        return _number(float(value)) if value == decimal.Decimal(float(value)) else ["decimal", str(value.normalize())]
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return _number(value.total_seconds())
    if isinstance(value, PurePath):
        return str(value)
    fields = getattr(type(value), "model_fields", None)
    if isinstance(fields, Mapping):
        return {name: _plain(getattr(value, name), f"{where}.{name}") for name in fields}
    raise EnvError(
        f"{where} holds a {type(value).__qualname__}, which cannot be hashed by content: keep plain data in self.state "
        "(numbers, text, lists, mappings, dataclasses, pydantic models), or override state_key()"
    )


def _number(value: float) -> int | float | str:
    if not math.isfinite(value):
        return repr(value)
    return int(value) if value.is_integer() else value


def _key(key: Any, where: str) -> str:
    return key if isinstance(key, str) else "\0" + _dump(_plain(key, where))
