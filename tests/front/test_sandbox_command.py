import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from accredit.cli import main
from accredit.sandboxes import SandboxError, Status
from accredit.sandboxes.protocol import LAYERS
from accredit.sandboxes.select import BACKENDS, NAME_VARIABLE, WEAKER_VARIABLE, select
from accredit.sandboxes.selfcheck import HOSTILE, Program


@pytest.fixture
def default(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv(NAME_VARIABLE, raising=False)
    monkeypatch.delenv(WEAKER_VARIABLE, raising=False)
    try:
        return select().name
    except SandboxError as error:
        if os.environ.get("REQUIRE_SANDBOX") == "1":
            raise
        pytest.skip(f"no sandbox on this machine: {error}")


def test_the_doctor_shows_every_backend_and_the_default(default: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", "doctor", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    found = {backend["name"]: backend for backend in said["backends"]}
    assert list(found) == list(BACKENDS)
    assert said["default"] == default
    chosen = found[default]
    assert chosen["works"]
    assert chosen["level"] in ("L3", "L4", "L5", "L6")
    assert chosen["warm_median_s"] > 0
    assert {layer["name"] for layer in chosen["layers"]} >= set(LAYERS)
    for backend in found.values():
        assert backend["works"] == (not backend["problem"])
        assert backend["works"] or backend["advice"]


def test_the_doctor_is_plain_off_a_terminal_and_names_the_reason_of_each_missing_layer(default: str) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "accredit", "sandbox", "doctor", "--backend", default, "--backend", "subprocess"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.isascii()
    lines = [line.split() for line in said.stdout.splitlines()]
    assert [default, "yes"] in [line[:2] for line in lines]
    assert ["subprocess", "namespaces", "NO", "left"] in [line[:4] for line in lines]
    assert f"default: {default}," in said.stdout


def test_the_doctor_fails_where_nothing_can_be_used_and_says_why(
    default: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(NAME_VARIABLE, "subprocess")
    assert main(["sandbox", "doctor", "--backend", "subprocess"]) == 1
    assert "below L3" in capsys.readouterr().out


def test_an_address_that_does_not_answer_is_a_finding(default: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["sandbox", "doctor", "--json", "--backend", "http://127.0.0.1:9"])
    found = json.loads(capsys.readouterr().out)["backends"]
    assert code == 0
    assert [backend["works"] for backend in found] == [False]
    assert found[0]["problem"]


@pytest.mark.parametrize("command", ["doctor", "run"])
def test_an_unknown_backend_is_a_wrong_command_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program.py"
    program.write_text("print(1)")
    assert main(["sandbox", command, *([str(program)] if command == "run" else []), "--backend", "subproces"]) == 2
    assert "did you mean" in " ".join(capsys.readouterr().err.split())


def test_run_prints_the_output_and_the_verdict(
    default: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program.py"
    program.write_text("print('é')\n")
    assert main(["sandbox", "run", str(program), "--wall-s", "60"]) == 0
    out, err = capsys.readouterr()
    assert out == "é\n"
    assert err.startswith("ok, blame: nobody, ")
    program.write_text("print('before')\n{}['k']\n")
    assert main(["sandbox", "run", str(program), "--wall-s", "60"]) == 1
    out, err = capsys.readouterr()
    assert out == "before\n"
    assert "KeyError: 'k'" in err
    assert "exception, blame: model (line 2: KeyError)" in err


def test_run_refuses_a_weaker_backend_unless_asked(
    default: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program.py"
    program.write_text("print(1)")
    words = ["sandbox", "run", str(program), "--backend", "subprocess", "--wall-s", "60"]
    assert main(words) == 1
    assert "allow_weaker" in capsys.readouterr().err
    assert main([*words, "--allow-weaker"]) == 0
    assert "subprocess-L1-" in capsys.readouterr().err


def test_the_doctor_attacks_and_says_what_came_through(
    default: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = [program for program in HOSTILE if program.name in ("environment", "network", "leaves early with 0")]
    monkeypatch.setattr("accredit.sandboxes.selfcheck.HOSTILE", kept)
    assert main(["sandbox", "doctor", "--backend", default, "--hostile", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["hostile"][default]
    assert (said["programs"], said["problems"]) == (3, [])
    assert said["statuses"]["leaves early with 0"] == ["no_result"]
    wrong = Program("prints a leak", "print('LEAK', 6 * 7)", frozenset({Status.OK}))
    monkeypatch.setattr("accredit.sandboxes.selfcheck.HOSTILE", [wrong])
    assert main(["sandbox", "doctor", "--backend", default, "--hostile"]) == 1
    assert "prints a leak: something came through: [b'LEAK 42']" in capsys.readouterr().out
