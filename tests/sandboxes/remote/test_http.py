"""Sandboxes over HTTP: the session protocol as it is at home, and every fault of the line infrastructure's."""

import asyncio
import http.server
import json
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from accredit.sandboxes import Blame, Limits, SandboxError, Status
from accredit.sandboxes.errors import SandboxFault
from accredit.sandboxes.pool import Pool
from accredit.sandboxes.remote import RemoteSandbox, far
from accredit.sandboxes.remote.server import serve
from accredit.sandboxes.remote.wire import decode, encode
from accredit.sandboxes.select import select

APPEND = "with open('log', 'a') as log: log.write('x')\nprint(open('log').read())"


def ended(outcome) -> tuple[Status, Blame]:
    return outcome.status, outcome.blame


def test_a_session_over_http_is_a_session(serving) -> None:
    server = serving()
    session = RemoteSandbox(server.url).open_blocking(Limits(wall_s=20.0))
    assert session.report.backend == "embedded"
    outcome = session.run("import sys\nprint(sys.stdin.read().upper())", stdin=b"hi\xff"[:2])
    assert (outcome.status, outcome.stdout) == (Status.OK, b"HI\n")
    outcome = session.run("total = 1\nprint(total / 0)")
    assert ended(outcome) == (Status.EXCEPTION, Blame.MODEL)
    assert (outcome.error_spans[-1].start, outcome.error_spans[-1].end) == (16, 25)
    assert ended(session.run("while True: pass", Limits(wall_s=1.0))) == (Status.TIMEOUT_WALL, Blame.MODEL)
    session.write("a/b.bin", bytes(range(256)))
    assert session.read("a/b.bin") == bytes(range(256))
    assert [(entry.path, entry.kind, entry.size) for entry in session.list()] == [
        ("a", "folder", 0),
        ("a/b.bin", "file", 256),
    ]
    assert session.run(["/bin/sh", "-c", "wc -c < a/b.bin"]).stdout.strip() == b"256"
    with pytest.raises(SandboxError, match="nowhere"):
        session.read("nowhere")
    branch = session.branch()
    branch.write("a/b.bin", b"other")
    assert (session.read("a/b.bin"), branch.read("a/b.bin")) == (bytes(range(256)), b"other")
    assert server.health()["held"] == 2
    branch.close()
    session.close()
    session.close()
    with pytest.raises(SandboxError, match="closed"):
        session.run("print(1)")
    assert (server.health()["sessions"], server.health()["faults"]) == (0, 0)


def test_a_cancelled_run_is_stopped_and_the_session_goes_on(serving) -> None:
    async def scene() -> None:
        async with await RemoteSandbox(server.url).open() as session:
            running = asyncio.create_task(session.run("import time\ntime.sleep(60)", Limits(wall_s=60.0)))
            await asyncio.sleep(0.5)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert (await session.run("print(1)")).ok

    server = serving()
    asyncio.run(scene())
    assert server.health()["statuses"] == {"cancelled": 1, "ok": 1}


@pytest.mark.parametrize("lost", [1, 3])
def test_a_run_whose_answer_is_lost_is_asked_for_again_and_not_run_again(serving, proxied, lost: int) -> None:
    server = serving()
    proxy = proxied(server.port)
    session = RemoteSandbox(proxy.url).open_blocking()
    proxy.about, proxy.lose = b"log.write", lost
    outcome = session.run(APPEND)
    assert (outcome.status, outcome.stdout) == (Status.OK, b"x\n")
    assert session.run(APPEND).stdout == b"xx\n"
    assert (proxy.lost, server.health()["repeated"], server.health()["runs"]) == (lost, lost, 2)


def test_an_opening_whose_answer_is_lost_opens_once(serving, proxied) -> None:
    server = serving()
    proxy = proxied(server.port)
    proxy.about, proxy.lose = b"POST /sessions ", 2
    assert RemoteSandbox(proxy.url).open_blocking().run("print(1)").ok
    assert (proxy.lost, server.health()["opened"], server.health()["held"]) == (2, 1, 1)


