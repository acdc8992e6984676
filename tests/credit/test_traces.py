import json
import logging
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.credit import Call, CallStatus, Credit, Group, Ledger, Recorder, StopReason, TraceError, Trajectory
from accredit.credit.traces import TraceReader, TraceWriter, open_run
from accredit.credit.traces.cutting import cut_after


def byte_ids(ids: Sequence[int]) -> list[bytes]:
    return [bytes([i]) if i < 256 else f"<|{i}|>".encode() for i in ids]


def ids_of(text: str) -> list[int]:
    return list(text.encode())


def sample(episode_id: str = "ep-0", outcome: float | None = 0.5, turns: int = 2) -> Trajectory:
    seeds, options = {"environment": 3, "sampler": 2**40}, {"level": "easy", "split": "train"}
    recorder = Recorder("accredit/Shop-v0", "shop-7", episode_id, "g-0", seeds, "s0", options)
    recorder.prompt(ids_of("find the price of ä"))
    recorder.scaffold([300, 301])
    for turn in range(turns):
        start, end = recorder.decision(ids_of("<tool_call>"), np.linspace(-2, -0.125, 11), policy_version=turn + 4)
        index = recorder.call(
            Call(
                turn, start, end, f"c{turn}", "price", {"item": "apple", "qty": float("nan"), "of": [1, {"a": None}]},
                CallStatus.INVALID_ARGUMENTS, "no such item \ud800 </script>", True, (start, start + 2),
                {"$.item": (start + 3, start + 5)}, 0.25, 1e-3, {"exit_status": 1, "stderr": "x"},
            )
        )  # fmt: skip
        recorder.charge(start + 3, start + 5, 0.1, "invalid_arguments", index)
        recorder.reward(0.1 * turn)
        recorder.state_key(f"s{turn + 1}" if turn else None)
        recorder.timing(0.1 * turn, 0.1 * turn + 0.05)
        recorder.feedback(ids_of('{"price": 3}'))
    recorder.segment("the template dropped a thought")
    recorder.decision(ids_of("3"), [-0.5])
    recorder.straddle([4, 9])
    return recorder.finish(outcome, StopReason.DONE, error="e" if outcome is None else None, seconds=1.75)


def credit_of(trajectory: Trajectory, *names: str) -> Credit:
    rng = np.random.default_rng(len(trajectory))
    terms = {name: rng.normal(size=len(trajectory)) * trajectory.credit_mask for name in names}
    return Credit(Ledger(len(trajectory), terms), Ledger(len(trajectory), {n: -v for n, v in terms.items()}))


def assert_same(left: Trajectory, right: Trajectory) -> None:
    for field in fields(Trajectory):
        a, b = getattr(left, field.name), getattr(right, field.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True), field.name
        else:
            assert repr(a) == repr(b) and type(a) is type(b), field.name  # repr: NaN equals itself


def test_every_field_comes_back_exactly(tmp_path: Path) -> None:
    groups = [Group((sample("ep-0"), sample("ep-1", None))), Group((sample("ep-2", turns=0),))]
    credits = [[credit_of(t, "outcome", "charge:invalid_arguments") for t in groups[0].trajectories],
               [credit_of(groups[1].trajectories[0], "luck")]]  # fmt: skip
    TraceWriter(tmp_path).write(12, groups, credits, byte_ids, split="heldout")
    reader = TraceReader(tmp_path)
    for group, credits_G in zip(groups, credits, strict=True):
        for trajectory, credit in zip(group.trajectories, credits_G, strict=True):
            stored = reader.episode(trajectory.episode_id, 12)
            assert_same(trajectory, stored.trajectory)
            assert stored.token_bytes == byte_ids(trajectory.token_ids.tolist())
            assert (stored.step, stored.split) == (12, "heldout")
            assert stored.credit is not None
            for ours, theirs in ((credit.credit, stored.credit.credit), (credit.advantage, stored.credit.advantage)):
                assert list(ours.terms) == list(theirs.terms)
                assert all(np.array_equal(ours.terms[n], theirs.terms[n]) for n in ours.terms)
                assert np.array_equal(ours.total, theirs.total)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 255), max_size=6)), max_size=6),
    st.floats(allow_nan=False, allow_infinity=False) | st.none(),
)
def test_any_recording_comes_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[int, list[int]]], outcome: float | None
) -> None:
    recorder = Recorder(episode_id="e")
    for kind, ids in pieces:
        if kind == 0:
            recorder.feedback(ids)
        elif kind == 1:
            recorder.scaffold(ids)
        else:
            recorder.decision(ids, [-0.1 * (i + 1) for i in range(len(ids))])
    trajectory = recorder.finish(outcome, StopReason.CANCELLED)
    folder = tmp_path_factory.mktemp("traces")
    TraceWriter(folder).write(0, [Group((trajectory,))], None, byte_ids)
    stored = TraceReader(folder).episode("e")
    assert_same(trajectory, stored.trajectory)
    assert stored.credit is None


