"""Runs from the command line: interrupted, wanted twice, asked for in the wrong words, and exported."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from accredit.cli import main

ROOT = Path(__file__).parents[2]
SHORT = ["rollout.groups=2", "rollout.group_size=2", "evaluation.episodes=4", "credit.check=false"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run on Arithmetic with a checkpoint a step."""
    folder = tmp_path_factory.mktemp("runs")
    config = folder / "run.yaml"
    config.write_text(f"name: short\nenv: Arithmetic-v0\nruns_dir: {folder}\nsteps: 2\nsave: {{every: 1}}\n")
    assert main(["train", str(config), *SHORT]) == 0
    return folder / "short"


@pytest.mark.parametrize(("command", "short"), [("train", SHORT), ("sft", ["evaluation.episodes=4", "steps=20000"])])
def test_an_interrupted_run_exits_with_130_and_says_how_to_go_on_and_only_one_process_has_it(
    command, short, tmp_path, capfd
):
    config = tmp_path / "long.yaml"
    config.write_text(f"name: long\nenv: Arithmetic-v0\nruns_dir: {tmp_path}\nsteps: 500\n")
    words = [sys.executable, "-m", "accredit", command, str(config), *short]
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a script's background jobs ignore it
    )
    metrics = tmp_path / "long" / "metrics.jsonl"
    deadline = time.monotonic() + 240
    while not (metrics.exists() and metrics.read_text().count("\n") > 1):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert main([command, str(tmp_path / "long"), "--resume"]) == 1
    assert f"is in use by process {process.pid} on " in capfd.readouterr().err
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=240)
    assert process.returncode == 130
    assert f"interrupted; go on with: accredit {command} {tmp_path / 'long'} --resume" in told
    assert "Traceback" not in told
    assert "it/s" not in told  # bars of the libraries, between the lines of a run


def test_a_run_that_is_done_is_read_and_not_evaluated_again(run, capsys):
    before = (run / "metrics.jsonl").read_bytes()
    assert main(["train", str(run), "--resume"]) == 0
    assert "held out after:" in capsys.readouterr().out
    assert (run / "metrics.jsonl").read_bytes() == before
    assert main(["train", str(run), "--resume", "steps=1"]) == 1
    assert "has done 2 steps and steps is 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--steps", "3"], "steps=3"),
        (["--optimizer.lr=1e-4"], "optimizer.lr=1e-4"),
        (["--dry-rnu"], "did you mean --dry-run?"),
    ],
)
def test_a_setting_in_the_form_of_an_option_is_told_how_it_is_written(words, told, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["train", "examples/shop.yaml", *words]) == 2
    assert told in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_an_environments_file_is_found_beside_the_configuration(tmp_path, capsys, monkeypatch):
    (tmp_path / "there").mkdir()
    source = (ROOT / "examples" / "prices.py").read_text()
    (tmp_path / "there" / "grocer.py").write_text(source.replace("Prices-v0", "Beside-v0"))
    (tmp_path / "there" / "run.yaml").write_text("env: grocer.py:Prices\n")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "there/run.yaml", "--dry-run"]) == 0
    assert f"env: {tmp_path / 'there' / 'grocer.py'}:Prices" in capsys.readouterr().out
    (tmp_path / "grocer.py").write_text(source.replace("Prices-v0", "Here-v0"))  # the working directory comes first
    assert main(["train", "there/run.yaml", "--dry-run"]) == 0
    assert "env: grocer.py:Prices" in capsys.readouterr().out


def test_an_exported_model_loads_without_accredit_and_says_what_the_checkpoint_says(run, tmp_path, capsys):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out = tmp_path / "model"
    assert main(["export", str(run), "--step", "1", "--out", str(out)]) == 0
    assert "step-000001" in capsys.readouterr().out
    names = {path.name for path in out.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= names
    assert not names & {"optimizer.pt", "state.json"}
    ids = AutoTokenizer.from_pretrained(out)("2 + 2 =", return_tensors="pt").input_ids
    exported = AutoModelForCausalLM.from_pretrained(out)(ids).logits
    kept = AutoModelForCausalLM.from_pretrained(run / "checkpoints" / "step-000001")(ids).logits
    assert bool((exported == kept).all())
    assert main(["export", str(run), "--out", str(out)]) == 1
    assert "nothing was overwritten" in capsys.readouterr().err


def test_the_best_checkpoint_has_a_name_and_a_missing_one_is_told(run, tmp_path, capsys):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    held_out = {line["step"]: line["eval/success"] for line in lines if "eval/success" in line}
    best = max(held_out, key=lambda step: (held_out[step], -step))
    code = main(["export", str(run), "--step", "best", "--out", str(tmp_path / "best")])
    if best == 0:
        assert code == 1
        assert "the model that the run started from" in capsys.readouterr().err
    else:
        assert code == 0
        assert (run / "checkpoints" / "best").resolve().name == f"step-{best:06d}"
    assert main(["export", str(run), "--step", "7", "--out", str(tmp_path / "seven")]) == 1
    assert "step 7 has no checkpoint" in capsys.readouterr().err


def test_pushing_needs_a_token(run, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert main(["export", str(run), "--push-to", "somebody/model"]) == 1
    assert "no token for the Hugging Face Hub: set HF_TOKEN" in capsys.readouterr().err
