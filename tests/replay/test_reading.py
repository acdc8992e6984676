"""A stored run in Python: several credit functions over the same episodes, and other libraries over the same files."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from sample_episodes import shop_group, write_shop_run

from accredit.credit import CreditError, Group, TraceError
from accredit.credit.functions import credit_function
from accredit.credit.traces import TraceWriter
from accredit.replay import RunReader, open_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shop_run(tmp_path_factory.mktemp("runs") / "shop")


def test_one_run_is_priced_by_several_functions_in_its_whole_groups(run: Path) -> None:
    reader = open_run(run)
    found = list(reader.price(["grpo", "anchored,lam=0"], where="reward < 0.5"))
    assert [p.episode.trajectory.episode_id for p in found] == ["ep-3", "ep-4"]
    whole = Group(tuple(episode.trajectory for episode in reader.episodes()))
    wanted = credit_function("grpo", charge_scale=1.0)(whole)[3]  # not of the two that were asked for
    assert np.array_equal(found[0].credits["grpo"].advantage.total, wanted.advantage.total)
    assert set(found[0].credits) == {"grpo", "anchored,lam=0"} and found[0].episode.credit is not None


def test_functions_at_hand_are_taken_as_they_are(run: Path) -> None:
    (priced,) = open_run(run).price({"mine": credit_function("rloo", charge_scale=0.0)}, where="id=ep-0")
    assert priced.episode.trajectory.charges
    charged = [term_T for name, term_T in priced.credits["mine"].credit.terms.items() if name.startswith("charge:")]
    assert not np.any(charged)
    with pytest.raises(CreditError, match="gave 0 credits for a group of 6"):
        next(open_run(run).price({"none": lambda group: ()}))


def test_an_unknown_function_or_filter_is_told(run: Path) -> None:
    with pytest.raises(CreditError, match="did you mean 'grpo'"):
        next(open_run(run).price(["grop"]))
    with pytest.raises(TraceError, match="character 1"):
        open_run(run).price(["grpo"], where="rewrad<0")  # before anything is read


def test_a_run_is_read_while_it_is_written(tmp_path: Path) -> None:
    words, group, credits = shop_group()
    folder = tmp_path / "traces"
    writer = TraceWriter(folder)
    writer.write(0, [group], [credits], words.token_bytes)
    ended = threading.Event()

    def write() -> None:
        for step in range(1, 40):
            writer.write(step, [group], [credits], words.token_bytes)
        ended.set()

    thread = threading.Thread(target=write)
    thread.start()
    seen = []
    try:
        while not ended.is_set():
            reader = RunReader(folder)
            rows = reader.index()
            seen.append(len(rows))
            last = reader.load(rows[-1]).trajectory
            wanted = next(t for t in group.trajectories if t.episode_id == last.episode_id)
            assert np.array_equal(last.token_ids, wanted.token_ids)
    finally:
        thread.join(timeout=60)
    assert seen == sorted(seen) and len(RunReader(folder).index()) == 240


def test_the_stored_run_opens_with_pandas_and_duckdb(run: Path) -> None:
    pandas, duckdb = pytest.importorskip("pandas"), pytest.importorskip("duckdb")
    reader = open_run(run)
    index = pandas.read_json(run / "traces" / "index.jsonl", lines=True)
    records = pandas.read_json(run / "traces" / "episodes.jsonl", lines=True)
    tokens = pandas.read_parquet(next((run / "traces").glob("tokens-*.parquet")))
    assert list(index.episode_id) == list(records.episode_id) == [row.episode_id for row in reader.index()]
    assert index.summary.str["trained"].sum() == (tokens.kind == "decision").sum()
    query = f"""
        select i.episode_id, sum(t.advantage)
        from read_json_auto('{run}/traces/index.jsonl') i join '{run}/traces/tokens-*.parquet' t using (episode_id)
        where i.reward > 0.5 group by 1 order by 1
    """
    for name, total in duckdb.connect().execute(query).fetchall():
        credit = reader.episode(name).credit
        assert credit is not None and total == pytest.approx(credit.advantage.total.sum())


def test_the_stored_run_opens_with_datasets(run: Path, tmp_path: Path) -> None:
    import datasets

    files = [str(path) for path in (run / "traces").glob("tokens-*.parquet")]
    tokens = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path))
    assert len(tokens) == sum(row.tokens for row in open_run(run).index())
    lines = datasets.load_dataset(
        "json", data_files=str(run / "traces" / "index.jsonl"), split="train", cache_dir=str(tmp_path)
    )
    first = json.loads((run / "traces" / "index.jsonl").read_text().splitlines()[0])
    assert lines[0]["episode_id"] == first["episode_id"] and lines[0]["summary"]["tools"] == first["summary"]["tools"]