def test_the_index_lists_every_episode_without_reading_tokens(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path)
    writer.write(0, [Group((sample("a"), sample("b", None)))], None, byte_ids)
    writer.write(1, [Group((sample("c"),))], None, byte_ids)
    for file in tmp_path.glob("*.parquet"):
        file.unlink()
    rows = TraceReader(tmp_path).index()
    assert [(r.step, r.episode_id, r.group, r.turns, r.charges) for r in rows] == [
        (0, "a", "g-0", 3, 2), (0, "b", "g-0", 3, 2), (1, "c", "g-0", 3, 2)
    ]  # fmt: skip
    assert rows[0].reward == sample().reward and rows[1].reward is None
    with pytest.raises(TraceError, match="copy the whole traces folder"):
        TraceReader(tmp_path).episode("a")


def test_an_unscored_episode_is_null_on_disk_and_never_zero(tmp_path: Path) -> None:
    TraceWriter(tmp_path).write(0, [Group((sample("a", None),))], None, byte_ids)
    record = json.loads((tmp_path / "episodes.jsonl").read_text())
    assert record["outcome"] is None
    assert json.loads((tmp_path / "index.jsonl").read_text())["reward"] is None


def test_a_torn_line_is_skipped_with_a_notice_and_writing_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    TraceWriter(tmp_path).write(0, [Group((sample("a"), sample("b")))], None, byte_ids)
    episodes, index = tmp_path / "episodes.jsonl", tmp_path / "index.jsonl"
    episodes.write_bytes(episodes.read_bytes()[:-40])
    index.write_bytes(index.read_bytes().splitlines(keepends=True)[0])
    with caplog.at_level(logging.WARNING):
        assert [row.episode_id for row in TraceReader(tmp_path).index()] == ["a"]
    assert "skipped a torn line" in caplog.text
    TraceWriter(tmp_path).write(1, [Group((sample("c"),))], None, byte_ids)
    reader = TraceReader(tmp_path)
    assert [row.episode_id for row in reader.index()] == ["a", "c"]
    assert_same(reader.episode("c").trajectory, sample("c"))


@pytest.mark.parametrize("kept", ["", "first", "last"])
def test_episodes_that_the_index_lost_are_found_again(tmp_path: Path, kept: str) -> None:
    TraceWriter(tmp_path).write(0, [Group((sample("a"), sample("b"), sample("c")))], None, byte_ids)
    index = tmp_path / "index.jsonl"
    lines = index.read_bytes().splitlines(keepends=True)
    index.write_bytes({"": b"", "first": lines[0], "last": lines[2]}[kept])
    reader = TraceReader(tmp_path)
    assert [row.episode_id for row in reader.index()] == ["a", "b", "c"]
    assert_same(reader.episode("b").trajectory, sample("b"))


def test_a_resumed_step_adds_files_and_its_last_line_counts(tmp_path: Path) -> None:
    TraceWriter(tmp_path).write(3, [Group((sample("a", 0.0), sample("b", 0.0)))], None, byte_ids)
    before = (tmp_path / "tokens-00000003.parquet").read_bytes()
    TraceWriter(tmp_path).write(3, [Group((sample("a", 1.0, turns=4),))], None, byte_ids)
    reader = TraceReader(tmp_path)
    assert (tmp_path / "tokens-00000003.parquet").read_bytes() == before
    assert reader.episode("a", 3).trajectory.outcome == 1.0
    assert reader.episode("b", 3).trajectory.outcome == 0.0
    assert sorted(row.episode_id for row in reader.index()) == ["a", "b"]


