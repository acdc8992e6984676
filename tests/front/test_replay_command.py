import base64
import re
from pathlib import Path

import numpy as np
import pytest

from accredit.cli import main
from accredit.credit import Credit, Group, Ledger, Recorder, StopReason, Trajectory
from accredit.credit.traces import TraceWriter
from accredit.replay.pack import read_block


def episode(name: str, outcome: float | None) -> Trajectory:
    recorder = Recorder("accredit/Shop-v0", "shop-7", name, "g-0")
    recorder.prompt(list(b"what is the price?"))
    start, end = recorder.decision(list(b"three"), np.full(5, -0.5))
    recorder.charge(start, end, 0.1, "invalid_arguments")
    return recorder.finish(outcome, StopReason.DONE)


def credit_of(trajectory: Trajectory) -> Credit:
    ledger = Ledger(len(trajectory), {"outcome": np.where(trajectory.credit_mask, 0.2, 0.0)})
    return Credit(ledger, ledger)


@pytest.fixture
def run(tmp_path: Path) -> str:
    writer = TraceWriter(tmp_path / "shop" / "traces")
    for step in range(3):
        group = Group((episode(f"ep-{step}-a", 1.0), episode(f"ep-{step}-b", None)))
        credits = [[credit_of(trajectory) for trajectory in group.trajectories]]
        writer.write(step, [group], credits, lambda ids: [bytes([i]) for i in ids], "heldout" if step == 2 else "train")
    return str(tmp_path / "shop")


def test_show_lists_the_episodes_of_a_run(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "show", run]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["episode", "step", "split"]
    assert [row.split()[0] for row in rows] == [f"ep-{step}-{name}" for step in range(3) for name in "ab"]
    assert rows[0].split()[5] == "1.000" and rows[1].split()[5] == "unscored"


def test_show_says_how_much_of_the_list_is_left_out(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "show", run, "--last", "2", "--split", "train"]) == 0
    said = capsys.readouterr().out
    assert "ep-1-a" in said and "ep-0-a" not in said and "ep-2-a" not in said
    assert "2 of 4 episodes; --last 0 lists all" in said


@pytest.mark.parametrize("words", [["replay", "show"], ["replay", "export"]])
def test_a_wrong_split_is_refused_with_both_names(run: str, words: list[str], capsys: pytest.CaptureFixture) -> None:
    assert main([*words, run, "--split", "held"]) == 2
    said = capsys.readouterr().err
    assert "'held'" in said and "train" in said and "heldout" in said


def test_show_prints_an_episode_with_its_charges(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "show", run, "ep-1-a", "--ledger", "3"]) == 0
    said = capsys.readouterr().out
    assert "what is the price?" in said and "three" in said and "invalid_arguments" in said


def test_show_lists_what_a_filter_finds(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "show", run, "--where", "reward>0.5 error:invalid_arguments step>0"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["ep-1-a", "ep-2-a"]
    assert main(["replay", "show", run, "--where", "!unscored reward>99"]) == 0
    assert re.search(r"none of \d+ episodes fits", capsys.readouterr().out)
    assert main(["replay", "show", run, "--where", "rewrad>0"]) == 1
    assert "at character 1: expected a field (did you mean 'reward'?)" in capsys.readouterr().err


def test_hostile_names_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "ep\x1b[2J\u202e"
    TraceWriter(tmp_path / "traces").write(0, [Group((episode(name, 1.0),))], None, lambda ids: [b"x" for _ in ids])
    assert main(["replay", "show", str(tmp_path)]) == 0
    assert main(["replay", "show", str(tmp_path), "ep[2J"]) == 1  # the message names the nearest
    said = capsys.readouterr()
    assert "ep\\u001b[2J" in said.out and "ep\\u001b[2J" in said.err
    assert not any(c in said.out + said.err for c in "\x1b\u202e")


def test_show_of_an_unknown_episode_is_one_line_with_exit_code_1(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "show", run, "ep-1-c"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("TraceError: no episode 'ep-1-c'") and "Traceback" not in said
    assert main(["replay", "show", run, "zzz"]) == 1
    assert "`accredit replay show RUN` lists them" in " ".join(capsys.readouterr().err.split())


def test_export_takes_what_a_filter_finds(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "some.html"
    assert main(["replay", "export", run, "--out", str(out), "--where", "reward>0.5 and step<2"]) == 0
    found = re.findall(r'id="episode-\d+">([^<]*)<', out.read_text())
    assert [read_block(base64.b64decode(one))[0]["episode_id"] for one in found] == ["ep-0-a", "ep-1-a"]
    for where, told in (("reward>99", "none of 6 episodes"), ("rewrad>0", "'reward'")):
        assert main(["replay", "export", run, "--out", str(tmp_path / "none.html"), "--where", where]) == 1
        assert told in capsys.readouterr().err
    assert not (tmp_path / "none.html").exists()


def test_export_writes_one_file_and_says_where(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    assert main(["replay", "export", run, "--out", str(out), "--split", "heldout"]) == 0
    assert str(out) in capsys.readouterr().out
    listing = re.search(r'id="listing">([^<]*)<', out.read_text(encoding="utf-8"))
    assert listing is not None
    _, columns = read_block(base64.b64decode(listing[1]))
    assert columns["id"].tobytes() == b"ep-2-aep-2-b"


def test_export_writes_beside_the_traces_unless_told(run: str) -> None:
    assert main(["replay", "export", run, "--episode", "ep-0-a", "--episode", "ep-1-a"]) == 0
    assert (Path(run) / "replay.html").is_file()


def test_the_title_is_the_runs_name_also_from_inside_its_traces(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(run) / "traces")
    assert main(["replay", "export", ".", "--step", "1"]) == 0
    assert "<title>shop</title>" in Path("replay.html").read_text(encoding="utf-8")


def test_export_holds_every_episode_under_several_credit_functions(run: str, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    options = ["--step", "1", "--credit", "grpo,anchored,lam=0", "--credit", "rloo"]
    assert main(["replay", "export", run, "--out", str(out), *options]) == 0
    page = out.read_text(encoding="utf-8")
    header, columns = read_block(base64.b64decode(page.split('id="episode-0">')[1].split("<")[0]))
    assert [function["label"] for function in header["functions"]] == ["", "grpo", "anchored,lam=0", "rloo"]
    assert {"credit:outcome", "grpo/advantage:outcome", "anchored,lam=0/credit:outcome"} <= columns.keys()


def test_an_unknown_credit_function_is_told_with_the_nearest(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "export", run, "--credit", "grop"]) == 1
    assert "did you mean 'grpo'" in capsys.readouterr().err


def test_a_folder_without_traces_is_one_line_with_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "show", str(tmp_path / "none")]) == 1
    assert "there is no run at" in capsys.readouterr().err
