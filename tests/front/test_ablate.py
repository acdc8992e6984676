"""`accredit ablate` on real runs, as short as they can be."""

import json
import sys
import types
from pathlib import Path

import pytest

from accredit.cli import main
from accredit.commands.ablate import _probe
from accredit.credit import Credit, Ledger
from accredit.credit.functions import credit_function

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

    for other in ("optimizer.lr=1e-4", "steps=2"):
        assert main([*words, other]) == 1, "its figures are not those of another configuration"
        key = other.partition("=")[0].partition(".")[0]
        assert f"another configuration (differs in: {key})" in " ".join(capsys.readouterr().err.split())


def test_an_ablation_of_which_no_run_could_begin_is_reported(tmp_path, capsys):
    words = ["ablate", "examples/shop.yaml", f"runs_dir={tmp_path}", *SHORT, "rollout.group_size=3"]
    assert main([*words, "--credit", "counterfactual", "--seeds", "1"]) == 0
    assert (
        "no divergence: NO (1 of 1 runs failed; seed 0: ConfigError: rollout.group_size is 3" in capsys.readouterr().out
    )
    assert json.loads((next(tmp_path.iterdir()) / "ablation.json").read_text())[0]["seeds"] == []


def test_the_probe_is_of_the_function_with_its_options(monkeypatch, capsys):
    def signed(sign):  # no default: without its options it cannot even be made
        def price(group, /):
            turned = [{"outcome": sign * one.credit.total} for one in credit_function("dr_grpo")(group)]
            ledgers = [Ledger(len(t), terms) for t, terms in zip(group.trajectories, turned, strict=True)]
            return tuple(Credit(each, each) for each in ledgers)

        return price

    def make(*, sign):
        return signed(sign)

    def broken(group, /):
        raise ZeroDivisionError("no spread")

    module = types.ModuleType("accredit_ablate_example")
    vars(module).update(make=make, broken=broken)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert _probe(f"{module.__name__}:make", {"sign": 1.0}) == 1.0
    assert _probe(f"{module.__name__}:make", {"sign": -1.0}) == 0.0
    assert _probe(f"{module.__name__}:broken", {}) is None
    assert "no counterfactual probe: ZeroDivisionError: no spread" in capsys.readouterr().out


def test_an_unknown_function_is_refused_before_anything_is_trained(tmp_path, capsys):
    words = ["ablate", "examples/shop.yaml", f"runs_dir={tmp_path}", *SHORT, "--credit", "grpo,anchord"]
    assert main(words) == 1
    assert "did you mean 'anchored'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
