"""`accredit ablate` on real runs, as short as they can be."""

import json
from pathlib import Path

import pytest

from accredit.cli import main

ROOT = Path(__file__).parents[2]
SHORT = ["rollout.groups=2", "rollout.group_size=2", "evaluation.episodes=4", "steps=1"]


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_every_function_is_trained_by_the_same_seeds_judged_and_drawn(tmp_path, capsys):
    words = [
        "ablate",
        "examples/shop.yaml",
        f"runs_dir={tmp_path}",
        *SHORT,
        "--credit",
        "grpo,anchored",
        "--seeds",
        "2",
    ]
    assert main(words) == 0
    told = capsys.readouterr().out
    folder = next(tmp_path.iterdir())
    facts = json.loads((folder / "ablation.json").read_text())
    assert [one["credit"] for one in facts] == ["grpo", "anchored"]
    assert all(len(one["held_out"]) == 2 and len(one["verdict"]) == 4 for one in facts)
    assert facts[0]["held_out"][0][0] == facts[1]["held_out"][0][0], "both start from the same policy and tasks"
    assert (folder / "ablation.png").read_bytes().startswith(b"\x89PNG")
    assert "held out not below grpo" in told
    lines = (folder / "grpo-seed0" / "metrics.jsonl").read_text()

    assert main(words) == 0
    assert (folder / "grpo-seed0" / "metrics.jsonl").read_text() == lines, "a finished run is not lived again"


def test_an_unknown_function_is_refused_before_anything_is_trained(tmp_path, capsys):
    words = ["ablate", "examples/shop.yaml", f"runs_dir={tmp_path}", *SHORT, "--credit", "grpo,anchord"]
    assert main(words) == 1
    assert "did you mean 'anchored'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
