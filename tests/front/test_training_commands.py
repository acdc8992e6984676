"""The commands that train and evaluate, on the policy that ships with the package, as short as they can be."""

import json
import sys
from pathlib import Path

import gymnasium
import pytest
import yaml

from accredit.cli import main
from accredit.replay import open_run

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _own_names():
    """A registry in which no other test has taken the example's name."""
    before = dict(gymnasium.registry)
    gymnasium.registry.pop("accredit/Prices-v0", None)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


SHORT = ["rollout.groups=2", "rollout.group_size=2", "evaluation.episodes=4", "steps=1"]


def test_quickstart_trains_draws_a_curve_and_writes_a_page_whose_path_comes_last(tmp_path, capsys):
    assert main(["quickstart", f"runs_dir={tmp_path}", *SHORT]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert any(line.startswith("before: success") for line in lines)
    assert any(line.startswith("after:  success") for line in lines)
    page = Path(lines[-1].removeprefix("replay:").strip())
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (page.parent / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_second_quickstart_takes_another_name_and_overwrites_nothing(tmp_path, capsys):
    (tmp_path / "quickstart").mkdir()
    (tmp_path / "quickstart" / "mine.txt").write_text("kept")
    assert main(["quickstart", f"runs_dir={tmp_path}", *SHORT]) == 0
    assert (tmp_path / "quickstart" / "mine.txt").read_text() == "kept"
    assert (tmp_path / "quickstart-2" / "metrics.jsonl").exists()


def test_the_ten_line_environment_trains_and_resumes_from_its_run_directory(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["train", "examples/prices.yaml", f"runs_dir={tmp_path}", *SHORT]) == 0
    run = tmp_path / "prices"
    assert {row.split for row in open_run(run).index()} == {"train", "heldout"}
    moved = run.rename(tmp_path / "moved")
    assert main(["train", str(moved), "--resume", "steps=2"]) == 0
    assert "goes on after step 1" in capsys.readouterr().out
    assert (moved / "checkpoints" / "step-000002").is_dir()
    assert not run.exists()


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "examples").glob("*.yaml")))
def test_every_example_config_passes_a_dry_run(name, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    asked = yaml.safe_load((ROOT / "examples" / name).read_text())
    model = asked.get("model", {}).get("path", "base")
    code = main(["sft" if "episodes" in asked else "train", f"examples/{name}", "--dry-run"])
    told = capsys.readouterr()
    assert f"name: {asked['name']}\n" in told.out
    if model in ("base", "smollm2") or (ROOT / model).exists():
        assert code == 0
        assert "memory estimate" in told.out
    else:  # what nobody has downloaded or trained yet
        assert f"no model at '{model}'" in told.err


def test_the_recipe_of_a_pretrained_model_runs_from_its_warm_start_to_a_curve(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    few = [f"runs_dir={tmp_path}", "evaluation.episodes=2"]
    assert main(["sft", "examples/smollm2_sft.yaml", *few, "steps=1", "episodes=2", "batch=2"]) == 0
    start = capsys.readouterr().out.strip().splitlines()[-1].partition("model.path=")[2]
    recipe = yaml.safe_load((ROOT / "examples" / "smollm2.yaml").read_text())
    assert Path(recipe["model"]["path"]).parts[-3:-1] == Path(start).parts[-3:-1]  # it starts from what that one makes
    warm = yaml.safe_load((ROOT / "examples" / "smollm2_sft.yaml").read_text())
    kept = range(warm["save"]["every"], warm["steps"] + 1, warm["save"]["every"])[-warm["save"]["keep"] :]
    assert int(recipe["model"]["path"][-6:]) in kept
    assert main(["train", "examples/smollm2.yaml", *few, *SHORT, f"model.path={start}"]) == 0
    assert (tmp_path / "smollm2" / "curve.png").read_bytes().startswith(b"\x89PNG")
    rows = list(open_run(tmp_path / "smollm2").index())
    assert {row.split for row in rows} == {"train", "heldout"}


@pytest.mark.parametrize("command", ["train", "sft"])
@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("env=Shopp-v0", "did you mean Shop-v0?"),
        ("env=examples/prices.py:Price", "did you mean Prices?"),
        ("env_options.level=hrd", "did you mean 'hard'?"),
        ("trackers=[trackio]", "not installed: trackers trackio: pip install trackio"),
        ("rollout.engine=vllm", "not installed: rollout.engine vllm: pip install 'accredit[vllm]' beside a GPU"),
        ("rollout.ray.workers=2", "not installed: rollout.ray.workers: pip install 'accredit[ray]'"),
    ],
)
def test_a_dry_run_refuses_what_the_run_would(command, setting, told, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("accredit.trainer.setup.find_spec", lambda name: None)
    (tmp_path / "run.yaml").write_text("env: Shop-v0\n")
    assert main([command, str(tmp_path / "run.yaml"), "--dry-run", setting]) != 0
    assert told in capsys.readouterr().err


def test_without_ray_a_run_that_wants_it_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "accredit.agents.ray", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "run.yaml").write_text("env: Shop-v0\n")
    words = [f"runs_dir={tmp_path}", "rollout.ray.workers=2", "credit.check=false", *SHORT]
    assert main(["train", str(tmp_path / "run.yaml"), *words]) == 2
    assert not (tmp_path / "run").exists()  # the name is still free for the run that will work
    assert "pip install 'accredit[ray]'" in " ".join(capsys.readouterr().err.split())


