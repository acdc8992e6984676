import json
import sys
from pathlib import Path

import pytest

from accredit.cli import main

OWN = """
from dataclasses import dataclass

from accredit.credit.functions import GRPO, VinePPO

def price(group, /):
    return GRPO()(group)

@dataclass
class Turns:
    values: object

    def __call__(self, group, /):
        return VinePPO(values=self.values)(group)
"""


@pytest.fixture(autouse=True)
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own_credit.py").write_text(OWN, encoding="utf-8")


def test_own_functions_are_audited_beside_exact_and_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["audit", "--quick", "--function", "own_credit:price", "--function", "own_credit:Turns"]
    assert main([*words, "--markdown", "audit.md", "--json", "audit.json"]) == 0
    said = capsys.readouterr().out
    assert "own_credit:price" in said and "written: audit.md" in said
    read = json.loads(Path("audit.json").read_text(encoding="utf-8"))
    assert [one["name"] for one in read["functions"]] == ["exact", "own_credit:price", "own_credit:Turns"]
    # the class got exact values: complete, where a group of few rollouts could not be
    assert read["functions"][2]["credit"]["completeness"]["holds"] is True
    assert "| own_credit:Turns |" in Path("audit.md").read_text(encoding="utf-8")


def test_on_a_terminal_a_bar_shows_what_is_audited(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert main(["audit", "--quick", "--function", "exact"]) == 0
    assert "/6" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "hint"),
    [("anchord", "did you mean 'anchored'"), ("own_credit:prise", "price"), ("no_such_module:f", "no module")],
)
def test_an_unknown_function_is_a_wrong_command_line(name: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--function", name]) == 2
    assert hint in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_folder_that_is_not_there_and_a_tolerance_of_0_are_wrong_command_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["audit", "--json", "nowhere/audit.json"]) == 2
    assert main(["audit", "--tolerance", "0"]) == 2
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--tolerance", "nan"], "nan is not above 0"),
        (["--markdown", "."], ". is a folder, expected a file in it"),
        (["--json", "same", "--markdown", "same"], "same would be written twice"),
    ],
)
def test_what_could_not_be_written_or_judged_is_told_before_the_audit(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "--function", "exact", *words]) == 2
    assert told in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_help_gives_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "default: (all registered)" in said and "default: 0.01" in said
