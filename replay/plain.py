"""Text that cannot steer a terminal: control, direction and invisible characters are written out."""

__all__ = ["one_line", "printable"]


def printable(text: str) -> str:
    """Return `text` with control, direction and invisible characters as their code; newlines and tabs stay."""
    return "".join(c if c in "\n\t" or c.isprintable() else _written_out(c) for c in text)


def one_line(text: str) -> str:
    """Return `text` as `printable` does, newlines and tabs written out too."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def _written_out(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
