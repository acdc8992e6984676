"""`accredit play`: an environment in the terminal, played by a person, by a file of moves, or by its own expert."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from accredit.envs import Message, ToolEnv
from accredit.shorthand import message_from, usage

from .named import ENV_HELP, make_environment

__all__ = ["command"]

_HELP = "Type a call (TOOL NAME=VALUE ...), or an answer in words, which ends the episode. /tools, /quit."


def command(
    env: Annotated[str, typer.Argument(metavar="ENV", help=ENV_HELP)],
    expert: Annotated[bool, typer.Option("--expert", help="Watch the environment's scripted expert.")] = False,
    script: Annotated[
        Path | None,
        typer.Option(help="Play the lines of this file, one message a line, instead of asking.", show_default="ask"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the first episode; the next ones count up.", min=0)] = 0,
    episodes: Annotated[int, typer.Option(help="Episodes to play.", min=1)] = 1,
    level: Annotated[str | None, typer.Option(help="Difficulty.", show_default="the environment's own")] = None,
    split: Annotated[str, typer.Option(help="Tasks to draw from: train or heldout.")] = "train",
) -> None:
    """Play an environment in the terminal, or watch its expert play.

    What the model would see is printed as it comes; so are charges, rewards and the reason of the end.
    """
    if expert and script is not None:
        raise typer.BadParameter("--expert and --script exclude each other: one of them plays")
    if split not in ("train", "heldout"):
        raise typer.BadParameter(f"expected train or heldout, found {split!r}", param_hint="--split")
    environment = make_environment(env)
    if expert and type(environment).expert is ToolEnv.expert:
        raise typer.BadParameter(f"{env} has no expert: it defines no `expert`", param_hint="--expert")
    if level is not None and level not in environment.levels:
        known = ", ".join(environment.levels) or "none"
        raise typer.BadParameter(f"expected a level of {env} ({known}), found {level!r}", param_hint="--level")
    options = {"split": split} | ({} if level is None else {"level": level})
    lines = typed_lines() if script is None else iter(script.read_text(encoding="utf-8").splitlines())
    try:
        for episode_seed in range(seed, seed + episodes):
            total = play_episode(environment, episode_seed, options, None if expert else lines)
            if total is None:
                return
    finally:
        environment.close()


def play_episode(env: ToolEnv, seed: int, options: dict[str, Any], lines: Iterator[str] | None) -> float | None:
    """Play one episode from `lines`, or by the expert if None; return its reward, None if it was broken off."""
    messages, _ = env.reset(seed=seed, options=options)
    print(f"=== {type(env).__name__}, seed {seed}, {options['split']}")
    show(messages)
    show_tools(env)
    if lines is not None:
        print(_HELP)
    moves = env.expert() if lines is None else said(env, lines)
    total = 0.0
    for turn in count(1):
        text = next(moves, None)
        if text is None:
            print("=== broken off: no more moves")
            return None
        show((Message("assistant", text),))
        messages, reward, terminated, truncated, _ = env.step(text)
        total += float(reward)
        show(messages)
        show_charges(env)
        if terminated or truncated:
            print(f"=== {'ended' if terminated else 'cut off by a limit'} after {turn} turns, reward {total:g}")
            break
    return total


def said(env: ToolEnv, lines: Iterator[str]) -> Iterator[str]:
    """Turn typed lines into messages; those that begin with a slash are for the terminal."""
    for line in lines:
        match line.strip():
            case "":
                continue
            case "/quit":
                return
            case "/tools":
                show_tools(env)
            case typed if typed.startswith("/"):
                print(_HELP)
            case typed:
                yield message_from(typed, {name: tool.schema for name, tool in env.tools.items()})


def typed_lines() -> Iterator[str]:
    """Yield what is typed, or piped in, until its end."""
    if sys.stdin.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401  (input() then has a history and an editable line)
    while True:
        try:
            yield input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return


def show(messages: tuple[Message, ...]) -> None:
    """Print messages, each under its role."""
    for message in messages:
        head(f"{message.role} {printable(message.name)}" if message.name else message.role)
        print(printable(message.content))


def show_tools(env: ToolEnv) -> None:
    """Print the tools as they are typed."""
    head("tools")
    for tool in env.tools.values():
        print(f"  {usage(tool.schema)}")


def show_charges(env: ToolEnv) -> None:
    """Print what the last turn was charged, and for which words."""
    report = env.last_turn
    if report is None:
        return
    for result in report.results:
        for charge in result.charges:
            words = " ".join(printable(report.parsed.text[charge.start : charge.end]).split())
            head(f"charged {charge.amount:g} for {charge.reason}: {words}", typer.colors.RED)


def head(text: str, color: str = typer.colors.CYAN) -> None:
    """Print the line above a message; the colour is for terminals only."""
    typer.secho(f"--- {text}", fg=color)


def printable(text: str) -> str:
    """Return `text` with control characters made visible, so that no tool's output can drive the terminal."""
    return "".join(char if char in "\n\t" or char.isprintable() else f"\\u{ord(char):04x}" for char in text)
