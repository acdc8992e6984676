"""Reads what a command line names: the environment, and settings; a wrong name is a wrong command line."""

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches

import typer

from accredit.envs import EnvError, ToolEnv, load_env

__all__ = ["ENV_HELP", "make_environment", "refuse_options"]

ENV_HELP = "Environment: a registered name (see `accredit envs`), FILE.py:CLASS, or MODULE:CLASS."


def make_environment(reference: str) -> ToolEnv:
    """Make the environment that `reference` names, at text level.

    Raises:
        typer.BadParameter: it names none, or none that can be made.

    """
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())  # a console script, unlike `python -m`, does not look there for modules
    try:
        return load_env(reference)
    except EnvError as error:
        raise typer.BadParameter(str(error), param_hint="ENV") from error


def refuse_options(overrides: Sequence[str], options: Sequence[str]) -> None:
    """Refuse words that look like options among `overrides`: settings are written KEY=VALUE.

    Raises:
        typer.BadParameter: says how the setting is written, or which of the command's `options` is near.

    """
    for place, word in enumerate(overrides):
        if not word.startswith("-"):
            continue
        name, _, value = word.lstrip("-").partition("=")
        near = get_close_matches(word, options, 1, 0.8)
        if near:
            raise typer.BadParameter(f"there is no option {word}, did you mean {near[0]}?")
        after = overrides[place + 1] if place + 1 < len(overrides) else ""
        value = value or (after if after and "=" not in after else "VALUE")
        raise typer.BadParameter(
            f"there is no option {word}; settings are written KEY=VALUE, no dashes: {name.replace('-', '_')}={value}"
        )