@pytest.mark.parametrize("index", ["whole", "lost"])
def test_cutting_leaves_what_was_written_up_to_a_step_and_nothing_else(tmp_path: Path, index: str) -> None:
    writer, kept = TraceWriter(tmp_path), {}
    for step in (0, 1, 2):
        writer.write(step, [Group((sample(f"ep-{step}"), sample(f"other-{step}")))], None, byte_ids)
        if step == 1:
            kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with (tmp_path / "episodes.jsonl").open("ab") as file:
        file.write(b'{"schema_version": "1.1", "episode_')  # torn by a kill
    (tmp_path / "tokens-00000003.parquet").write_bytes(b"whole, but no line points here yet")
    (tmp_path / ".tokens-00000003.parquet.unfinished").write_bytes(b"half")
    if index == "lost":
        (tmp_path / "index.jsonl").unlink()
    for _ in range(2):  # again, as after a kill while cutting
        cut_after(tmp_path, 1)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept
    TraceWriter(tmp_path).write(2, [Group((sample("ep-2"),))], None, byte_ids)
    assert [row.episode_id for row in TraceReader(tmp_path).index()] == ["ep-0", "other-0", "ep-1", "other-1", "ep-2"]
    cut_after(tmp_path, -1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["episodes.jsonl", "index.jsonl"]
    assert not TraceReader(tmp_path).index()


def test_without_a_step_the_episode_written_last_is_read(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path)
    writer.write(1, [Group((sample("a", 0.25),))], None, byte_ids)
    writer.write(2, [Group((sample("a", 0.75),))], None, byte_ids)
    reader = TraceReader(tmp_path)
    assert reader.episode("a").trajectory.outcome == 0.75
    assert reader.episode("a", step=1).trajectory.outcome == 0.25
    with pytest.raises(TraceError, match=r"it is stored for steps \[1, 2\]"):
        reader.episode("a", step=9)


def _edit(folder: Path, **changes: object) -> None:
    for name in ("episodes.jsonl", "index.jsonl"):
        lines = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        (folder / name).write_text("".join(json.dumps({**line, **changes}) + "\n" for line in lines))
    (folder / "index.jsonl").unlink()


def test_unknown_fields_are_ignored_within_a_major_version(tmp_path: Path) -> None:
    TraceWriter(tmp_path).write(0, [Group((sample("a"),))], None, byte_ids)
    _edit(tmp_path, schema_version="1.9", weather="mild")
    assert_same(TraceReader(tmp_path).episode("a").trajectory, sample("a"))


def test_an_episode_of_version_1_0_reads_with_unknown_options(tmp_path: Path) -> None:
    TraceWriter(tmp_path).write(0, [Group((sample("a"),))], None, byte_ids)
    assert TraceReader(tmp_path).episode("a").trajectory.options == {"level": "easy", "split": "train"}
    lines = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    del lines[0]["options"]
    (tmp_path / "episodes.jsonl").write_text(json.dumps({**lines[0], "schema_version": "1.0"}) + "\n")
    (tmp_path / "index.jsonl").unlink()
    assert TraceReader(tmp_path).episode("a").trajectory.options is None


def test_options_and_arguments_that_json_cannot_hold_come_back(tmp_path: Path) -> None:
    options = {"limit": float("inf"), "levels": [1.5, float("-inf")]}
    recorder = Recorder(episode_id="a", options=options)
    start, end = recorder.decision([1], [-0.5])
    written = {"tag": {"$float": "nan"}, "nested": {"$float": ["nan"]}, "number": float("inf")}
    recorder.call(Call(0, start, end, "c", "price", written, CallStatus.OK, ""))
    TraceWriter(tmp_path).write(0, [Group((recorder.finish(1.0, StopReason.DONE),))], None, byte_ids)
    found = TraceReader(tmp_path).episode("a").trajectory
    assert found.options == options
    assert found.calls[0].arguments == written


def test_signals_come_back_exactly_and_null_is_no_zero(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pair = [sample("a"), sample("b", turns=3)]
    noise = np.random.default_rng(0)
    given = [
        {
            name: np.where(t.credit_mask & (noise.random(len(t)) < 0.5), noise.normal(size=len(t)), np.nan).astype("f4")
            for name in ("trainer_logprob", "entropy")
        }
        for t in pair
    ]
    TraceWriter(tmp_path / "x").write(1, [Group((t,)) for t in pair], None, byte_ids, signals=given)
    TraceWriter(tmp_path / "y").write_stored(1, list(TraceReader(tmp_path / "x").episodes()))  # a copy keeps them
    for folder in ("x", "y"):
        for episode, expected in zip(TraceReader(tmp_path / folder).episodes(), given, strict=True):
            assert list(episode.signals) == ["trainer_logprob", "entropy"]
            for name, values_T in episode.signals.items():
                assert values_T.dtype == np.float32
                np.testing.assert_array_equal(values_T, expected[name])
    nulls = pq.read_table(tmp_path / "x" / "tokens-00000001.parquet")["entropy"].null_count
    assert nulls == sum(np.isnan(one["entropy"]).sum() for one in given) > 0


def test_traces_without_signals_open_without(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    TraceWriter(tmp_path).write(0, [Group((sample("a"),))], None, byte_ids)
    assert TraceReader(tmp_path).episode("a").signals == {}
    (tokens,) = tmp_path.glob("tokens-*.parquet")
    pq.write_table(pq.read_table(tokens).drop_columns(["trainer_logprob", "entropy"]), tokens)
    lines = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    del lines[0]["signals"]
    (tmp_path / "episodes.jsonl").write_text(json.dumps({**lines[0], "schema_version": "1.2"}) + "\n")
    (tmp_path / "index.jsonl").unlink()
    episode = TraceReader(tmp_path).episode("a")
    assert episode.signals == {}
    assert_same(episode.trajectory, sample("a"))


def test_signals_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    trajectory = sample("a")
    for signals, told in (
        ([], "signals are for 0 episodes, found 1"),
        ([{"entropy": np.zeros(3, dtype=np.float32)}], "shape .* episode 'a' has"),
        ([{"surprise": np.zeros(len(trajectory), dtype=np.float32)}], "'surprise' has no column"),
    ):
        with pytest.raises(TraceError, match=told):
            TraceWriter(tmp_path).write(0, [Group((trajectory,))], None, byte_ids, signals=signals)


def test_an_episode_that_could_not_be_written_may_be_written_again(tmp_path: Path) -> None:
    writer, broken = TraceWriter(tmp_path), Recorder(episode_id="a", options={"task": object()})
    with pytest.raises(TraceError, match="options, seeds, arguments"):
        writer.write(0, [Group((broken.finish(1.0, StopReason.DONE),))], None, byte_ids)
    writer.write(0, [Group((sample("a"),))], None, byte_ids)
    assert len(TraceReader(tmp_path).index()) == 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{}", "is no episode"),
        ('{"outcome": 1, "turn_rewards": 3}', "is no episode"),
        ('{"schema_version": "new"}', "has schema_version new, expected a version such as"),
        ('{"schema_version": null}', "has schema_version None"),
    ],
)
def test_lines_that_nobody_of_ours_wrote_are_refused_where_they_lie(tmp_path: Path, line: str, told: str) -> None:
    (tmp_path / "episodes.jsonl").write_text(f"{line}\n")
    with pytest.raises(TraceError, match=f"the line at byte 0 .*{told}"):
        TraceReader(tmp_path).index()


def test_an_index_of_other_episodes_is_noticed(tmp_path: Path) -> None:
    TraceWriter(tmp_path / "a").write(0, [Group((sample("a"),))], None, byte_ids)
    TraceWriter(tmp_path / "b").write(0, [Group((sample("b"),))], None, byte_ids)
    (tmp_path / "b" / "index.jsonl").replace(tmp_path / "a" / "index.jsonl")
    with pytest.raises(TraceError, match="holds episode 'a' of step 0 at byte 0, the index says 'b' of step 0"):
        TraceReader(tmp_path / "a").episode("b")


def test_a_newer_major_version_is_refused_in_one_sentence(tmp_path: Path) -> None:
    TraceWriter(tmp_path).write(0, [Group((sample("a"),))], None, byte_ids)
    _edit(tmp_path, schema_version="2.0")
    with pytest.raises(TraceError, match=r"has schema_version 2\.0, but this Accredit reads up to 1\.x: upgrade"):
        TraceReader(tmp_path).index()


def test_no_line_points_to_a_file_that_is_not_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("pyarrow.parquet.write_table", fail)
    with pytest.raises(OSError, match="disk full"):
        TraceWriter(tmp_path).write(0, [Group((sample("a"),))], None, byte_ids)
    assert not list(tmp_path.iterdir())


def test_episodes_need_ids_of_their_own(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path)
    with pytest.raises(TraceError, match="has no episode_id"):
        writer.write(0, [Group((sample(""),))], None, byte_ids)
    with pytest.raises(TraceError, match="written twice in step 0"):
        writer.write(0, [Group((sample("a"), sample("a")))], None, byte_ids)
    writer.write(0, [Group((sample("a"),))], None, byte_ids)
    with pytest.raises(TraceError, match="written twice in step 0"):
        writer.write(0, [Group((sample("a"),))], None, byte_ids, split="heldout")
    writer.write(1, [Group((sample("a"),))], None, byte_ids)


def test_credits_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    one, longer = sample("a"), sample("b", turns=4)
    writer = TraceWriter(tmp_path)
    with pytest.raises(TraceError, match="pass one Credit an episode"):
        writer.write(0, [Group((one, longer))], [[credit_of(one, "outcome")]], byte_ids)
    with pytest.raises(TraceError, match="pass the credit of this trajectory"):
        writer.write(0, [Group((one,))], [[credit_of(longer, "outcome")]], byte_ids)
    with pytest.raises(TraceError, match="return one a token"):
        writer.write(0, [Group((one,))], None, lambda _: [b"x"])


def test_unknown_episodes_get_the_nearest_names(tmp_path: Path) -> None:
    TraceWriter(tmp_path).write(0, [Group((sample("shop-12"),))], None, byte_ids)
    with pytest.raises(TraceError, match="nearest: shop-12"):
        TraceReader(tmp_path).episode("shop-13")


def test_open_run_takes_the_run_or_its_traces_and_names_runs_below(tmp_path: Path) -> None:
    run = tmp_path / "first"
    TraceWriter(run / "traces").write(0, [Group((sample("a"),))], None, byte_ids)
    assert len(open_run(run).index()) == len(open_run(run / "traces").index()) == 1
    with pytest.raises(TraceError, match=r"did you mean one of .*first"):
        open_run(tmp_path)
    with pytest.raises(TraceError, match="there is no run at"):
        open_run(tmp_path / "absent")


def test_the_files_open_in_pandas_json_and_duckdb_without_this_package(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pair = [sample("a"), sample("b")]
    credits = [[credit_of(pair[0], "outcome"), credit_of(pair[1], "outcome", "luck")]]
    TraceWriter(tmp_path).write(7, [Group(tuple(pair))], credits, byte_ids)
    frame = pandas.read_parquet(tmp_path / "tokens-00000007.parquet")
    assert list(frame.columns[:9]) == [
        "episode_id", "position", "token_id", "logprob", "kind", "turn", "token", "credit", "advantage"
    ]  # fmt: skip
    assert {"credit:outcome", "credit:luck", "advantage:outcome"} <= set(frame.columns)
    mine = frame[frame.episode_id == "a"]
    assert mine["credit:luck"].isna().all()
    assert b"".join(mine.token).startswith(b"find the price")
    assert mine.loc[mine.kind != "decision", "logprob"].isna().all()
    assert len(pandas.read_json(tmp_path / "index.jsonl", lines=True)) == 2
    assert [json.loads(line)["step"] for line in (tmp_path / "episodes.jsonl").read_text().splitlines()] == [7, 7]
    duckdb = pytest.importorskip("duckdb")
    query = f"select count(*), sum(credit) from '{tmp_path}/tokens-00000007.parquet'"
    ((count, credit_sum),) = duckdb.connect().execute(query).fetchall()
    assert count == len(frame)
    assert credit_sum == pytest.approx(frame.credit.sum())


def test_the_credit_room_does_not_import_pyarrow() -> None:
    import subprocess
    import sys

    code = "import sys, accredit.credit; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
