"""What the documents say is so: commands and options exist, code blocks compile and run, nothing local leaks."""

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from accredit.cli import COMMANDS, build_app

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")] if path.exists()
)
NAMES = [path.relative_to(ROOT).as_posix() for path in DOCUMENTS]
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_RUNNABLE = re.compile(r"^```python run\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
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
        assert ast.parse(body, name).body, f"{name}: a python block without a statement"


def runnable(document: Path) -> str:
    """Return the blocks of a document that are marked `python run`, as one script."""
    return "\n".join(_RUNNABLE.findall(document.read_text(encoding="utf-8")))


def lay_out_demo_run(folder: Path) -> None:
    """Write `runs/demo` with priced episodes of Chain, which documents read."""
    from accredit.credit.exact import ChainProcess
    from accredit.credit.functions import credit_function
    from accredit.credit.traces import TraceWriter

    rng = np.random.default_rng(0)
    writer = TraceWriter(folder / "runs" / "demo" / "traces")
    for step in (1, 2):
        group = ChainProcess(turns=4, relevant=2).sample_group(rng, 4)
        writer.write(step, [group], [credit_function("anchored")(group)], lambda ids: [b"%d " % at for at in ids])


@pytest.mark.parametrize("name", [name for name in NAMES if runnable(ROOT / name)])
def test_blocks_marked_as_runnable_run_in_order(name: str, tmp_path: Path) -> None:
    body = runnable(ROOT / name)
    for module in {"duckdb", "pandas"} & set(re.findall(r"^import (\w+)", body, re.MULTILINE)):
        pytest.importorskip(module)
    lay_out_demo_run(tmp_path)
    (tmp_path / "page.py").write_text(body, encoding="utf-8")
    answer = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240, env=quiet_environment()
    )
    last = (answer.stderr.strip().splitlines() or [""])[-1]
    if "SandboxError" in last and os.environ.get("REQUIRE_SANDBOX") != "1":
        pytest.skip(f"no sandbox on this machine: {last}")
    assert answer.returncode == 0, answer.stderr


def quiet_environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def anchors_of(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as code hosts make them."""
    text = _FENCE.sub("", document.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("name", NAMES)
def test_links_between_documents_lead_somewhere(name: str) -> None:
    document = ROOT / name
    faults = []
    for link in _LINK.findall(_FENCE.sub("", document.read_text(encoding="utf-8"))):
        place, _, anchor = link.partition("#")
        if "://" in place:
            continue
        target = (document.parent / place).resolve() if place else document
        if not target.exists():
            faults.append(f"{link}: there is no {place}")
        elif anchor and anchor not in anchors_of(target):
            faults.append(f"{link}: {target.name} has no heading '{anchor}'")
    assert not faults, "\n".join(faults)


def test_every_document_can_be_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    reached = {(index.parent / link.partition("#")[0]).resolve() for link in _LINK.findall(index.read_text("utf-8"))}
    missing = {path for path in ROOT.glob("docs/**/*.md")} - reached - {index}
    assert not missing, f"docs/index.md has no link to {sorted(path.name for path in missing)}"


def test_the_reference_is_what_the_source_says() -> None:
    answer = subprocess.run(
        [sys.executable, "docs/build_reference.py", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert answer.returncode == 0, f"run python docs/build_reference.py\n{answer.stdout}{answer.stderr}"


def test_the_train_page_names_every_metric_and_no_other() -> None:
    from accredit.trainer.evaluation import Evaluation

    page = (ROOT / "docs" / "how-to" / "train.md").read_text(encoding="utf-8")
    metric = re.compile(r"[`\"]((?:rollout|credit|advantage|optimizer|loss|policy|time|train|eval)/[a-z_]+)[`\"]")
    written = {f"eval/{field}" for field in Evaluation._fields}
    for path in (ROOT / "trainer").glob("*.py"):
        written |= set(metric.findall(path.read_text(encoding="utf-8")))
    told = set(metric.findall(page))
    assert told == written, f"not told: {sorted(written - told)}, not written: {sorted(told - written)}"


def test_ten_line_environment_of_the_readme_runs() -> None:
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("there is no README.md")
    body = next(body for body in blocks(readme, "python") if "class Prices(ToolEnv)" in body)
    play = """
from accredit.envs import make
env = make("Prices-v0")
env.reset(seed=0)
messages, *_ = env.step('<tool_call>{"name": "price", "arguments": {"item": "candle"}}</tool_call>')
assert "2.0" in messages[-1].content, messages
_, reward, terminated, *_ = env.step("2.0")
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
