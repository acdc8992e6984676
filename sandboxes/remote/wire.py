"""What crosses the line, as JSON: plain values as they are, bytes and the protocol's own types under their names.

`{"$bytes": "aGk="}`, `{"$Limits": {"wall_s": 5.0, ...}}`, `{"$Status": "ok"}`. Lists come back as tuples. Only the
types named here can be rebuilt, and nothing is executed.
"""

import base64
import binascii
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any

from accredit.sandboxes.protocol import Entry, ErrorSpan, IsolationReport, Layer, Limits, Outcome, Usage
from accredit.sandboxes.verdict import Blame, Evidence, Reported, Status, Stopped

__all__ = ["decode", "encode"]

_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Blame,
        Entry,
        ErrorSpan,
        Evidence,
        IsolationReport,
        Layer,
        Limits,
        Outcome,
        Reported,
        Status,
        Stopped,
        Usage,
    )
}


def encode(value: Any) -> Any:
    """Return a value that JSON can hold."""
    if isinstance(value, StrEnum):
        return {f"${type(value).__name__}": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if is_dataclass(value) and type(value).__name__ in _TYPES:
        return {f"${type(value).__name__}": {f.name: encode(getattr(value, f.name)) for f in fields(value)}}
    raise TypeError(f"expected a value of the sandbox protocol, found a {type(value).__name__}")


def decode(value: Any) -> Any:
    """Return what `encode` was given; raise `ValueError` for anything else."""
    if isinstance(value, list):
        return tuple(decode(item) for item in value)
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError(f"expected an object with one name such as $Limits, found {len(value)} names")
    ((name, inside),) = value.items()
    try:
        if name == "$bytes":
            return base64.b64decode(inside, validate=True)
        kind = _TYPES[name.removeprefix("$")]
        return kind(inside) if issubclass(kind, StrEnum) else kind(**{key: decode(v) for key, v in inside.items()})
    except (KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise ValueError(f"expected a value of the sandbox protocol, found {name!r}: {error}") from error