def test_a_wrong_config_exits_with_2_and_tells_every_mistake(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["train", "examples/shop.yaml", "optimiser.lr=1", "steps=0"]) == 2
    told = capsys.readouterr().err
    assert "did you mean 'optimizer'?" in told
    assert "steps:" in told


def test_a_taken_run_directory_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "notes.txt").write_text("mine")
    assert main(["train", "examples/shop.yaml", f"runs_dir={tmp_path}"]) == 1
    assert "already holds a run" in capsys.readouterr().err


def test_eval_tells_success_with_its_interval_as_json(capsys):
    assert main(["eval", "base", "Arithmetic-v0", "--episodes", "4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["episodes"] == 4
    assert 0 <= told["success_low"] <= told["success"] <= told["success_high"] <= 1


def test_a_model_that_is_not_there_is_named(capsys):
    assert main(["eval", "no/such/folder", "Shop-v0"]) == 1
    assert "no model at 'no/such/folder'" in capsys.readouterr().err


def test_sft_makes_a_checkpoint_that_train_starts_from(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    config = tmp_path / "warm.yaml"
    config.write_text(f"name: warm\nenv: Arithmetic-v0\nruns_dir: {tmp_path}\nsteps: 2\nepisodes: 8\nbatch: 4\n")
    assert main(["sft", str(config), "evaluation.episodes=2"]) == 0
    started = capsys.readouterr().out.strip().splitlines()[-1].split("model.path=")[1]
    again = ["train", "examples/prices.yaml", f"runs_dir={tmp_path}", f"model.path={started}", *SHORT]
    assert main(again) == 0


def test_a_start_that_failed_does_not_take_the_name_of_the_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    words = ["train", "examples/shop.yaml", f"runs_dir={tmp_path}", "name=mine", *SHORT]
    assert main([*words, "env=Shopp-v0"]) == 1
    assert "did you mean" in capsys.readouterr().err
    assert main(words) == 0
    assert (tmp_path / "mine" / "metrics.jsonl").stat().st_size > 0
    assert main(words) == 1
    assert "already holds a run" in capsys.readouterr().err


def test_an_environment_without_an_expert_has_nothing_to_warm_start_from(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    (tmp_path / "sft.yaml").write_text("env: examples/prices.py:Prices\nsteps: 1\nepisodes: 2\n")
    assert main(["sft", str(tmp_path / "sft.yaml"), f"runs_dir={tmp_path}", "evaluation.episodes=2"]) == 1
    assert "has no expert to learn from" in capsys.readouterr().err
