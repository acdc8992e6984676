"""What the documents say is so: commands and options exist, code blocks compile and run, nothing local leaks."""

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from accredit.cli import COMMANDS, build_app

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")] if path.exists()
)
NAMES = [path.relative_to(ROOT).as_posix() for path in DOCUMENTS]
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(accredit [^`\n]+)`")
# in two halves, so that this file may hold them; the hosts of registries, and folders of a developer's machine
HOME = "/ro" + "ot/"  # which tests and sandboxes have reason to speak of
FORBIDDEN = [HOME] + [
    first + second
    for first, second in [
        ("/wo", "rk/"),
        ("pypi.", "org"),
        ("pythonhosted.", "org"),
        ("pytorch.org/", "whl"),
        ("registry.npm", "js"),
        ("deb.", "debian.org"),
        ("proxy.go", "lang.org"),
    ]
]


def blocks(document: Path, *languages: str) -> list[str]:
    return [body for language, body in _FENCE.findall(document.read_text(encoding="utf-8")) if language in languages]


def commands_in(document: Path) -> Iterator[str]:
    """Yield the command lines that begin with `accredit`, without prompts, comments and what they are piped into."""
    for body in blocks(document, "", "bash", "sh", "console", "shell"):
        for line in body.replace("\\\n", " ").splitlines():
            line = line.strip().removeprefix("$ ").split(" #")[0].split(" | ")[0].strip()
            if line.startswith("accredit "):
                yield line
    yield from _INLINE.findall(_FENCE.sub("", document.read_text(encoding="utf-8")))


def fault_of(line: str, group: Any) -> str | None:
    """Say what is wrong with a command line, None if its commands and options exist."""
    node, path = group, ["accredit"]
    for word in shlex.split(line)[1:]:
        if word.startswith("-"):
            option = word.partition("=")[0]
            known = {name for parameter in node.params for name in (*parameter.opts, *parameter.secondary_opts)}
            if option not in known | {"--help", "-h"}:
                return f"{' '.join(path)} has no option {option}"
        elif hasattr(node, "commands"):
            if word not in node.commands:
                return f"{' '.join(path)} has no command {word}"
            node = node.commands[word]
            path.append(word)
    return None


@pytest.mark.parametrize("name", NAMES)
def test_commands_in_documents_exist_with_their_options(name: str) -> None:
    group = typer.main.get_command(build_app(every=True))
    faults = [f"{line!r}: {fault}" for line in commands_in(ROOT / name) if (fault := fault_of(line, group))]
    assert not faults, "\n".join(faults)


def test_a_wrong_command_in_a_document_would_be_found() -> None:
    group = typer.main.get_command(build_app(every=True))
    assert fault_of("accredit envs", group) is None
    assert fault_of("accredit evns", group) == "accredit has no command evns"
    assert fault_of("accredit play Shop-v0 --sede 3", group) == "accredit play has no option --sede"


def test_every_command_is_loaded_and_says_what_it_does() -> None:
    group: Any = typer.main.get_command(build_app(every=True))
    assert set(group.commands) == {entry.name for entry in COMMANDS}
    assert all(command.help for command in group.commands.values())


@pytest.mark.parametrize("name", NAMES)
def test_python_blocks_compile(name: str) -> None:
    for body in blocks(ROOT / name, "python", "py"):
        ast.parse(body, name)


def test_ten_line_environment_of_the_readme_runs() -> None:
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("there is no README.md")
    body = next(body for body in blocks(readme, "python") if "class Prices(ToolEnv)" in body)
    play = """
from accredit.envs import make
env = make("Prices-v0")
env.reset(seed=0)
messages, *_ = env.step('<tool_call>{"name": "price", "arguments": {"item": "apple"}}</tool_call>')
assert "2.0" in messages[-1].content, messages
_, reward, terminated, *_ = env.step("6.0")
assert terminated and reward == 1.0, reward
"""
    answer = subprocess.run([sys.executable, "-c", body + play], capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stderr


def test_make_targets_in_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        named = set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE))
        assert named <= targets, f"{document.name} names {named - targets}"


def test_tracked_files_name_no_registry_host_and_no_folder_of_a_machine() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    found = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_symlink() or not path.is_file() or b"\0" in (raw := path.read_bytes())[:8000]:
            continue
        text = raw.decode("utf-8", errors="replace")
        spared = HOME if name.startswith(("tests/", "sandboxes/")) else None
        found += [f"{name} holds {word}" for word in FORBIDDEN if word in text and word != spared]
    assert not found, "\n".join(found)
