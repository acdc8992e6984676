"""The filter language means the same to a reader of traces, to a server and (test_page_filter) to the page."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from filter_examples import EXAMPLES, FROM_EPISODES, REFUSED, kept
from sample_episodes import shop_group, write_shop_run, write_two_steps
from test_serve import blocks_of, served

from accredit.cli import main
from accredit.credit import TraceError
from accredit.credit.traces import TraceWriter, open_run
from accredit.credit.traces.chosen import ChosenRows
from accredit.credit.traces.cutting import cut_after
from accredit.credit.traces.table import IndexTable
from accredit.credit.traces.where import FIELDS, parse_where
from accredit.replay.pack import read_block
from accredit.replay.serve.run import ServedRun, Unknown


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_two_steps(tmp_path_factory.mktemp("filters") / "shop")


def listed(found: ServedRun, generation: str = "", cursor: int = 0) -> list[tuple[int, str]]:
    header, columns = read_block(found.listing(cursor, generation))
    ends = np.cumsum(columns["id_length"])
    names = [bytes(part).decode() for part in np.split(columns["id"], ends[:-1])] if header["rows"] else []
    return list(zip(columns["step"].tolist(), names, strict=True))


def test_the_examples_have_every_field_and_every_sign() -> None:
    conditions = [condition for where in (*EXAMPLES, *FROM_EPISODES) for condition in parse_where(where)]
    assert {condition.field for condition in conditions} == set(FIELDS)
    assert {condition.sign for condition in conditions} == {"<", "<=", ">", ">=", "=", "!=", ":"}


@pytest.mark.parametrize("where", [*EXAMPLES, *FROM_EPISODES])
def test_a_reader_and_a_server_keep_the_same(run: Path, where: str) -> None:
    wanted = kept({**EXAMPLES, **FROM_EPISODES}[where])
    assert [(row.step, row.episode_id) for row in open_run(run).select(where=where)] == wanted
    assert listed(ServedRun(run / "traces", "shop", where=where)) == wanted


@pytest.mark.parametrize("where", REFUSED)
def test_a_bad_filter_is_refused_before_anything_is_served(
    run: Path, where: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TraceError) as caught:
        open_run(run).select(where=where)
    assert REFUSED[where] in str(caught.value)
    assert main(["replay", "view", str(run), "--port", "0", "--where", where]) == 1
    told = capfd.readouterr()
    assert REFUSED[where] in told.err.replace("\n", " ") and "http:" not in told.out


def test_text_is_not_searched_by_a_filter() -> None:
    for where in ('"a phrase"', "/expression/", "reward<0 /x/"):
        with pytest.raises(TraceError, match="searched on the page only"):
            parse_where(where)


def test_a_server_gives_only_what_fits_also_while_the_run_grows(tmp_path: Path) -> None:
    run = write_shop_run(tmp_path / "live")
    served_run = ServedRun(run / "traces", "shop", where="reward>=0.6 charges=0")
    header, _ = read_block(served_run.listing(0))
    assert listed(served_run) == [(12, "ep-1"), (12, "ep-2")] and "reward>=0.6" in served_run.about()["notice"]
    assert header["tables"]["errors"] == [[]]  # nothing of the others
    with pytest.raises(Unknown, match=r"'ep-0' of step 12 does not fit 'reward>=0\.6 charges=0'"):
        served_run.episode(12, "ep-0")
    whole = read_block(ServedRun(run / "traces", "shop").episode(12, "ep-2"))[0]
    assert read_block(served_run.episode(12, "ep-2"))[0]["scales"] == whole["scales"]  # those of all rollouts
    words, group, credits = shop_group(seed=13)
    TraceWriter(run / "traces").write(13, [group], [credits], words.token_bytes)
    assert listed(served_run, header["generation"], header["next"]) == [(13, "ep-1"), (13, "ep-2")]
    cut_after(run / "traces", 12)
    later, _ = read_block(served_run.listing(header["next"], header["generation"]))
    assert later["anew"] and later["rows"] == 2


def test_an_episode_that_is_written_again_and_does_not_fit_any_more_is_taken_back(tmp_path: Path) -> None:
    run = write_shop_run(tmp_path / "again")
    index = IndexTable(run / "traces")
    chosen = ChosenRows(index, "turns>5")
    assert chosen.fitting_N.tolist() == [True, True, False, False, False, False]
    words, group, credits = shop_group()
    renamed = [t for t in group.trajectories if t.episode_id == "ep-3"]
    again = replace(group, trajectories=(replace(renamed[0], episode_id="ep-0"),))
    TraceWriter(run / "traces").write(12, [again], [[credits[3]]], words.token_bytes)
    index.refresh()
    chosen.refresh()
    assert chosen.fitting_N.tolist() == [False, True, False, False, False, False, False] and chosen.taken_back == 1
    assert [row.episode_id for row in open_run(run).select(where="turns>5")] == ["ep-1"]


def test_view_serves_what_fits(run: Path) -> None:
    with served(run, "--where", "error:invalid reward<0.5") as server:
        assert read_block(server.get("/api/listing?from=0")[2])[0]["rows"] == 2
        assert len(blocks_of(server.get("/api/bundle?episode=4/ep-3")[2])) == 1
        status, _, said = server.get("/api/bundle?episode=4/ep-0")
        assert status == 404 and b"does not fit" in said
        assert server.get("/traces/index.jsonl")[0] == 404 and server.end() == 130
