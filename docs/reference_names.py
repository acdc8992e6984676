"""The pages of the packages: public names with signatures and docstrings, read from the syntax tree.

Nothing is imported, so nothing heavy is either.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reference_markdown import NOTE, fenced, prose

__all__ = ["PACKAGES", "ROOT", "package_page"]

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {  # page: the packages and modules on it
    "accredit": ["front"],
    "credit": [
        "credit",
        "credit/functions",
        "credit/process",
        "credit/exact",
        "credit/axioms",
        "credit/audit",
        "credit/testing",
        "credit/traces",
    ],
    "envs": ["envs"],
    "agents": ["agents"],
    "trainer": ["trainer", "trainer/alarms", "trainer/prm"],
    "sandboxes": ["sandboxes", "sandboxes/select"],
    "replay": ["replay"],
}
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class Module:
    """One source file, parsed."""

    path: Path
    tree: ast.Module

    @property
    def name(self) -> str:
        """The name under which it is imported."""
        parts = list(self.path.relative_to(ROOT).with_suffix("").parts)
        parts = parts[1:] if parts[0] == "front" else parts
        return ".".join(["accredit", *(parts[:-1] if parts[-1:] == ["__init__"] else parts)])

    @property
    def public(self) -> list[str]:
        """What `__all__` lists; without one, the functions and classes without a leading underscore."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return list(ast.literal_eval(node.value))
        named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return [node.name for node in self.tree.body if isinstance(node, named) and not node.name.startswith("_")]


def read(place: str) -> Module:
    """Parse a package or a module, named by its path without suffix."""
    folder = ROOT / place
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    return Module(path, ast.parse(path.read_text(encoding="utf-8")))


def package_page(name: str, places: list[str]) -> str:
    """Return the page of a package."""
    title = "accredit" if name == "accredit" else f"accredit.{name}"
    lines = [NOTE, "", f"# {title}", ""]
    for at, place in enumerate(places):
        module = read(place)
        if at:
            lines += [f"## {module.name}", ""]
        lines += [*prose(ast.get_docstring(module.tree) or ""), ""]
        if module.public:
            for public in module.public:
                lines += entry(module, public)
            continue
        for path in sorted(module.path.parent.glob("*.py")):  # a package that names nothing itself: its modules
            inner = read(path.relative_to(ROOT).with_suffix("").as_posix())
            if path.name == "__init__.py" or not inner.public:
                continue
            lines += [f"## {inner.name}", "", *prose(ast.get_docstring(inner.tree) or ""), ""]
            for public in inner.public:
                lines += entry(inner, public)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def entry(module: Module, name: str) -> list[str]:
    """Return the lines of one public name."""
    home, node = find(module, name)
    if node is None:
        return []
    if module.name == "accredit":
        room = home.name.split(".")[1]
        return [f"- `{name}`: see [accredit.{room}]({room}.md)"] if room in PACKAGES else []
    if isinstance(node, ast.ClassDef):
        return [f"### {name}", "", *of_class(node), ""]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [f"### {name}", "", *fenced(signature(node)), "", *prose(ast.get_docstring(node) or ""), ""]
    value = ast.unparse(node.value) if node.value is not None else ""
    said = following_text(home.tree.body, node)
    shown = f"{name} = {value}" if len(value) < 200 else name
    return [f"### {name}", "", *fenced(shown), "", *prose(said), ""]


