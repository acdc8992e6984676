"""`accredit counterfactual` on a small real run: a turn deleted, replaced, decided anew, and what is said of each."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from accredit.cli import main
from accredit.credit import Group
from accredit.credit.traces import TraceWriter, open_run

# Every word "up" pays; the environment answers with the number of them and a die.
SOURCE = """
import time
from accredit.envs import Task, ToolEnv

class Words(ToolEnv):
    max_turns = 3
    clock = False

    def tasks(self, rng):
        return [Task(f"task {n}") for n in range(10)]

    def setup(self):
        self.state = {"ups": 0}

    def reply(self):
        self.state["ups"] += self.answer.count("up") + (len(self.answer) % 3) / 100
        return f"die {int(self.rng.integers(1, 7))}, ups {self.state['ups']:g}" + CLOCK

    def reward(self):
        return self.state["ups"]
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, make_tiny_llama, tiny_renderer) -> Path:
    from transformers import PreTrainedTokenizerFast

    from accredit.agents.models import LoadedModel, save_model
    from accredit.envs import tinytokenizers

    folder = tmp_path_factory.mktemp("counterfactual")
    (folder / "words.py").write_text(SOURCE.replace(" + CLOCK", ""))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tinytokenizers.byte_level())
    save_model(LoadedModel(make_tiny_llama(), tokenizer, tiny_renderer), folder / "model")
    settings = {
        "name": "words",
        "runs_dir": str(folder),
        "env": f"{folder / 'words.py'}:Words",
        "model.path": str(folder / "model"),
        "credit.function": "dr_grpo",
        "steps": 1,
        "rollout.groups": 1,
        "rollout.group_size": 4,
        "rollout.decision_tokens": 6,
        "evaluation.episodes": 1,
    }
    config = folder / "words.yaml"
    config.write_text("")
    assert main(["train", str(config), *(f"{key}={json.dumps(value)}" for key, value in settings.items())]) == 0
    return folder / "words"


@pytest.fixture
def episode(run: Path) -> str:
    return next(row.episode_id for row in open_run(run).index() if row.split == "train")


Said = pytest.CaptureFixture[str]


def test_a_replaced_turn_is_fed_to_the_environment_and_priced_in_its_group(run, episode, capsys: Said) -> None:
    before = open_run(run).episode(episode)
    assert main(["counterfactual", str(run), "--episode", episode, "--turn", "1", "--replace", "up up up"]) == 0
    said = capsys.readouterr().out
    assert f"replay of {episode}: exact, 3 turns to the byte" in said
    assert "turn 1 replaced, 1 later turns fed as stored" in said
    assert before.trajectory.reward is not None and before.credit is not None
    rewards = next(line for line in said.splitlines() if line.startswith("reward:")).split()
    assert float(rewards[1]) == pytest.approx(before.trajectory.reward, abs=1e-4)
    assert float(rewards[3]) > float(rewards[1]) + 2.9
    row = next(line.split() for line in said.splitlines() if line.startswith("1 <"))
    span = next(span for span in before.trajectory.decisions if span.turn == 1)
    stored = float(before.credit.credit.total[span.start : span.end].sum())
    assert float(row[2]) == pytest.approx(stored, abs=1e-4)
    assert float(row[3]) > float(row[2])
    assert "after:  up up up" in said and "feedback of turn 2" in said


def test_the_die_falls_alike_in_what_follows(run, episode, capsys: Said) -> None:
    assert main(["counterfactual", str(run), "--episode", episode, "--turn", "0", "--replace", "up"]) == 0
    dice = [line.split("die ")[1][0] for line in capsys.readouterr().out.splitlines() if "die " in line]
    assert len(dice) >= 2
    assert dice[::2] == dice[1::2]  # before and after, turn by turn


def test_a_deleted_turn_moves_the_later_ones_up(run, episode, capsys: Said) -> None:
    assert main(["counterfactual", str(run), "--episode", episode, "--turn", "0", "--delete"]) == 0
    said = capsys.readouterr().out
    assert "turn 0 deleted, 2 later turns fed as stored" in said
    rows = [line.split() for line in said.splitlines() if line[:2] in ("0 ", "1 ", "2 ")]
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert rows[0][-1] == "deleted" and "-" not in (rows[1][-1], rows[2][-1])
    assert "max_turns" not in said and "turn_limit -> turn_limit" in said


def test_a_turn_is_decided_anew_by_the_runs_checkpoint(run, episode, capsys: Said) -> None:
    words = ["counterfactual", str(run), "--episode", episode, "--turn", "1"]
    said = []
    for seed in ("5", "5", "6"):
        assert main([*words, "--seed", seed]) == 0
        said.append(capsys.readouterr().out)
    assert "turn 1 decided anew by step-000001 (the episode's was decided by version 0), sampler seed 5" in said[0]
    assert said[0] == said[1]
    assert said[0].split("turn 1 said")[1] != said[2].split("turn 1 said")[1]
    assert main(words) == 0