def test_answers_that_stay_lost_are_the_lines_fault_and_end_the_session(serving, proxied) -> None:
    proxy = proxied(serving().port)
    session = RemoteSandbox(proxy.url).open_blocking()
    proxy.about, proxy.lose = b"log.write", 99
    assert ended(session.run(APPEND)) == (Status.LOST, Blame.INFRASTRUCTURE)
    proxy.lose = 0
    outcome = session.run("print(1)")  # whether the program before it ran is not known
    assert ended(outcome) == (Status.LOST, Blame.INFRASTRUCTURE)
    assert "lost before" in outcome.evidence.detail


def test_an_answer_that_does_not_come_is_a_backend_timeout(serving, proxied, monkeypatch) -> None:
    monkeypatch.setattr(far, "SETUP_S", 0.5)
    proxy = proxied(serving().port)
    session = RemoteSandbox(proxy.url).open_blocking(Limits(wall_s=0.5))
    proxy.about, proxy.lose, proxy.cut = b"print(1)", 99, False
    assert ended(session.run("print(1)")) == (Status.BACKEND_TIMEOUT, Blame.INFRASTRUCTURE)


def test_a_server_that_dies_is_infrastructure_and_never_an_exception_of_a_run(serving) -> None:
    server = serving()
    sandbox = RemoteSandbox(server.url)
    session = sandbox.open_blocking()
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(session.run, "import time\ntime.sleep(60)", Limits(wall_s=60.0))
        time.sleep(0.5)
        server.end(signal.SIGKILL)
        assert ended(running.result(30)) == (Status.LOST, Blame.INFRASTRUCTURE)
    with pytest.raises(SandboxFault, match="cannot be reached") as caught:
        sandbox.open_blocking()
    assert caught.value.status is Status.LOST
    session.close()


def test_a_session_of_the_servers_former_life_is_lost(serving) -> None:
    first = serving()
    session = RemoteSandbox(first.url).open_blocking()
    first.end(signal.SIGKILL)
    serving(more={"port": first.port})
    outcome = session.run("print(1)")
    assert ended(outcome) == (Status.LOST, Blame.INFRASTRUCTURE)
    assert "the server is a new one" in outcome.evidence.detail


def test_a_full_pool_says_overloaded(serving) -> None:
    sandbox = RemoteSandbox(serving(most=1, queue=0).url)
    session = sandbox.open_blocking()
    with pytest.raises(SandboxFault, match="overloaded") as caught:
        sandbox.open_blocking()
    assert caught.value.status is Status.OVERLOADED
    with pytest.raises(SandboxFault, match="overloaded"):
        session.branch()
    assert session.run("print(1)").ok  # what was refused before it began leaves the session as it was


def test_what_answers_otherwise_than_a_server_of_sandboxes_is_a_protocol_fault() -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(int(self.path.split("/")[1]))
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, format: str, *args: object) -> None:
            pass

    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    for code, status in ((200, Status.PROTOCOL), (500, Status.LOST), (503, Status.OVERLOADED)):
        with pytest.raises(SandboxFault) as caught:
            RemoteSandbox(f"http://127.0.0.1:{other.server_port}/{code}").open_blocking()
        assert caught.value.status is status
    other.shutdown()


def test_only_who_knows_the_token_is_answered(serving, monkeypatch) -> None:
    url = serving(more={"token": "secret"}).url
    for wrong in (None, "guess"):
        with pytest.raises(SandboxError, match=r"refused \(401\).*Bearer TOKEN"):
            RemoteSandbox(url, wrong).open_blocking()
    assert RemoteSandbox(url, "secret").open_blocking().run("print(1)").ok
    monkeypatch.setenv("ACCREDIT_SANDBOX_TOKEN", "secret")
    assert RemoteSandbox(url).health()["opened"] == 1


def test_without_a_token_other_machines_are_not_served(sandbox) -> None:
    with Pool(sandbox) as pool, pytest.raises(SandboxError, match=r"expected a token for 0\.0\.0\.0"):
        serve(pool, host="0.0.0.0", port=0)


