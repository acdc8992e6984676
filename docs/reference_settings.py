"""The pages of the command line (from its Typer app) and of a configuration (from its pydantic fields)."""

import inspect
from typing import Any, get_args, get_origin

from reference_markdown import NOTE, cell, fenced, prose

__all__ = ["command_line_page", "configuration_page"]


def command_line_page() -> str:
    """Return the page of the command line."""
    import typer

    from accredit.cli import COMMANDS, build_app

    group: Any = typer.main.get_command(build_app(every=True))
    lines = [NOTE, "", "# Command line", "", *prose(inspect.cleandoc(group.help or "")), "", str(group.epilog), ""]
    lines += ["| command | what it does |", "|---|---|"]
    lines += [f"| [`accredit {entry.name}`](#accredit-{entry.name}) | {entry.summary} |" for entry in COMMANDS]
    lines += ["", "Before the command:", "", *parameter_table(group), ""]
    for entry in COMMANDS:
        lines += command_lines(f"accredit {entry.name}", group.commands[entry.name], "##")
    return "\n".join(lines).rstrip() + "\n"


def command_lines(path: str, command: Any, level: str) -> list[str]:
    """Return the lines of a command, and of its own commands."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([path, *(str(a.metavar or a.name.upper()) for a in arguments)])
    below = getattr(command, "commands", {})
    lines = [f"{level} {path}", "", *([] if below else [*fenced(usage + " [OPTIONS]"), ""])]
    lines += [*prose(inspect.cleandoc(command.help or "")), ""]
    if not below:
        lines += [*parameter_table(command), ""]
    for name, inner in below.items():
        lines += command_lines(f"{path} {name}", inner, level + "#")
    return lines


def parameter_table(command: Any) -> list[str]:
    """Return arguments and options as a table."""
    rows = []
    for p in command.params:
        if p.name == "help":
            continue
        argument = p.param_type_name == "argument"
        flag = bool(getattr(p, "is_flag", False))
        value = "" if argument or flag else f" {p.metavar or p.name.upper()}"
        name = str(p.metavar or p.name.upper()) if argument else ", ".join(p.opts) + value
        rows.append(f"| `{name}` | {cell(p.help or '')} | {cell(default_of(p, flag))} |")
    return ["| parameter | meaning | default |", "|---|---|---|", *rows] if rows else []


def default_of(parameter: Any, flag: bool) -> str:
    """Return what happens without it."""
    shown = getattr(parameter, "show_default", None)
    if isinstance(shown, str):
        return shown
    if parameter.required:
        return "required"
    value = parameter.default
    return "" if flag or value is None or callable(value) else f"`{value}`"


def configuration_page() -> str:
    """Return the page of a configuration's settings."""
    from accredit.trainer.config import SFTConfig, TrainConfig

    lines = [NOTE, "", "# Configuration", ""]
    lines += ["Settings of the YAML or TOML file that `accredit train` and `accredit sft` read."]
    lines += ["On the command line they are written with dots, such as `optimizer.lr=1e-4`.", ""]
    parts: dict[str, Any] = {}
    for kind, command in ((TrainConfig, "train"), (SFTConfig, "sft")):
        lines += [
            f"## accredit {command}",
            "",
            inspect.cleandoc(kind.__doc__ or ""),
            "",
            *field_table(kind, "", parts, command),
        ]
        lines += [""]
    lines += ["## Parts", "", *sections(parts)]
    return "\n".join(lines).rstrip() + "\n"


def sections(parts: dict[str, Any]) -> list[str]:
    """Return a section a part, each followed by those of its own parts."""
    lines: list[str] = []
    for name, part in parts.items():
        inner: dict[str, Any] = {}
        table = field_table(part, f"{name.split()[0]}.", inner)
        lines += [f"### {name}", "", inspect.cleandoc(part.__doc__ or ""), "", *table, "", *sections(inner)]
    return lines


def field_table(kind: Any, prefix: str, parts: dict[str, Any], command: str = "") -> list[str]:
    """Return the fields of a settings class as a table; classes among them are noted in `parts`.

    A part that is another one in `command` than in a command before is noted as "save of sft".
    """
    rows = []
    for name, field in kind.model_fields.items():
        annotation = field.annotation
        part = next((each for each in (annotation, *get_args(annotation)) if hasattr(each, "model_fields")), None)
        if part is not None:
            heading = prefix + name if parts.get(prefix + name, part) is part else f"{prefix}{name} of {command}"
            parts[heading] = part
            anchor = heading.lower().replace(".", "").replace(" ", "-")
            default, meaning = default_part(field), cell(first_line(part.__doc__))
            rows.append(f"| [`{prefix}{name}.*`](#{anchor}) | | {default} | {meaning} |")
            continue
        bounds = ", ".join(str(bound) for bound in map(bound_of, field.metadata) if bound)
        shown = kind_of(annotation) + (f", {bounds}" if bounds else "")
        default = "required" if field.is_required() else f"`{literal(field.get_default(call_default_factory=True))}`"
        rows.append(f"| `{prefix}{name}` | {cell(shown)} | {default} | {cell(field.description or '')} |")
    return ["| setting | type | default | meaning |", "|---|---|---|---|", *rows]


def default_part(field: Any) -> str:
    """Return null for a part that is absent unless it is asked for."""
    return "`null`" if field.default is None else ""


def first_line(text: str | None) -> str:
    """Return the first line of a docstring."""
    return inspect.cleandoc(text or "").split("\n")[0]


def kind_of(annotation: Any) -> str:
    """Return a type as a reader writes it: the values of a choice, else its name."""
    if str(get_origin(annotation)) == "typing.Literal":
        return " or ".join(annotation.__args__)
    text = annotation.__name__ if isinstance(annotation, type) and not get_origin(annotation) else str(annotation)
    return text.replace("typing.", "").replace("NoneType", "None").replace("| None", "or null")


def bound_of(bound: Any) -> str:
    """Return a bound of a number, such as `>= 1`."""
    for name, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<")):
        if hasattr(bound, name):
            return f"{sign} {getattr(bound, name)}"
    return ""


def literal(value: Any) -> str:
    """Return a value as YAML writes it."""
    if value is None:
        return "null"
    return str(list(value)) if isinstance(value, tuple) else str(value)