def test_a_group_of_one_is_said_to_have_nothing_to_compare_with(run, capsys: Said) -> None:
    heldout = next(row.episode_id for row in open_run(run).index() if row.split == "heldout")
    assert main(["counterfactual", str(run), "--episode", heldout, "--turn", "0", "--delete"]) == 0
    assert "a group of one has nothing to compare with" in capsys.readouterr().out


def test_in_a_run_on_pairs_the_changed_episode_is_compared_with_the_stored_one(run, episode, capsys: Said) -> None:
    config, words = run / "config.yaml", ["counterfactual", str(run), "--episode", episode, "--turn", "2"]
    kept = config.read_text()
    paired = [*(open_run(run).load(row) for row in open_run(run).index() if row.split == "train")]
    folder = run.parent / "paired"
    (folder / "traces").mkdir(parents=True)
    (folder / "config.yaml").write_text(kept.replace("function: dr_grpo", "function: counterfactual"))
    members = [
        replace(one.trajectory, seeds={**one.trajectory.seeds, "pair": at // 2, "fork_turn": 1})
        for at, one in enumerate(paired)
    ]
    TraceWriter(folder / "traces").write(1, [Group(tuple(members))], None, lambda ids: [b"?" for _ in ids])
    words[1] = str(folder)
    assert main([*words, "--replace", "up up"]) == 0
    said = capsys.readouterr().out
    assert "after: against the stored episode" in said
    before, after = (float(text) for text in said.split("reward: ")[1].split(" (")[0].split(" -> "))
    rows = [line.split() for line in said.splitlines() if line[:2] in ("0 ", "1 ", "2 ")]
    assert [float(row[-1]) for row in rows] == [0.0, 0.0, pytest.approx(after - before, abs=2e-4)]
    assert main(words) == 2  # there is no checkpoint to decide it anew
    assert "give --delete or --replace TEXT" in " ".join(capsys.readouterr().err.split())


def test_wrong_words_are_named_with_what_is_near(run, episode, capsys: Said) -> None:
    base = ["counterfactual", str(run), "--episode", episode]
    assert main(["counterfactual", str(run), "--episode", episode[:-1] + "9", "--turn", "0"]) == 1
    assert f"nearest: {episode[:-1]}" in capsys.readouterr().err
    assert main([*base, "--turn", "3"]) == 2
    assert "has 3 turns, expected at most 2, found 3" in " ".join(capsys.readouterr().err.split())
    assert main([*base, "--turn", "0", "--delete", "--replace", "x"]) == 2
    assert main([*base, "--turn", "0", "--delete", "--seed", "1"]) == 2


def test_an_environment_that_changed_is_said_to_part_and_where(run, episode, capsys: Said, monkeypatch) -> None:
    import accredit.envs.loading as loading

    source = run.parent / "words.py"
    kept = source.read_text()
    source.write_text(SOURCE.replace("CLOCK", "f' at {time.perf_counter_ns()}'"))
    module = loading.module_of_file(str(source)).__name__
    monkeypatch.delitem(loading.sys.modules, module)
    try:
        assert main(["counterfactual", str(run), "--episode", episode, "--turn", "1", "--delete"]) == 0
        said = capsys.readouterr().out
        assert "NOT exact, it parts in the feedback of turn 0, character" in said and " at " in said
        assert main(["counterfactual", str(run), "--episode", episode, "--turn", "1"]) == 0
        assert "otherwise before turn 1" in capsys.readouterr().out
    finally:
        source.write_text(kept)


def of_run(run: Path, name: str, trajectory) -> list[str]:
    """Store `trajectory` as the only one of a run like `run`; return the words that ask about it."""
    folder = run.parent / name
    (folder / "traces").mkdir(parents=True)
    (folder / "config.yaml").write_text((run / "config.yaml").read_text())
    (folder / "checkpoints").symlink_to(run / "checkpoints")
    TraceWriter(folder / "traces").write(1, [Group((trajectory,))], None, lambda ids: [b"?" for _ in ids])
    return ["counterfactual", str(folder), "--episode", trajectory.episode_id]


def test_a_branch_is_decided_anew_with_another_seed_than_it_was(run, episode, capsys: Said) -> None:
    from accredit.agents.rollout import seeds_of

    base = open_run(run).episode(episode).trajectory
    was = seeds_of(base.seeds["sampler"], 2)
    branch = replace(base, seeds={**base.seeds, "fork_turn": 1, "fork_sampler": was, "pair": 0})
    words = of_run(run, "branched", branch)
    assert main([*words, "--turn", "1"]) == 0
    assert f"sampler seed {seeds_of(was, 2)}" in capsys.readouterr().out
    assert main([*words, "--turn", "2"]) == 0
    assert f"sampler seed {was}" in capsys.readouterr().out


def test_an_episode_that_never_began_has_no_turn_to_change(run, capsys: Said) -> None:
    from accredit.credit import Recorder, StopReason

    lost = Recorder(episode_id="lost", group="g").finish(None, StopReason.ENVIRONMENT_ERROR, "OSError: no disk")
    assert main([*of_run(run, "lost", lost), "--turn", "0"]) == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "no turn to change, it ended before its first one: OSError: no disk" in said
