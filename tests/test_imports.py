"""Imports point down, never in a circle, and what is heavy is imported only where it is needed."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = ["sandboxes", "credit", "envs", "agents", "replay", "trainer", "front"]  # from the ground up
HEAVY = {
    "docker": ["sandboxes/docker"],
    "duckdb": [],
    "httpx": ["agents/openai", "agents/vllm/server", "sandboxes/remote/client"],
    "openai": ["agents/openai"],
    "pandas": [],
    "peft": ["agents/lora"],
    "playwright": [],
    "pyarrow": ["credit/traces/"],
    "ray": ["trainer/distributed", "agents/ray", "sandboxes/remote/ray"],
    "renderers": ["envs/package"],
    "starlette": ["replay/serve/server", "sandboxes/remote/server"],
    "torch": [
        "agents/grouped_attention",
        "agents/kvcache",
        "agents/lora",
        "agents/models",
        "agents/ray",
        "agents/transformers",
        "agents/vllm",
        "trainer/",
    ],
    "transformers": [
        "agents/grouped_attention",
        "agents/kvcache",
        "agents/models",
        "agents/transformers",
        "agents/vllm",
        "envs/tinytokenizers",
        "trainer/",
    ],
    "uvicorn": ["replay/serve/server", "sandboxes/remote/server"],
    "vllm": ["agents/vllm"],
}


@dataclass(frozen=True)
class Import:
    """One import statement's target: `module` is absolute; `lazy` = inside a function."""

    source: str  # the importing module
    path: Path  # its file, relative to the root
    line: int
    module: str
    lazy: bool
    typing_only: bool

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.module}"


def module_name(path: Path) -> str:
    parts = list(path.with_suffix("").parts)
    parts = parts[1:] if parts[0] == "front" else parts
    return ".".join(["accredit", *(parts[:-1] if parts[-1:] == ["__init__"] else parts)])


FILES = {
    module_name(path.relative_to(ROOT)): path.relative_to(ROOT)
    for floor in FLOORS
    for path in sorted((ROOT / floor).rglob("*.py"))
}


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def targets(node: ast.Import | ast.ImportFrom, source: str, is_package: bool) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        package = source if is_package else source.rpartition(".")[0]
        base = ".".join([*package.split(".")[: len(package.split(".")) - node.level + 1], *([base] if base else [])])
    # `from package import module` imports the module; `from module import name` the module
    found = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in FILES else base for alias in node.names]
    return sorted(set(found))


def imports_of(path: Path, source: str) -> Iterator[Import]:
    def walk(node: ast.AST, lazy: bool, typing_only: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for module in targets(node, source, path.name == "__init__.py"):
                yield Import(source, path, node.lineno, module, lazy, typing_only)
        if isinstance(node, ast.If) and is_type_checking(node.test):
            for child in node.body:
                yield from walk(child, lazy, True)
            for child in node.orelse:
                yield from walk(child, lazy, typing_only)
            return
        lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, lazy, typing_only)

    yield from walk(ast.parse((ROOT / path).read_text(encoding="utf-8")), False, False)


IMPORTS = [found for source, path in FILES.items() for found in imports_of(path, source)]


def floor_of(module: str) -> str | None:
    parts = module.split(".")
    if parts[0] != "accredit":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in FLOORS else "front"


def test_imports_point_down_also_inside_functions() -> None:
    upward = [
        str(found)
        for found in IMPORTS
        if (target := floor_of(found.module)) and FLOORS.index(target) > FLOORS.index(floor_of(found.source) or "front")
    ]
    assert not upward, "\n".join(upward)


def test_modules_import_each_other_in_no_circle() -> None:
    # a function may import its own room lazily (a factory its implementations); rooms cannot form circles at all
    graph: dict[str, set[str]] = {source: set() for source in FILES}
    for found in IMPORTS:
        if found.module in FILES and not (found.typing_only or found.lazy) and found.module != found.source:
            graph[found.source].add(found.module)
    done: set[str] = set()

    def visit(module: str, trail: list[str]) -> None:
        assert module not in trail, " -> ".join([*trail[trail.index(module) :], module])
        if module not in done:
            for target in sorted(graph[module]):
                visit(target, [*trail, module])
            done.add(module)

    for module in graph:
        visit(module, [])


def test_rooms_are_imported_through_accredit() -> None:
    outside = [
        path.relative_to(ROOT)
        for folder in ("tests", "examples", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
    ]
    every = IMPORTS + [found for path in outside for found in imports_of(path, path.stem)]
    bare = [str(found) for found in every if found.module.split(".")[0] in FLOORS]
    assert not bare, "\n".join(bare)


def test_inside_a_package_imports_are_relative_and_across_packages_absolute() -> None:
    wrong = []
    for source, path in FILES.items():
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level > 1:
                wrong.append(f"{path}:{node.lineno} imports its parent relatively; write accredit.{path.parts[0]}...")
            if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                package = source if path.name == "__init__.py" else source.rpartition(".")[0]
                if package != "accredit" and node.module.rpartition(".")[0] == package:
                    wrong.append(
                        f"{path}:{node.lineno} imports its sibling absolutely; write .{node.module.split('.')[-1]}"
                    )
    assert not wrong, "\n".join(wrong)


def test_credit_needs_numpy_only() -> None:
    allowed = {*sys.stdlib_module_names, "accredit", "numpy"}
    foreign = [
        str(found)
        for found in IMPORTS
        if found.path.parts[0] == "credit"
        and (name := found.module.split(".")[0]) not in allowed
        and not (name == "pyarrow" and found.path.parts[1] == "traces")
    ]
    assert not foreign, "\n".join(foreign)


@pytest.mark.parametrize("package", HEAVY)
def test_heavy_package_is_imported_only_where_it_is_needed(package: str) -> None:
    stray = [
        str(found)
        for found in IMPORTS
        if found.module.split(".")[0] == package
        and not found.typing_only
        and not any(found.path.as_posix().startswith(place) for place in HEAVY[package])
    ]
    assert not stray, "\n".join(stray)


def loaded_after(statement: str) -> set[str]:
    """Top-level names in `sys.modules` of a fresh interpreter after the statement, less what was there at its start."""
    code = f"import sys, json; before = set(sys.modules); {statement}; "
    code += "print(json.dumps(sorted(set(sys.modules) - before)))"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT / "tests"
    )
    assert answer.returncode == 0, answer.stderr
    return {name.split(".")[0] for name in json.loads(answer.stdout)}


def test_importing_accredit_loads_no_room() -> None:
    assert loaded_after("import accredit") <= {*sys.stdlib_module_names, "accredit"}


def test_importing_credit_loads_numpy_only() -> None:
    assert loaded_after("import accredit.credit") <= {*sys.stdlib_module_names, "accredit", "numpy"}


def test_importing_envs_loads_nothing_heavy() -> None:
    assert not loaded_after("import accredit.envs") & set(HEAVY)


def test_importing_replay_loads_no_torch() -> None:
    assert not loaded_after("import accredit.replay") & {"torch", "transformers"}


def test_help_loads_nothing_heavy() -> None:
    statement = (
        "import io, contextlib; from accredit.cli import main; contextlib.redirect_stdout(io.StringIO()).__enter__(); "
    )
    statement += "assert main(['--help']) == 0; sys.stdout = sys.__stdout__"
    assert not loaded_after(statement) & {*HEAVY, "numpy", "gymnasium", "pydantic"}
