"""Makes one HTML file of the page's files and the data: no server, no second file, no request.

The page's ES modules are joined in the order of their imports into one module; their top-level names must differ.
A content security policy allows exactly this script and this style, by hash, and nothing else. Data is never script:
it lies in blocks that no browser runs, with every `<` escaped or absent.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

__all__ = ["CLOSING", "bundle", "join_modules"]

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(async )?(function|const|let|class)\b)", re.MULTILINE)
_STYLE = re.compile(r'<link rel="stylesheet" href="([\w-]+\.css)">')
CLOSING = "</body>\n</html>\n"


def bundle(title: str, run: Mapping[str, Any], listing: str, packed: Iterable[str]) -> str:
    """Return the page with `run` (JSON), a listing and one packed episode for each of its rows (both in base64)."""
    script = "\n" + join_modules("main.js")
    style = "\n" + "".join(map(_page_file, _STYLE.findall(_page_file("index.html"))))
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head, _, body = _page_file("index.html").partition("</head>")
    head = re.sub(r"\s*<link[^>]*>|\s*<script[^>]*></script>", "", head)
    head = re.sub(r"<title>.*?</title>", lambda _: f"<title>{html.escape(title)}</title>", head)
    head = head.replace(
        '<meta charset="utf-8">',
        f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">',
    )
    blocks = [f'<script type="application/json" id="run">{_embed(run)}</script>']
    blocks.append(f'<script type="text/plain" id="listing">{listing}</script>')
    blocks += [f'<script type="text/plain" id="episode-{i}">{text}</script>' for i, text in enumerate(packed)]
    before, _, _ = body.partition("</body>")
    return "".join(
        [
            head,
            f"<style>{style}</style>\n</head>",
            before,
            "\n".join(blocks),
            f'\n<script type="module">{script}</script>\n',
            CLOSING,
        ]
    )


def join_modules(entry: str) -> str:
    """Return the module `page/<entry>` with everything that it imports, each once, imported before importing."""
    order: list[str] = []
    joined: dict[str, str] = {}

    def visit(name: str) -> None:
        if name in order:
            return
        order.append(name)
        source = _page_file(name)
        for found in _IMPORT.findall(source):
            visit(found)
        joined[name] = f"// {name}\n" + _EXPORT.sub("", _IMPORT.sub("", source))

    visit(entry)
    script = "\n".join(joined.values())
    if re.search(r"</script|<!--", script, re.IGNORECASE):
        raise ValueError("the page's script contains a closing tag: write it as two strings")
    return script


def _page_file(name: str) -> str:
    return (files("accredit.replay") / "page" / name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _embed(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
