"""The filter of stored episodes: every field answers from where it lies, and a bad filter says what and where."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from accredit.credit import Call, CallStatus, Credit, Group, Ledger, Recorder, StopReason, TraceError, Trajectory
from accredit.credit.traces import TraceReader, TraceWriter
from accredit.credit.traces.where import parse_where


def lived(name: str, outcome: float | None, tool: str = "", status: CallStatus = CallStatus.OK) -> Trajectory:
    recorder = Recorder("accredit/Shop-v0", "two words", name, "g-0")
    recorder.prompt([1, 2])
    start, end = recorder.decision([3, 4, 5], np.full(3, -0.5))
    if tool:
        call = recorder.call(Call(0, start, end, "c0", tool, {}, status, "said"))
        if not status.ran:
            recorder.charge(start, start + 1, 0.25, status.value, call)
    return recorder.finish(outcome, StopReason.DONE)


def paid(trajectory: Trajectory, amount: float) -> Credit:
    ledger = Ledger(len(trajectory), {"outcome": np.where(trajectory.credit_mask, amount, 0.0)})
    return Credit(ledger, Ledger(len(trajectory), {"outcome": 2 * ledger.total}))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> TraceReader:
    folder = tmp_path_factory.mktemp("traces")
    group = [
        lived("won", 1.0, "price"),
        lived("lost", -1.0, "Python", CallStatus.TIMEOUT),
        lived("mute", 0.0),
        lived("torn", None, "python", CallStatus.OK),
    ]
    writer = TraceWriter(folder)
    writer.write(3, [Group(tuple(group))], [[paid(t, a) for t, a in zip(group, (0.3, -0.6, 0.0, 0.1), strict=True)]],
                 lambda ids: [b"x" for _ in ids])  # fmt: skip
    writer.write(4, [Group((lived("held", 1.0),))], None, lambda ids: [b"x" for _ in ids], split="heldout")
    return TraceReader(folder)


def found(reader: TraceReader, where: str) -> list[str]:
    return [episode.trajectory.episode_id for episode in reader.episodes(where=where)]


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("", ["won", "lost", "mute", "torn", "held"]),
        ("reward < 0", ["lost"]),
        ("reward<=0 turns>=1", ["lost", "mute"]),
        ("reward:none", ["torn"]),
        ("not reward=none and step=3", ["won", "lost", "mute"]),
        ("reward != 1", ["lost", "mute"]),  # unscored is not "another reward"
        ("tool:python", ["lost", "torn"]),
        ("tool=python", ["torn"]),
        ("not tool:python", ["won", "mute", "held"]),
        ("error:timeout", ["lost"]),
        ("charged > 0.2 charges = 1", ["lost"]),
        ("credit<-0.5", ["lost"]),
        ("advantage > 0.5", ["won"]),
        ("credit = 0", ["mute"]),  # the held-out episode has no credit, which is not 0
        ('task:"TWO words" split!=train', ["held"]),
        ("env:shop stop=done id:t", ["lost", "mute", "torn"]),
    ],
)
def test_a_filter_finds(reader: TraceReader, where: str, names: list[str]) -> None:
    assert found(reader, where) == names
    assert [row.episode_id for row in reader.select(where=where)] == names


def test_a_run_of_an_older_version_is_filtered_from_its_episodes(reader: TraceReader, tmp_path: Path) -> None:
    for file in reader.folder.iterdir():
        shutil.copy(file, tmp_path)
    for name in ("index.jsonl", "episodes.jsonl"):  # version 1.1 had no summary
        lines = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        older = [{key: value for key, value in line.items() if key != "summary"} for line in lines]
        (tmp_path / name).write_text("".join(json.dumps({**line, "schema_version": "1.1"}) + "\n" for line in older))
    (tmp_path / "index.jsonl").unlink()  # as its offsets are of the longer lines
    for where in ("tool:python", "not tool:python", "error:timeout", "charged>0.2", "credit<-0.5", "not credit<-0.5"):
        assert found(TraceReader(tmp_path), where) == found(reader, where), where


def test_step_and_split_narrow_before_the_filter(reader: TraceReader) -> None:
    assert [e.trajectory.episode_id for e in reader.episodes(step=3, where="reward>0")] == ["won"]
    assert [e.trajectory.episode_id for e in reader.episodes(split="heldout")] == ["held"]


def test_episodes_are_read_when_they_are_asked_for(reader: TraceReader, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    load = TraceReader.load
    monkeypatch.setattr(TraceReader, "load", lambda self, row: read.append(row.episode_id) or load(self, row))
    episodes = reader.episodes(where="reward > 0")
    assert isinstance(episodes, Iterator) and read == []
    next(episodes)
    assert read == ["won"]


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("rewrad < 0", "character 1: expected a field (did you mean 'reward'?), found 'rewrad'"),
        ("reward < ", "character 10: expected a number after 'reward<', found its end"),
        ("turns > 8 and reward ~ 0", "character 22: expected a sign after 'reward' (< <= > >= = != :), found '~'"),
        ("reward < low", "character 10: expected a number after 'reward<', found 'low'"),
        ("tool > python", "character 6: expected '=', '!=' or ':' after 'tool', which is a text"),
        ("reward < none", "an unscored episode has no place in the order"),
        ("reward<0 or turns>8", "character 10: expected a field: conditions are joined by 'and' only"),
        ("__import__('os')", "character 1: expected a field (the fields are step, reward"),
        ("turns>8 and", "character 12: expected a field, such as reward or tool, found its end"),
        ("(reward<0)", "character 1: expected a field, such as reward or tool, found '(reward<0)'"),
    ],
)
def test_a_bad_filter_says_where_and_what_was_expected(reader: TraceReader, where: str, told: str) -> None:
    with pytest.raises(TraceError) as caught:
        reader.episodes(where=where)  # at once, before the first episode is asked for
    assert told in str(caught.value)


def test_the_words_of_the_page_are_read() -> None:
    assert parse_where("unscored") == parse_where("reward:none")
    assert parse_where("!unscored and ! tool:python") == parse_where("not reward:none not tool:python")
    with pytest.raises(TraceError, match="did you mean 'turns'"):
        parse_where("!turn>8")


def test_a_sign_touching_a_negative_number_is_read(reader: TraceReader) -> None:
    (condition,) = parse_where("credit<-.5e0")
    assert (condition.field, condition.sign, condition.value) == ("credit", "<", -0.5)
