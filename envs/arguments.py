"""A tool's arguments: their JSON schema from the signature, and their strict check against what the model sent.

Strict means that nothing is guessed: `"3"` is no number and `true` is no 1; only 3.0 is the integer 3, as JSON has it.
The first fault names the JSON path of the offending value, so that its own tokens can be charged.
"""

import inspect
import json
import typing
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic_core import ErrorDetails, SchemaError

from .docstrings import Docstring
from .errors import EnvError
from .jsonspans import child_path

__all__ = ["ArgumentFault", "Signature", "read_signature"]

SHOWN_FAULTS = 3
SHOWN_CHARACTERS = 60
_CONFIG = ConfigDict(strict=True, extra="forbid", protected_namespaces=(), validate_default=False)
_NO_TYPE = "write a type hint, for example `{name}: str`"
_KINDS = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "dataclass_type": "an object",
    "none_required": "null",
}


class ArgumentFault(Exception):
    """The model's arguments do not fit. `path` is the JSON path of the value to charge, "$" for all of them."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.message = message
        self.path = path


class Signature:
    """The parameters of one tool. `schema` is what the model is told, `bind` checks what it sent."""

    def __init__(self, tool: str, model: type[BaseModel], names: Mapping[str, str]) -> None:
        self.tool = tool
        self.schema: dict[str, Any] = _told(model.model_json_schema(by_alias=True), top=True)
        self._model = model
        self._names = dict(names)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters' names, in order."""
        return tuple(self._names)

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments for the tool.

        Raises:
            ArgumentFault: they do not fit; its message is for the model.

        """
        given = json.loads(json.dumps(arguments)) if arguments else {}
        try:
            try:
                checked = self._check(given)
            except ValidationError as error:
                if not _read_whole_floats(given, error.errors(include_url=False)):
                    raise
                checked = self._check(given)
        except ValidationError as error:
            raise self._fault(given, error.errors(include_url=False)) from None
        return {name: getattr(checked, field) for name, field in self._names.items()}

    def _check(self, given: Any) -> BaseModel:
        return self._model.model_validate_json(json.dumps(given), strict=True)

    def _fault(self, given: Any, faults: Sequence[ErrorDetails]) -> ArgumentFault:
        said: dict[str, list[str]] = {}
        for fault in faults:
            path = _path(given, fault["loc"])
            said.setdefault(path if fault["type"] != "missing" else f"{path}?", []).append(self._say(given, fault))
        shown = [" or ".join(dict.fromkeys(texts)) for texts in said.values()]
        rest = f"; and {len(shown) - SHOWN_FAULTS} more" if len(shown) > SHOWN_FAULTS else ""
        first = next(iter(said)).removesuffix("?")
        return ArgumentFault("; ".join(shown[:SHOWN_FAULTS]) + rest, first)

    def _say(self, given: Any, fault: ErrorDetails) -> str:
        path, kind = _path(given, fault["loc"]), fault["type"]
        name = path.removeprefix("$.")
        if kind == "missing":
            inside = f' in "{name}"' if path != "$" else ""
            return f'missing argument "{fault["loc"][-1]}"{inside}'
        if kind in ("extra_forbidden", "unexpected_keyword_argument"):
            wrong = str(fault["loc"][-1])
            if len(fault["loc"]) > 1:
                return f'unknown argument "{name}"'
            near = get_close_matches(wrong, self._names, 1)
            known = ", ".join(self._names) or "none"
            return f'unknown argument "{_short(wrong)}"' + (
                f', did you mean "{near[0]}"?' if near else f" (expected: {known})"
            )
        if kind == "json_invalid":
            return "the arguments hold text that is not valid Unicode"
        expected = _KINDS.get(kind) or _lower_first(fault["msg"].removeprefix("Input should be "))
        verb = "" if fault["msg"].startswith("Value error, ") or kind == "assertion_error" else "must be "
        return f'argument "{name}" {verb}{expected.removeprefix("value error, ")}, found {_found(fault.get("input"))}'


def read_signature(function: Callable[..., Any], tool: str, doc: Docstring) -> Signature:
    """Build the argument model of a tool's method.

    Raises:
        EnvError: a parameter cannot be put into a JSON schema; names it and says what to do.
        NameError: a type hint names something that is not defined yet.

    """
    hints = typing.get_type_hints(function, include_extras=True)
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].name != "self":
        raise EnvError(f"tool {tool}: its first parameter must be `self`: tools are methods of the environment")
    fields: dict[str, Any] = {}
    for index, parameter in enumerate(parameters[1:]):
        name = parameter.name
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            what = "is positional-only" if parameter.kind is parameter.POSITIONAL_ONLY else "takes any arguments"
            raise EnvError(f"tool {tool}, parameter '{name}' {what}: the model needs a fixed list of named parameters")
        if name not in hints:
            raise EnvError(f"tool {tool}, parameter '{name}' has no type: {_NO_TYPE.format(name=name)}")
        default = ... if parameter.default is parameter.empty else parameter.default
        described = Field(default, alias=name, description=doc.parameters.get(name) or None)
        fields[f"field_{index}"] = (hints[name], described)
        _check_type(tool, name, hints[name], default)
    names = {parameter.name: f"field_{index}" for index, parameter in enumerate(parameters[1:])}
    return Signature(tool, create_model(tool, __config__=_CONFIG, **fields), names)


def _check_type(tool: str, name: str, hint: Any, default: Any) -> None:
    try:
        create_model(tool, __config__=_CONFIG, value=(hint, default)).model_json_schema()
    except (PydanticUserError, SchemaError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise EnvError(
            f"tool {tool}, parameter '{name}': {hint!r} has no JSON schema ({reason}): use text, numbers, booleans, "
            "lists, mappings, Literal, Enum, dataclasses or pydantic models"
        ) from error


def _told(schema: Any, top: bool = False) -> Any:
    """Drop what costs prompt tokens and tells nothing: titles, and `additionalProperties: false`."""
    if isinstance(schema, list):
        return [_told(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    told: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            told[key] = {name: _told(item) for name, item in value.items()}
        elif key in ("default", "const", "enum", "examples"):
            told[key] = value
        elif not (key == "title" or (key == "additionalProperties" and value is False)):
            told[key] = _told(value)
    if top:
        told.setdefault("properties", {})
    return told


def _read_whole_floats(given: Any, faults: Sequence[ErrorDetails]) -> bool:
    """Turn 3.0 into 3 where an integer was expected; return whether anything was turned."""
    turned = False
    for fault in faults:
        value = fault.get("input")
        if (
            fault["type"] not in ("int_type", "int_from_float")
            or not isinstance(value, float)
            or not value.is_integer()
        ):
            continue
        steps = _steps(given, fault["loc"])
        owner = given
        for step in steps[:-1]:
            owner = owner[step]
        if steps and isinstance(owner[steps[-1]], float):
            owner[steps[-1]] = int(value)
            turned = True
    return turned


def _steps(given: Any, location: Sequence[int | str]) -> list[int | str]:
    """Return the steps of pydantic's location that exist in `given`; the others name types, or what is missing."""
    steps: list[int | str] = []
    for step in location:
        if isinstance(given, dict) and isinstance(step, str) and step in given:
            given = given[step]
        elif isinstance(given, list) and isinstance(step, int) and step < len(given):
            given = given[step]
        else:
            continue
        steps.append(step)
    return steps


def _path(given: Any, location: Sequence[int | str]) -> str:
    path = "$"
    for step in _steps(given, location):
        path = child_path(path, step)
    return path


def _found(value: Any) -> str:
    return _short(json.dumps(value, ensure_ascii=False, default=repr))


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
