import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from accredit.cli import main

PRICES = "prices.py:Prices"

pytestmark = pytest.mark.usefixtures("example")


def script(folder: Path, *lines: str) -> str:
    path = folder / "moves.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_a_script_plays_an_episode_to_its_reward(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moves = script(tmp_path, "price item=candle", "It costs 2.0 euros.")
    assert main(["play", PRICES, "--script", moves]) == 0
    said = capsys.readouterr().out
    assert "What does a candle cost?" in said
    assert "--- tool price\n2.0" in said
    assert said.endswith("=== ended after 2 turns, reward 1\n")


def test_a_failed_call_shows_its_charge_and_the_words_charged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moves = script(tmp_path, "price item=3 qty=2", "2.0")
    assert main(["play", PRICES, "--script", moves]) == 0
    assert "--- charged 0.1 for invalid_arguments: " in capsys.readouterr().out


def test_moves_that_run_out_break_the_episode_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", PRICES, "--script", script(tmp_path, "", "/tools", "/what", "/quit", "2.0")]) == 0
    said = capsys.readouterr().out
    assert "price item=STRING" in said
    assert said.endswith("=== broken off: no more moves\n")


def test_the_registered_name_inside_a_file_works_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "prices.py:Prices-v0", "--script", script(tmp_path, "2.0")]) == 0
    assert "reward 1" in capsys.readouterr().out


def test_the_expert_of_the_shop_earns_full_marks_every_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "Shop-v0", "--expert", "--episodes", "3", "--split", "heldout"]) == 0
    said = capsys.readouterr().out
    assert said.count("=== Shop, seed") == 3
    assert said.count("reward 1\n") == 3


def test_play_is_the_same_for_the_same_seed(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for _ in range(2):
        main(["play", "Shop-v0", "--expert", "--seed", "7"])
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


def test_a_person_at_a_terminal_plays_and_interrupts() -> None:
    person, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "accredit", "play", PRICES, "--episodes", "2"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=own_terminal,
    )
    os.close(terminal)
    try:
        wait_for(person, "> ")
        os.write(person, b"price item=candle\n")
        assert "2.0" in wait_for(person, "> ")
        os.write(person, b"2.0\n")
        assert "reward 1" in wait_for(person, "> ")
        assert interrupt(process, person) == 130
    finally:
        process.kill()
        process.wait()
        os.close(person)


def interrupt(process: subprocess.Popen[bytes], terminal: int) -> int:
    """Press Ctrl-C until it is heard: readline loses one that comes just before it waits for a key."""
    for _ in range(8):
        os.write(terminal, b"\x03")
        try:
            return process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError("still running after 8 interruptions")


def own_terminal() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a job in the background of a script is born ignoring it
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def wait_for(terminal: int, end: str) -> str:
    said = b""
    while not said.rstrip(b"\x1b[?204hl").endswith(end.encode()):
        assert select.select([terminal], [], [], 60)[0], said.decode()
        said += os.read(terminal, 4096)
    return said.decode()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["play", "nowhere.py:Prices"], "no file nowhere.py"),
        (["play", "prices.py:main"], "expected a ToolEnv class"),
        (["play", "no_such_module:Prices"], "cannot import no_such_module"),
        (["play", PRICES, "--expert", "--script", "prices.py"], "exclude each other"),
        (["play", PRICES, "--split", "test"], "expected train or heldout"),
        (["play", PRICES, "--expert"], "has no expert"),
        (["play", PRICES, "--level", "hard"], "level"),
    ],
)
def test_a_wrong_command_line_says_what_was_expected(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert message in said