def find(module: Module, name: str, seen: int = 0) -> tuple[Module, Definition | None]:
    """Follow imports (those for type checkers too) to the module that defines `name`."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and seen < 5:
            for alias in node.names:
                if (alias.asname or alias.name) == name and (place := place_of(module, node)) is not None:
                    return find(read(place), alias.name, seen + 1)
    for node in module.tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
            if any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list):
                continue
            return module, node
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return module, node
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
            return module, node
    return module, None


def place_of(module: Module, node: ast.ImportFrom) -> str | None:
    """Return the path of the module that an import names, None if it is not ours."""
    if node.level:
        folder = module.path.parent.relative_to(ROOT)
        place = folder / (node.module or "").replace(".", "/")
    elif (node.module or "").startswith("accredit."):
        place = Path((node.module or "").removeprefix("accredit.").replace(".", "/"))
    else:
        return None
    found = (ROOT / place).is_dir() or (ROOT / place).with_suffix(".py").is_file()
    return place.as_posix() if found else None


def of_class(node: ast.ClassDef) -> list[str]:
    """Return the lines of a class: its head, docstring, fields, properties and methods."""
    bases = [ast.unparse(base) for base in node.bases]
    head = f"class {node.name}" + (f"({', '.join(bases)})" if bases else "")
    lines = [*fenced(head), "", *prose(ast.get_docstring(node) or "")]
    fields = list(fields_of(node))
    if fields:
        lines += ["", *fields]
    for member in node.body:
        if not isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        constructor = member.name == "__init__" and not node.name.startswith("_")
        if (member.name.startswith("_") and not constructor and member.name != "__call__") or is_overload(member):
            continue
        said = ast.get_docstring(member) or ""
        if any(ast.unparse(decorator) == "property" for decorator in member.decorator_list):
            returns = ast.unparse(member.returns) if member.returns else "Any"
            lines += ["", f"#### {node.name}.{member.name}", "", *fenced(f"{member.name}: {returns}"), "", *prose(said)]
            continue
        name = f"{node.name}(...)" if constructor else f"{node.name}.{member.name}"
        shown = signature(member)
        if constructor:
            shown = shown.replace("def __init__(", f"{node.name}(").removesuffix(" -> None")
        lines += ["", f"#### {name}", "", *fenced(shown), "", *prose(said)]
    return lines


def fields_of(node: ast.ClassDef) -> Iterator[str]:
    """Yield one bullet a public field or member, with the text that follows it in the source."""
    for member in node.body:
        if isinstance(member, ast.AnnAssign):
            name, kind = ast.unparse(member.target), ast.unparse(member.annotation)
            if name.startswith("_") or kind.startswith("ClassVar"):
                continue
            default = "" if member.value is None else f" = {ast.unparse(member.value)}"
        elif isinstance(member, ast.Assign) and len(member.targets) == 1:
            name, kind, default = ast.unparse(member.targets[0]), "", f" = {ast.unparse(member.value)}"
            if name.startswith("_"):
                continue
        else:
            continue
        said = following_text(node.body, member)
        shown = f"{name}: {kind}{default}" if kind else f"{name}{default}"
        yield f"- `{shown}`" + (f": {' '.join(said.split())}" if said else "")


def following_text(body: list[ast.stmt], node: ast.stmt) -> str:
    """Return the bare string that stands below an assignment."""
    at = body.index(node) + 1 if node in body else len(body)
    below = body[at] if at < len(body) else None
    if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
        return inspect.cleandoc(below.value.value)
    return ""


def is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is one of several signatures, written for type checkers."""
    return any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list)


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return `def name(...) -> kind`, on several lines where one would be long; `self` is left out."""
    parts = split_arguments(node.args)
    head = f"{'async ' if isinstance(node, ast.AsyncFunctionDef) else ''}def {node.name}("
    tail = f") -> {ast.unparse(node.returns)}" if node.returns else ")"
    one = head + ", ".join(parts) + tail
    return one if len(one) <= 100 else "\n".join([head, *(f"    {part}," for part in parts), tail])


def split_arguments(arguments: ast.arguments) -> list[str]:
    """Return the parameters, one a text."""
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [*[None] * (len(plain) - len(arguments.defaults)), *arguments.defaults]
    parts = [parameter(*pair) for pair in zip(plain, defaults, strict=True)]
    if arguments.posonlyargs:
        parts.insert(len(arguments.posonlyargs), "/")
    if arguments.vararg:
        parts.append("*" + parameter(arguments.vararg, None))
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += [parameter(*pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg:
        parts.append("**" + parameter(arguments.kwarg, None))
    return [part for part in parts if part not in ("self", "cls")]


def parameter(argument: ast.arg, default: ast.expr | None) -> str:
    """Return `name: kind = default`."""
    kind = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
    sign = " = " if kind else "="
    return argument.arg + kind + (f"{sign}{ast.unparse(default)}" if default is not None else "")
