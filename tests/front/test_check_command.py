from pathlib import Path

import pytest

from accredit.cli import main

pytestmark = pytest.mark.usefixtures("example")

BROKEN = """
import random
from accredit.envs import Task, ToolEnv, tool

class Dice(ToolEnv):
    def tasks(self, rng):
        return [Task("Roll a six.")]

    @tool
    def roll(self) -> int:
        '''Roll the die.'''
        self.state = random.randint(1, 6)
        return self.state

    def reward(self) -> float:
        return float(random.random() < 0.5)
"""


def test_the_example_passes_every_check_that_applies(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["check", "prices.py:Prices"])
    said = capsys.readouterr().out
    assert code == 0, said
    assert " 0 failed" in said and "FAILED" not in said


def test_luck_from_outside_the_environment_fails_with_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    Path("dice.py").write_text(BROKEN, encoding="utf-8")
    assert main(["check", "dice.py:Dice"]) == 1
    assert "FAILED" in capsys.readouterr().out


def test_an_unknown_check_names_the_known_ones_with_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "prices.py:Prices", "--only", "gould"]) == 2
    assert "gold" in capsys.readouterr().err


def test_only_the_named_check_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "prices.py:Prices", "--only", "masks"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 3 and rows[1].startswith("masks")


def test_a_wrong_name_is_a_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "Shpo-v0"]) == 2
    assert "Shop-v0" in capsys.readouterr().err
