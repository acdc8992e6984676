"""Makes the environment that a command line names; a wrong name is a wrong command line."""

import os
import sys

import typer

from accredit.envs import EnvError, ToolEnv, load_env

__all__ = ["ENV_HELP", "make_environment"]

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
