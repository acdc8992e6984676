"""Credit functions from elsewhere, named as `package.module:name`.

What the name leads to may be

- a class: it is made with the options, and the object is the credit function;
- a function that takes a group first: it is the credit function, its options are keywords;
- a function without a positional argument to fill: it is called with the options and returns the credit function.

Charges are the business of the function itself: `charge_scale` is passed on if it takes one. One that takes none is
refused any other scale than 1. Module search is Python's own, with the working directory added.
"""

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, cast

from accredit.credit.errors import AccreditError, CreditError
from accredit.credit.ledger import CreditFunction

__all__ = ["outside_function"]


def outside_function(path: str, /, **options: Any) -> CreditFunction:
    """Return the credit function at `path` with its options.

    Raises:
        CreditError: no such module, no such name in it, it cannot be called, or it does not take the options.

    """
    module_name, _, name = path.rpartition(":")
    if not module_name or not name.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise CreditError(f"credit function '{path}': expected package.module:name")
    found: Any = _found(path, module_name, name)
    if not callable(found):
        raise CreditError(
            f"credit function '{path}': {name} is a {type(found).__name__}, expected a class or a function"
        )
    parameters = _parameters(path, found)
    _check_options(path, parameters, options)
    if "charge_scale" in options and not _takes(parameters, "charge_scale"):
        del options["charge_scale"]
    if not isinstance(found, type) and _wants_group(parameters, options):
        if lacking := _lacking(parameters, options):
            raise CreditError(f"credit function '{path}' needs the option {' and '.join(map(repr, lacking))}")
        return cast(CreditFunction, functools.partial(found, **options) if options else found)
    try:
        made: object = found(**options)
    except AccreditError:
        raise
    except Exception as error:  # it is somebody else's code
        what = str(error) if isinstance(error, (TypeError, ValueError)) else f"{type(error).__name__}: {error}"
        raise CreditError(f"credit function '{path}' cannot be made with {options}: {what}") from error
    if not callable(made):
        raise CreditError(
            f"credit function '{path}' made a {type(made).__name__}, expected a function from a group to its credit"
        )
    return cast(CreditFunction, made)


def _found(path: str, module_name: str, name: str) -> Any:
    with _working_directory():
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
                raise CreditError(
                    f"credit function '{path}': there is no module '{error.name}' on Python's path or in {os.getcwd()}"
                ) from error
            raise CreditError(f"credit function '{path}': importing {module_name} failed: {error}") from error
        except Exception as error:
            raise CreditError(
                f"credit function '{path}': importing {module_name} failed: {type(error).__name__}: {error}"
            ) from error
    if not hasattr(module, name):
        near = get_close_matches(name, [word for word in vars(module) if not word.startswith("_")], n=1)
        hint = f": did you mean '{near[0]}'?" if near else ""
        raise CreditError(f"credit function '{path}': {module_name} has no '{name}'{hint}")
    return getattr(module, name)


@contextmanager
def _working_directory() -> Iterator[None]:
    """Let modules beside a configuration be found, after those that are installed."""
    here = os.getcwd()
    if here in sys.path:  # it is found there already: a second entry could not be told from the first when taken away
        yield
        return
    sys.path.append(here)
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)


def _parameters(path: str, found: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(found).parameters.values())
    except (TypeError, ValueError) as error:
        raise CreditError(f"credit function '{path}': its arguments cannot be read: {error}") from error


def _takes(parameters: list[inspect.Parameter], option: str) -> bool:
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return any(p.kind is p.VAR_KEYWORD or (p.name == option and p.kind in named) for p in parameters)


def _wants_group(parameters: list[inspect.Parameter], options: dict[str, Any]) -> bool:
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in positional and p.default is p.empty and p.name not in options for p in parameters)


def _lacking(parameters: list[inspect.Parameter], options: dict[str, Any]) -> list[str]:
    """Return the names, behind the group, that have neither a default nor an option."""
    open_ones = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p for p in parameters if p.default is p.empty and p.kind not in open_ones and p.name not in options]
    positional = [p for p in needed if p.kind is not p.KEYWORD_ONLY]
    return [p.name for p in needed if p is not positional[0]]


def _check_options(path: str, parameters: list[inspect.Parameter], options: dict[str, Any]) -> None:
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for option, value in options.items():
        if _takes(parameters, option):
            continue
        if option == "charge_scale":
            if value != 1.0:
                raise CreditError(
                    f"credit function '{path}' takes no charge_scale, so charges cannot be scaled to {value}: "
                    "leave it at 1, or give the function the option"
                )
            continue
        near = get_close_matches(option, known, n=1, cutoff=0.5)
        hint = f": did you mean '{near[0]}'?" if near else f": expected one of {', '.join(known) or 'none'}"
        raise CreditError(f"credit function '{path}' has no option '{option}'{hint}")
