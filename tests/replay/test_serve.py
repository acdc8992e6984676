"""The server of the replay page, run as people run it: `accredit replay view`, asked over HTTP."""

import http.client
import json
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_episodes import shop_group, write_shop_run

from accredit.credit.traces import TraceWriter, open_run
from accredit.credit.traces.cutting import cut_after
from accredit.credit.traces.table import IndexTable
from accredit.replay.listing import listing_block, row_of
from accredit.replay.pack import read_block
from accredit.replay.serve.metric_events import Position, metrics_since
from accredit.replay.serve.run import ServedRun
from accredit.replay.serve.table_listing import listing_of_table
from accredit.trainer.metrics import cut_after as cut_metrics_after

Answer = tuple[int, dict[str, str], bytes]


class Served:
    """A server in a process of its own."""

    def __init__(self, run: Path, *options: str) -> None:
        command = [sys.executable, "-m", "accredit", "replay", "view", str(run), "--port", "0", *options]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a script's background jobs ignore it
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert "http://127.0.0.1:" in said, said + self.process.stdout.read()
        self.port = int(said.split("http://127.0.0.1:")[1].split("/")[0])

    def get(self, path: str, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=30)


@contextmanager
def served(run: Path, *options: str) -> Iterator[Served]:
    server = Served(run, *options)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait(timeout=30)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shop_run(tmp_path_factory.mktemp("runs") / "shop")


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[Served]:
    with served(run, "--credit", "rloo,anchored,lam=0") as found:
        yield found


def blocks_of(raw: bytes) -> list[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    found, at = [], 0
    while at < len(raw):
        (size,) = struct.unpack_from("<I", raw, at)
        found.append(read_block(raw[at + 4 : at + 4 + size]))
        at += 4 + size
    return found


def test_the_page_and_its_files_come_with_a_policy(server: Served) -> None:
    status, headers, page = server.get("/")
    assert status == 200 and b"<!doctype html>" in page and headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert "access-control-allow-origin" not in headers
    for name, kind in (("main.js", "text/javascript"), ("style.css", "text/css")):
        status, headers, _ = server.get(f"/{name}")
        assert status == 200 and headers["content-type"].startswith(kind)


def test_a_name_that_points_here_is_refused(server: Served) -> None:
    status, headers, said = server.get("/api/run", Host="evil.example")
    assert status == 403 and b"evil.example" in said and "content-security-policy" in headers
    assert server.get("/api/run", Host="127.0.0.1.evil.example:80")[0] == 403
    assert server.get("/api/run", Host="localhost:9999")[0] == 200  # a tunnel of ssh


def test_it_listens_on_this_machine_only(server: Served) -> None:
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", server.port), timeout=5)


@pytest.mark.parametrize(
    "path", ["/../bundle.py", "/__init__.py", "/%2e%2e/pack.py", "/traces/..%2f..%2fsecret", "/x.js"]
)
def test_nothing_else_of_the_disk_is_served(server: Served, path: str) -> None:
    assert server.get(path)[0] == 404


def test_stored_files_are_served_by_byte_ranges(server: Served, run: Path) -> None:
    whole = (run / "traces" / "episodes.jsonl").read_bytes()
    status, headers, part = server.get("/traces/episodes.jsonl", Range="bytes=10-29")
    assert status == 206 and part == whole[10:30] and headers["content-range"] == f"bytes 10-29/{len(whole)}"


def test_an_episode_comes_as_stored_under_all_functions(server: Served, run: Path) -> None:
    about = json.loads(server.get("/api/run")[2])
    assert about["functions"] == ["rloo", "anchored,lam=0"] and about["live"] is True and about["title"] == "shop"
    status, _, raw = server.get("/api/bundle?episode=12/ep-3&episode=12/ep-0&credit=rloo")
    assert status == 200
    (_, columns), (header, other) = blocks_of(raw)
    stored = open_run(run).episode("ep-3")
    assert np.array_equal(columns["token_id"], stored.trajectory.token_ids)
    assert stored.credit is not None
    assert np.allclose(columns["credit:outcome"], stored.credit.credit.terms["outcome"], atol=1e-7)
    assert header["episode_id"] == "ep-0" and "rloo/advantage:outcome" in other and len(columns["bytes"])
    strongest = max(np.abs(columns["credit:outcome"]).max(), np.abs(other["credit:outcome"]).max())
    assert header["scales"]["credit"] <= strongest * 1.01  # of the whole group, the same in both
    assert blocks_of(raw)[0][0]["scales"] == header["scales"]


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/api/bundle?episode=12/ep-9", 404, "no episode 'ep-9' at step 12"),
        ("/api/bundle?episode=12/ep-0&credit=grpo", 404, "no credit function 'grpo' is offered here"),
        ("/api/bundle?episode=ep-0", 400, "expected episode=STEP/ID"),
        ("/api/listing?from=x", 400, "expected from=NUMBER"),
    ],
)
def test_a_wrong_request_is_one_line_of_text(server: Served, path: str, status: int, told: str) -> None:
    found, headers, said = server.get(path)
    assert found == status and told in said.decode() and headers["content-type"].startswith("text/plain")