def test_a_dead_clients_session_ends_with_its_lease_and_a_silent_ones_does_not(serving, eventually) -> None:
    server = serving(more={"lease_s": 1.5})
    mine = RemoteSandbox(server.url).open_blocking()
    other = subprocess.Popen(
        [sys.executable, "-c", "import sys, time\nfrom accredit.sandboxes.remote import RemoteSandbox\n"
         "RemoteSandbox(sys.argv[1]).open_blocking()\nprint('open', flush=True)\ntime.sleep(60)", server.url],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert other.stdout is not None
    assert other.stdout.readline() == b"open\n"
    time.sleep(3.0)
    assert server.health()["sessions"] == 2
    other.kill()
    other.wait()
    eventually(lambda: server.health()["expired"] == 1)
    assert mine.run("print(1)").ok


def test_sigterm_ends_every_slot_and_what_runs_is_lost(serving, marker, marking, survivors) -> None:
    server = serving()
    session = RemoteSandbox(server.url).open_blocking()
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(session.run, marking + "import time\ntime.sleep(60)", Limits(wall_s=60.0))
        time.sleep(1.0)
        assert survivors(0.0)
        server.end()
        assert ended(running.result(30)) == (Status.LOST, Blame.INFRASTRUCTURE)
    assert server.process.returncode is not None
    assert survivors(10.0) == []


def test_questions_are_numbered_checked_and_never_done_out_of_turn(serving) -> None:
    server = serving()
    session = RemoteSandbox(server.url).open_blocking()
    where = f"{server.url}/sessions/{session.sandbox_id}"

    def ask(what: str, number: object, **arguments: object) -> tuple[int, dict]:
        answer = httpx.post(f"{where}/{what}", json={"number": number, "arguments": arguments}, trust_env=False)
        return answer.status_code, answer.json()

    limits = encode(None)
    for number in (1, 2, 3, 4):
        assert ask("list", number, path=".")[0] == 200
    code, body = ask("run", 1, program=APPEND, limits=limits, stdin=encode(b""))
    assert (code, body["error"]) == (409, "question 1 was asked before question 4: count up")
    assert ask("run", 0, program="1")[0] == 400
    assert "expected one of run, " in ask("report", 5)[1]["error"]
    assert "expected program, limits, stdin" in ask("run", 5, program="1")[1]["error"]
    assert "to be str, found a int" in ask("read", 5, path=3, most_bytes=1)[1]["error"]
    assert "expected a session id" in httpx.delete(f"{server.url}/sessions/x", trust_env=False).json()["error"]
    assert httpx.post(f"{server.url}/sessions", content=b"[" * 9999, trust_env=False).status_code == 400
    assert server.health()["runs"] == 0


def test_values_come_back_from_json_as_they_were(sandbox) -> None:
    session = sandbox.open_blocking()
    outcomes = [session.run(code, Limits(wall_s=1.0)) for code in ("print(1)", "1 / 0", "while True: pass", "(")]
    for value in (*outcomes, session.report, Limits(), b"\x00\xff", "\ud800", None, (1, 2.5, True)):
        assert decode(json.loads(json.dumps(encode(value)))) == value
    session.close()
    for foreign in ({"$os.system": "id"}, {"$Limits": {"wall_s": -1}}, {"$Limits": {"x": 1}}, {"a": 1, "b": 2}):
        with pytest.raises(ValueError, match="expected"):
            decode(foreign)


def test_signs_of_life_stop_with_the_last_session(serving, eventually) -> None:
    sandbox = RemoteSandbox(serving(more={"lease_s": 0.9}).url)
    session = sandbox.open_blocking()
    assert sandbox._renewing is not None
    session.close()
    eventually(lambda: sandbox._renewing is None)


def test_the_command_serves_and_select_finds_it_by_its_address(sandbox, monkeypatch) -> None:
    del sandbox
    monkeypatch.setenv("ACCREDIT_SANDBOX_TOKEN", "secret")
    command = [sys.executable, "-m", "accredit", "sandbox", "serve", "--port", "0", "--warm", "1", "--most", "2"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        session = select(url).open_blocking()
        assert session.run("print(1)").ok
        session.close()
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) in (0, -signal.SIGTERM)


def test_halves_of_characters_cross_the_line_both_ways(serving) -> None:
    session = RemoteSandbox(serving().url).open_blocking(Limits(wall_s=20.0))
    outcome = session.run("raise Exception('\\ud800')")
    assert ended(outcome) == (Status.EXCEPTION, Blame.MODEL)
    assert outcome.error_spans[-1].message == "\ud800"
    assert session.run("x = '\ud800'\nprint(len(x))").blame is not Blame.INFRASTRUCTURE
    assert session.run("open(b'\\xff', 'w').close()").ok
    assert [entry.path for entry in session.list()] == ["\udcff"]
    session.close()
