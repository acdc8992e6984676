"""Writes docs/reference/ from the source: public names, the command line, and the settings of a configuration.

    python docs/build_reference.py            # write
    python docs/build_reference.py --check    # exit 1 if a page is not what would be written

Edit a docstring, a help text or a description, never a page.
"""

import argparse
import sys

from reference_names import PACKAGES, ROOT, package_page
from reference_settings import command_line_page, configuration_page

OUT = ROOT / "docs" / "reference"


def pages() -> dict[str, str]:
    """Return every page: file name -> text."""
    written = {f"{name}.md": package_page(name, places) for name, places in PACKAGES.items()}
    written["command-line.md"] = command_line_page()
    written["configuration.md"] = configuration_page()
    return written


def main() -> int:
    """Write the pages, or say which are out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is out of date")
    check = parser.parse_args().check
    wanted = pages()
    OUT.mkdir(parents=True, exist_ok=True)
    old = {path.name: path.read_text(encoding="utf-8") for path in OUT.glob("*.md")}
    changed = sorted(name for name in {*old, *wanted} if old.get(name) != wanted.get(name))
    for name in changed:
        print(f"{'out of date' if check else 'written' if name in wanted else 'removed'}: docs/reference/{name}")
        if check:
            continue
        if name in wanted:
            (OUT / name).write_text(wanted[name], encoding="utf-8")
        else:
            (OUT / name).unlink()
    return int(check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