def test_the_listing_is_that_of_the_episodes_read(server: Served, run: Path) -> None:
    reader = open_run(run)
    header, columns = read_block(server.get("/api/listing?from=0")[2])
    wanted_header, wanted = read_block(listing_block([row_of(e) for e in reader.episodes()], header["next"]))
    assert columns.keys() == wanted.keys() and header["rows"] == 6
    for name, column in wanted.items():
        if name in wanted_header["tables"]:
            texts, ours = wanted_header["tables"][name], header["tables"][name]
            assert [texts[code] for code in column] == [ours[code] for code in columns[name]], name
        else:
            assert columns[name].dtype == column.dtype and np.array_equal(columns[name], column, equal_nan=True), name
    assert read_block(server.get(f"/api/listing?from={header['next']}")[2])[0]["rows"] == 0


def log(run: Path, *steps: int) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(
            json.dumps({"step": step, "rollout/reward": step / 10, "pad": "x" * 700}) + "\n" for step in steps
        )


class Stream:
    """A connection to `api/events`, as a browser holds it."""

    def __init__(self, server: Served, start: str, last_id: str = "") -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        headers = {"Last-Event-ID": last_id} if last_id else {}
        self.connection.request("GET", f"/api/events?from={start}", headers=headers)
        self.answer = self.connection.getresponse()
        self.last_id = last_id

    def next(self) -> tuple[str, Any]:
        """Return the next event, its name and its data."""
        found: dict[str, str] = {}
        while "data" not in found:
            name, _, value = self.answer.readline().decode().rstrip("\n").partition(": ")
            if name:
                found[name] = value
        self.last_id = found.get("id", self.last_id)
        return found["event"], json.loads(found["data"])

    def steps(self, count: int) -> list[int]:
        events = [self.next() for _ in range(count)]
        assert {name for name, _ in events} == {"metrics"}
        return [data["step"] for _, data in events]

    def close(self) -> None:
        self.answer.close()
        self.connection.close()


def write_step(run: Path, step: int) -> None:
    words, group, credits = shop_group(seed=step)
    TraceWriter(run / "traces").write(step, [group], [credits], words.token_bytes)


def test_new_episodes_and_metrics_reach_an_open_page_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    run = write_shop_run(tmp_path / "live")
    with served(run) as server:
        stream = Stream(server, json.loads(server.get("/api/run")[2])["events_from"])
        assert stream.answer.getheader("content-type", "").startswith("text/event-stream")
        write_step(run, 13)
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": 13, "rollout/reward": 0.5}) + "\n")
            file.write('{"step": 14, "torn')
        seen = dict(stream.next() for _ in range(2))
        assert seen == {"listing": {"next": 12}, "metrics": {"step": 13, "rollout/reward": 0.5}}
        header, columns = read_block(server.get("/api/listing?from=6")[2])
        assert header["rows"] == 6 and set(columns["step"]) == {13}
        assert len(blocks_of(server.get("/api/bundle?episode=13/ep-0")[2])) == 1
        began = time.monotonic()
        assert server.end() == 130 and time.monotonic() - began < 15  # with the stream still open
        assert server.process.stdout is not None and "Traceback" not in server.process.stdout.read()


def test_a_port_in_use_is_one_clear_line(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from accredit.cli import main

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["replay", "view", str(run), "--port", str(port)]) == 1
    said = capfd.readouterr().err
    assert said.startswith(f"ServeError: port {port} of 127.0.0.1 cannot be served") and "--port" in said


def test_a_run_that_goes_back_to_a_checkpoint_is_listed_anew(tmp_path: Path) -> None:
    run = write_shop_run(tmp_path / "resumed")
    write_step(run, 13)
    table = IndexTable(run / "traces")
    before = table.cursor
    cut_after(run / "traces", 12)
    write_step(run, 13)
    write_step(run, 14)
    assert table.refresh() and len(table) == 18
    assert read_block(listing_of_table(table, before))[0]["rows"] == 18  # the page replaces rows by step and id
    assert read_block(listing_of_table(table, table.cursor))[0]["rows"] == 0


def test_a_lost_index_and_a_torn_line_hide_no_episode(tmp_path: Path) -> None:
    run = write_shop_run(tmp_path / "torn")
    index = run / "traces" / "index.jsonl"
    whole = index.read_text().splitlines(keepends=True)
    index.unlink()
    table = IndexTable(run / "traces")
    assert len(table) == 6 and table.find(12, "ep-5") is not None
    index.write_text("".join(whole[:3]) + '{"torn": \n' + "".join(whole[3:]))
    assert [row.episode_id for row in map(IndexTable(run / "traces").row, range(6))] == [f"ep-{i}" for i in range(6)]


def test_a_tool_whose_name_is_no_valid_text_is_listed(tmp_path: Path) -> None:
    words, group, credits = shop_group()
    calls = tuple(replace(call, name="half \ud800 a character") for call in group.trajectories[0].calls)
    group = replace(group, trajectories=(replace(group.trajectories[0], calls=calls), *group.trajectories[1:]))
    TraceWriter(tmp_path / "traces").write(1, [group], [credits], words.token_bytes)
    found = IndexTable(tmp_path / "traces").codes("tools")
    assert found is not None and found.values[found.codes_N[0]] == ["half ? a character"]
    (tmp_path / "traces" / "index.jsonl").unlink()
    assert len(IndexTable(tmp_path / "traces")) == 6


