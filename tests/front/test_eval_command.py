"""`accredit eval` on several environments with several samples, and killed in the middle."""

import json
import subprocess
import sys
from pathlib import Path

from accredit.cli import main
from accredit.replay import open_run

WORDS = ["eval", "base", "Arithmetic-v0", "Shop-v0", "--episodes", "3", "--samples", "2"]

DIE = """
import os, signal, sys
from accredit.cli import main
from accredit.trainer.journal import Journal
add, left = Journal.add, [8]
def dying(self, trajectory):
    add(self, trajectory)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
Journal.add = dying
main(sys.argv[1:])
"""


def results(folder: Path):
    found = json.loads((folder / "evaluation.json").read_text())
    rows = [row for one in found for row in open_run(folder / one["env"]).index()]
    return found, [(row.episode_id, row.reward, row.tokens) for row in rows]


def test_a_killed_evaluation_goes_on_where_it_was(tmp_path, capsys, monkeypatch):
    assert main([*WORDS, "--out", str(tmp_path / "whole")]) == 0
    table = capsys.readouterr().out
    assert "pass@2" in table
    killed = subprocess.run([sys.executable, "-c", DIE, *WORDS, "--out", str(tmp_path / "cut")], capture_output=True)
    assert killed.returncode == -9
    assert (tmp_path / "cut" / "Arithmetic-v0" / "result.json").exists()
    assert len((tmp_path / "cut" / "Shop-v0" / "journal.jsonl").read_text().splitlines()) == 2

    from accredit.trainer.journal import Journal

    heard = []
    add = Journal.add
    monkeypatch.setattr(Journal, "add", lambda self, t: (heard.append(t), add(self, t)))
    assert main([*WORDS, "--out", str(tmp_path / "cut")]) == 0
    assert len(heard) == 4  # of 12: six of Arithmetic and two of Shop had ended
    assert capsys.readouterr().out == table
    assert results(tmp_path / "cut") == results(tmp_path / "whole")
    assert "| Shop-v0 | 3 | 2 |" in (tmp_path / "cut" / "evaluation.md").read_text()


def test_other_settings_do_not_go_on_in_the_same_folder(tmp_path, capsys):
    words = ["eval", "base", "Arithmetic-v0", "--episodes", "2", "--out", str(tmp_path / "one")]
    assert main(words) == 0
    assert main([*words, "--temperature", "0"]) == 1
    assert "temperature: 1.0, now 0.0" in capsys.readouterr().err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert main([*words[:-1], str(tmp_path / "mine")]) == 1
    assert "already holds something" in capsys.readouterr().err


def test_held_out_tasks_that_cannot_be_drawn_fail(tmp_path, capsys):
    (tmp_path / "empty.py").write_text(
        "from accredit.envs import Task, ToolEnv\n"
        "class Empty(ToolEnv):\n"
        "    def tasks(self, rng): return []\n"
        "    def reward(self): return 0.0\n"
    )
    assert main(["eval", "base", f"{tmp_path}/empty.py:Empty", "--episodes", "2"]) == 1
    assert "has no training task to begin" in capsys.readouterr().err
