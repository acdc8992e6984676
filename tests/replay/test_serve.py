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
from accredit.replay.serve.run import ServedRun, new_metrics
from accredit.replay.serve.table_listing import listing_of_table

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


def write_step(run: Path, step: int) -> None:
    words, group, credits = shop_group(seed=step)
    TraceWriter(run / "traces").write(step, [group], [credits], words.token_bytes)


def test_new_episodes_and_metrics_reach_an_open_page_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    run = write_shop_run(tmp_path / "live")
    with served(run) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("GET", "/api/events")
        stream = connection.getresponse()
        assert stream.getheader("content-type", "").startswith("text/event-stream")
        assert stream.readline().startswith(b":")
        write_step(run, 13)
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": 13, "rollout/reward": 0.5}) + "\n")
            file.write('{"step": 14, "torn')
        seen: dict[str, Any] = {}
        while len(seen) < 2:
            line = stream.readline().decode()
            if line.startswith("event: "):
                seen[line[7:].strip()] = json.loads(stream.readline().decode()[6:])
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
    assert new_metrics(path, 0) == ([], 0)
    path.write_text('{"step": 1}\n{"step": 2')
    lines, at = new_metrics(path, 0)
    assert lines == [{"step": 1}] and new_metrics(path, at) == ([], at)
    path.write_text('{"step": 1}\n')  # the torn line was cut off by a resume
    assert new_metrics(path, at + 99) == ([], 12)
