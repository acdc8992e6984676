import subprocess
import sys
from pathlib import Path

import pytest

from accredit import cli
from accredit.cli import COMMANDS, Entry, main
from accredit.version import __version__


def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "accredit", *words], input=stdin, capture_output=True, text=True, timeout=120
    )


def test_help_names_every_command_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(entry.name in said for entry in cli.available())
    assert "130 interrupted" in " ".join(said.split())


def test_help_off_a_terminal_is_plain() -> None:
    said = run("--help")
    assert said.returncode == 0
    assert said.stdout.isascii()


def test_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"accredit {__version__}\n"


def test_unknown_command_gets_the_nearest_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evns"]) == 2
    assert "'envs'" in capsys.readouterr().err


def test_unknown_option_gets_the_nearest_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "Shop-v0", "--sede", "3"]) == 2
    assert "--seed" in capsys.readouterr().err


def test_no_command_shows_the_help_with_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert "Usage: accredit" in out + err


def test_unknown_environment_gets_the_nearest_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "Shpo-v0"]) == 2
    assert "Shop-v0" in capsys.readouterr().err


@pytest.fixture
def command_of_my_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_command.py").write_text(
        "from accredit.sandboxes.errors import AccreditError\n"
        "class Wrong(AccreditError):\n"
        "    exit_code = 2\n"
        "def command(how: str) -> None:\n"
        "    '''Fail.'''\n"
        "    if how == 'interrupt':\n"
        "        raise KeyboardInterrupt\n"
        "    raise (Wrong if how == 'wrong' else AccreditError)('expected bread, found a stone')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(cli, "COMMANDS", (*COMMANDS, Entry("own", "own_command", "Fail.")))


@pytest.mark.usefixtures("command_of_my_own")
@pytest.mark.parametrize(("how", "code"), [("fail", 1), ("wrong", 2)])
def test_an_error_on_purpose_is_one_line_without_traceback(
    how: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["own", how]) == code
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.endswith(": expected bread, found a stone\n")


@pytest.mark.usefixtures("command_of_my_own")
def test_debug_raises_the_error_itself() -> None:
    with pytest.raises(cli.AccreditError, match="a stone"):
        main(["--debug", "own", "fail"])


@pytest.mark.usefixtures("command_of_my_own")
def test_interruption_ends_with_130() -> None:
    assert main(["own", "interrupt"]) == 130


def test_a_command_whose_module_is_missing_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "COMMANDS", (*COMMANDS, Entry("gone", "accredit.commands.gone", "Is not there.")))
    assert main(["--help"]) == 0
    assert "gone" not in capsys.readouterr().out


def test_listing_environments_off_a_terminal_is_one_line_each() -> None:
    said = run("envs")
    assert said.returncode == 0, said.stderr
    head, *rows = said.stdout.splitlines()
    assert head.split() == ["environment", "description"]
    assert any(row.startswith("Shop-v0 ") for row in rows)
