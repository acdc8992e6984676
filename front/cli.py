"""The command `accredit`: names its commands and runs one.

A command's module is imported only when that command is the one asked for, so that `accredit --help` imports neither
torch nor an environment. What a command does lives in `accredit.commands`; this module only finds it, prints the errors
that Accredit raises on purpose as one message, and settles the exit code:

0 done; 1 failed, or a check did not pass; 2 wrong command line or configuration; 130 interrupted.
"""

import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, NamedTuple, Never

import typer

from accredit.sandboxes.errors import AccreditError

from .version import __version__

__all__ = ["COMMANDS", "Entry", "build_app", "main"]


class Entry(NamedTuple):
    """A command, and the module that holds it as `command` (one command) or `app` (a group of commands)."""

    name: str
    module: str
    summary: str


COMMANDS = (
    Entry("quickstart", "accredit.commands.quickstart", "Train the small model on Shop and write a replay page."),
    Entry("train", "accredit.commands.train", "Train an agent from a configuration file."),
    Entry("sft", "accredit.commands.sft", "Warm-start a model on the scripted expert's trajectories."),
    Entry("eval", "accredit.commands.eval", "Evaluate a model on held-out tasks, with confidence intervals."),
    Entry("export", "accredit.commands.export", "Write a checkpoint as a Hugging Face model, or push it to the Hub."),
    Entry("envs", "accredit.commands.envs", "List the registered environments."),
    Entry("play", "accredit.commands.play", "Play an environment in the terminal, or watch its expert play."),
    Entry("check", "accredit.commands.check", "Check that an environment keeps its promises."),
    Entry("counterfactual", "accredit.commands.counterfactual", "Change one turn of an episode and price it again."),
    Entry("audit", "accredit.commands.audit", "Measure credit functions against the axioms of credit."),
    Entry("ablate", "accredit.commands.ablate", "Train with several credit functions by the same seeds, and judge."),
    Entry("sandbox", "accredit.commands.sandbox", "Try what this machine has to run untrusted code, and run some."),
    Entry("replay", "accredit.commands.replay", "Look at stored trajectories: who was paid, and why."),
    Entry("convert", "accredit.commands.convert", "Convert episodes to and from files of verifiers and OpenEnv."),
)

_EPILOG = "Exit codes: 0 done, 1 failed, 2 wrong command line or configuration, 130 interrupted."


def available() -> list[Entry]:
    """Name the commands whose module is there."""
    return [entry for entry in COMMANDS if find_spec(entry.module) is not None]


def build_app(selected: str | None = None, *, every: bool = False) -> typer.Typer:
    """Make the command line with one command (`selected`), or `every` one, loaded; the rest are named only."""
    app = typer.Typer(
        help="Reinforcement learning of tool-using language-model agents: the tokens the model decided get the credit.",
        epilog=_EPILOG,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich" if sys.stdout.isatty() else None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    app.callback()(_global_options)
    for entry in available():
        if not every and entry.name != selected:
            app.command(entry.name, help=entry.summary)(_named_only)
            continue
        module = import_module(entry.module)
        if hasattr(module, "app"):
            app.add_typer(module.app, name=entry.name, short_help=entry.summary)
        else:
            settings = getattr(module, "CONTEXT_SETTINGS", None)
            app.command(entry.name, short_help=entry.summary, context_settings=settings)(module.command)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    global_words, selected = _split_off_command(words)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    if selected != "export":  # which may upload for a while
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # else models draw bars between the lines of a run
    try:
        build_app(selected)(args=words, prog_name="accredit")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except KeyboardInterrupt:
        return 130
    except AccreditError as error:
        if "--debug" in global_words:
            raise
        from accredit.replay.plain import printable  # a message may quote what a model or a file said

        print(f"{type(error).__name__}: {printable(str(error))}", file=sys.stderr)
        return int(getattr(error, "exit_code", 1))
    return 0


def _split_off_command(words: list[str]) -> tuple[list[str], str | None]:
    """Global options, none of which takes a value, and the first word that is not an option."""
    for place, word in enumerate(words):
        if not word.startswith("-"):
            return words[:place], word
    return words, None


def _show_version(asked: bool) -> None:
    if asked:
        print(f"accredit {__version__}")
        raise typer.Exit


def _global_options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_show_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error. Goes before the command.")
    ] = False,
) -> None:
    if debug:
        logging.getLogger("accredit").setLevel(logging.DEBUG)


def _named_only() -> Never:
    raise AssertionError("this command was not selected, so its module was not loaded")