def test_a_run_that_has_written_nothing_is_served_and_fills(tmp_path: Path) -> None:
    served_run = ServedRun(tmp_path / "run" / "traces", "run")
    assert read_block(served_run.listing(0))[0]["rows"] == 0 and served_run.about()["metrics"] == []
    write_shop_run(tmp_path / "run")
    assert served_run.refresh() == 6


def test_metrics_are_told_once_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert metrics_since(path, Position()) == (False, [], Position())
    path.write_text('{"step": 1}\n{"step": 2')
    anew, lines, at = metrics_since(path, Position())
    assert not anew and lines == [({"step": 1}, at)] and at.offset == 12
    assert metrics_since(path, at) == (False, [], at) and Position.parse(str(at)) == at
    with path.open("a") as file:
        file.write("}\nno metrics\n")
    assert [line for line, _ in metrics_since(path, at).lines] == [{"step": 2}]
    path.write_text('{"step": 5}\n{"step": 2}\n')  # as long as before, and another
    assert metrics_since(path, at).anew and len(metrics_since(path, at).lines) == 2
    path.unlink()
    assert metrics_since(path, at) == (True, [], Position())


def test_no_line_is_lost_or_told_twice_between_two_requests_and_over_a_lost_connection(tmp_path: Path) -> None:
    run = write_shop_run(tmp_path / "live")
    log(run, 1, 2)
    with served(run) as server:
        about = json.loads(server.get("/api/run")[2])
        assert [line["step"] for line in about["metrics"]] == [1, 2]
        log(run, 3)  # before the stream begins
        stream = Stream(server, about["events_from"])
        assert stream.steps(1) == [3]
        log(run, 4, 5)
        assert stream.steps(2) == [4, 5]
        stream.close()
        log(run, 6, 7)  # while nobody listens
        again = Stream(server, about["events_from"], stream.last_id)  # a browser keeps the address it began with
        log(run, 8)
        assert again.steps(3) == [6, 7, 8]
        again.close()
    with served(run) as server:  # another server: the position still holds
        log(run, 9)
        last = Stream(server, about["events_from"], again.last_id)
        assert last.steps(1) == [9]
        last.close()


def test_metrics_that_a_resume_cut_off_are_told_anew_and_those_before_it_are_not(tmp_path: Path) -> None:
    run = write_shop_run(tmp_path / "live")
    log(run, *range(1, 7))
    with served(run) as server:
        position = json.loads(server.get("/api/run")[2])["events_from"]
        stream = Stream(server, position)
        cut_metrics_after(run / "metrics.jsonl", 4)
        log(run, 51, 61, 71)  # longer than before by the time that the server looks
        name, lines = stream.next()
        assert name == "metrics_anew" and [line["step"] for line in lines] == [1, 2, 3, 4, 51, 61, 71]
        log(run, 81)
        assert stream.steps(1) == [81]
        held = stream.last_id
        stream.close()
        log(run, 91)
        cut_metrics_after(run / "metrics.jsonl", 91)  # written again whole: what was told of it still holds
        again = Stream(server, position, held)
        assert again.steps(1) == [91]
        again.close()
        other = Stream(server, "nonsense")
        assert other.next()[0] == "metrics_anew"
        other.close()


def test_rows_that_a_resume_cut_away_are_told_and_blocks_of_them_are_not_kept(tmp_path: Path) -> None:
    run = write_shop_run(tmp_path / "resumed")
    write_step(run, 13)
    with served(run) as server:
        header, _ = read_block(server.get("/api/listing?from=0&generation=")[2])
        assert header["rows"] == 12 and header["anew"]
        ask = f"/api/listing?from={header['next']}&generation={header['generation']}"
        assert read_block(server.get(ask)[2])[0]["rows"] == 0
        old = blocks_of(server.get("/api/bundle?episode=13/ep-0")[2])[0][1]["logprob"]
        stream = Stream(server, json.loads(server.get("/api/run")[2])["events_from"])
        cut_after(run / "traces", 12)
        assert stream.next()[0] == "listing"  # also without a new row
        header, columns = read_block(server.get(ask)[2])
        assert header["anew"] and set(columns["step"]) == {12} and header["rows"] == 6
        words, group, credits = shop_group(seed=99)
        TraceWriter(run / "traces").write(13, [group], [credits], words.token_bytes)
        header, _ = read_block(server.get(f"/api/listing?from={header['next']}&generation={header['generation']}")[2])
        assert not header["anew"] and header["rows"] == 6
        new = blocks_of(server.get("/api/bundle?episode=13/ep-0")[2])[0][1]["logprob"]
        assert not np.array_equal(old, new, equal_nan=True)
        cut_after(run / "traces", 1)
        header, _ = read_block(server.get(f"/api/listing?from={header['next']}&generation={header['generation']}")[2])
        assert header["anew"] and header["rows"] == 0
        stream.close()
