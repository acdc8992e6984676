"""Tools: methods of an environment that the model may call.

`@tool` marks a method; a `Tool` is what the environment keeps of it: what the model is told, how arguments are checked,
and how long and how much it may answer. Nothing is run here (see `accredit.envs.execution`).
"""

import inspect
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, overload

from .arguments import ArgumentFault, Signature, read_signature
from .docstrings import read_docstring
from .errors import EnvError
from .messages import ToolSchema

__all__ = ["ArgumentFault", "Tool", "ToolOptions", "collect_tools", "tool"]

Function = TypeVar("Function", bound=Callable[..., Any])
MARK = "__accredit_tool__"


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """What `@tool` was told.

    Attributes:
        timeout_s: seconds that a call may take; None waits for ever (and runs a sync tool in the caller's own thread).
        output_limit: characters of a result; more is cut in the middle, and the result says so.
        parallel: whether calls next to each other may run at once. Such a tool must not write `self.state` or draw
            from `self.rng`.
        charge: amount of the charge for a failed call; None takes the environment's.

    """

    timeout_s: float | None = 5.0
    output_limit: int = 4000
    parallel: bool = False
    charge: float | None = None

    def __post_init__(self) -> None:
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise EnvError(f"@tool(timeout_s={self.timeout_s}): expected seconds above 0, or None for no limit")
        if self.output_limit < 1:
            raise EnvError(f"@tool(output_limit={self.output_limit}): expected at least 1 character")
        if self.charge is not None and not 0 <= self.charge < float("inf"):
            raise EnvError(f"@tool(charge={self.charge}): expected 0 (no charge) or a finite amount above it")


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of an environment.

    Attributes:
        schema: what the model is told.
        run: called as `run(env, **arguments)`; may be a coroutine function.
        bind: checks the model's arguments and returns the keyword arguments; raises `ArgumentFault`.

    """

    schema: ToolSchema
    run: Callable[..., Any]
    bind: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    options: ToolOptions = ToolOptions()
    returns_nothing: bool = False

    @property
    def name(self) -> str:
        """The name that the model calls."""
        return self.schema.name

    @property
    def is_async(self) -> bool:
        """Whether `run` must be awaited."""
        return inspect.iscoroutinefunction(self.run)


@overload
def tool(function: Function, /) -> Function: ...
@overload
def tool(
    *, timeout_s: float | None = ..., output_limit: int = ..., parallel: bool = ..., charge: float | None = ...
) -> Callable[[Function], Function]: ...
def tool(
    function: Any = None,
    /,
    *,
    timeout_s: float | None = 5.0,
    output_limit: int = 4000,
    parallel: bool = False,
    charge: float | None = None,
) -> Any:
    """Mark a method of a `ToolEnv` as a tool of the model.

    The description comes from the docstring, the parameters from the type hints and the docstring's `Args:`.

    Args:
        function: the method, sync or async.
        timeout_s: seconds that a call may take (default 5); None waits for ever. A sync tool cannot be stopped: its
            thread is left behind, and the environment refuses to be reset or forked until it ends.
        output_limit: characters of a result (default 4000); more is cut in the middle.
        parallel: whether neighbouring calls may run at once; such a tool writes no state and draws no luck.
        charge: amount of the charge for a failed call; None (default) takes the environment's, 0 charges nothing.

    Raises:
        EnvError: an option is out of range, or this is not a method.

    """
    options = ToolOptions(timeout_s, output_limit, parallel, charge)

    def mark(method: Any) -> Any:
        if not inspect.isfunction(method):
            raise EnvError(
                f"@tool needs a method with `self`, found a {type(method).__name__}: put @tool on a plain def"
            )
        if inspect.isasyncgenfunction(method) or inspect.isgeneratorfunction(method):
            raise EnvError(f"tool {method.__name__} is a generator: return its results as a list")
        setattr(method, MARK, options)
        return method

    return mark if function is None else mark(function)


def collect_tools(cls: type, inherited: Mapping[str, Tool], reserved: Container[str]) -> dict[str, Tool]:
    """Return the tools of `cls`: the inherited ones, overridden and extended by its own methods.

    No tool may have a name of `reserved`.

    An overriding method stays a tool without being marked again; an attribute that is not callable hides it.

    Raises:
        EnvError: a signature cannot be turned into a schema.
        NameError: a type hint names something that is not defined yet.

    """
    tools = dict(inherited)
    for name, member in vars(cls).items():
        options = getattr(member, MARK, None)
        if options is None and name in inherited:
            options = inherited[name].options
            if not inspect.isfunction(member):
                del tools[name]
                continue
        if options is not None and name in reserved:
            raise EnvError(
                f"tool {cls.__name__}.{name}: ToolEnv itself has '{name}': name the tool otherwise, such as '{name}_it'"
            )
        if options is not None:
            tools[name] = _read_tool(cls, name, member, options)
    return tools


def _read_tool(cls: type, name: str, method: Callable[..., Any], options: ToolOptions) -> Tool:
    if name.startswith("_"):
        raise EnvError(f"tool {cls.__name__}.{name}: the model calls it by this name, which must not start with '_'")
    doc = read_docstring(method.__doc__)
    signature: Signature = read_signature(method, f"{cls.__name__}.{name}", doc)
    unknown = [parameter for parameter in doc.parameters if parameter not in signature.names]
    if unknown:
        raise EnvError(
            f"tool {cls.__name__}.{name}: its docstring describes '{unknown[0]}', which is no parameter of it"
        )
    nothing = method.__annotations__.get("return", "") in (None, "None")
    schema = ToolSchema(name, doc.description, signature.schema)
    return Tool(schema, method, signature.bind, replace(options), nothing)
