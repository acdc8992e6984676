"""What ordinary programs see, and where their errors are."""

import pytest

from accredit.sandboxes import Blame, ErrorSpan, Limits, Outcome, Status
from accredit.sandboxes.embedded.client import SlotClient


def marked(source: str, outcome: Outcome) -> str:
    (span,) = outcome.error_spans
    return source[span.start : span.end]


def test_a_program_that_ends_is_ok(slot: SlotClient) -> None:
    outcome = slot.run("print(6 * 7)")
    assert (outcome.status, outcome.blame, outcome.exit_code, outcome.stdout) == (Status.OK, Blame.NOBODY, 0, b"42\n")
    assert outcome.error_spans == ()
    assert outcome.usage.cpu_s > 0
    assert outcome.usage.peak_memory_mb is not None and outcome.usage.peak_memory_mb > 0


def test_an_uncaught_exception_has_the_exact_span(slot: SlotClient) -> None:
    source = 'd = {}\nprint(1)\nx = d["k"]'
    outcome = slot.run(source)
    assert (outcome.status, outcome.blame, outcome.exit_code) == (Status.EXCEPTION, Blame.MODEL, 1)
    start = source.index('d["k"]')
    assert outcome.error_spans == (ErrorSpan(start, start + 6, 3, "KeyError", "'k'"),)
    assert outcome.stdout == b"1\n"
    assert b"KeyError: 'k'" in outcome.stderr


def test_multibyte_text_before_the_error_does_not_move_the_span(slot: SlotClient) -> None:
    source = 'd = {}\ns = "äöü😀€"; x = [s, d["k"], s]\n'
    assert marked(source, slot.run(source)) == 'd["k"]'


def test_the_innermost_frame_of_the_program_is_marked(slot: SlotClient) -> None:
    source = "import json\n\ndef read(text):\n    return json.loads(text)\n\nread('{') + 1\n"
    outcome = slot.run(source)
    assert marked(source, outcome) == "json.loads(text)"
    assert outcome.error_spans[0].error == "JSONDecodeError"


def test_an_error_over_several_lines_is_marked_whole(slot: SlotClient) -> None:
    source = "x = (1 +\n     None)\n"
    assert marked(source, slot.run(source)) == "1 +\n     None"


@pytest.mark.parametrize(
    ("source", "token"),
    [
        ("x = 1\ny = = 2\n", "="),
        ('s = "äöü"; y = 1 +* 2\n', "*"),
        ("for x in y\n    pass\n", "\n"),
        ("return 5\n", "return 5"),
        ("x = (1,\n", "("),
    ],
)
def test_a_syntax_error_marks_its_token(slot: SlotClient, source: str, token: str) -> None:
    outcome = slot.run(source)
    assert (outcome.status, outcome.blame) == (Status.SYNTAX_ERROR, Blame.MODEL)
    span = outcome.error_spans[0]
    assert span.error == "SyntaxError"
    assert source[span.start : span.end] == token


@pytest.mark.parametrize("source", ["x = '\0'", "x = '\ud800'"])
def test_text_that_is_no_source_is_a_syntax_error(slot: SlotClient, source: str) -> None:
    assert slot.run(source).status is Status.SYNTAX_ERROR


def test_standard_error_is_kept_apart_and_is_no_failure(slot: SlotClient) -> None:
    outcome = slot.run("import sys\nprint('out')\nprint('err', file=sys.stderr)")
    assert (outcome.status, outcome.stdout, outcome.stderr) == (Status.OK, b"out\n", b"err\n")


def test_standard_input_is_at_its_end(slot: SlotClient) -> None:
    outcome = slot.run("import sys\nprint(repr(sys.stdin.read()))\ninput('?')")
    assert outcome.status is Status.EXCEPTION
    assert outcome.error_spans[0].error == "EOFError"
    assert outcome.stdout.startswith(b"''\n")


@pytest.mark.parametrize("code", [1, 3, 124, 137, 143, 255])
def test_an_exit_code_is_an_exit_and_nothing_else(slot: SlotClient, code: int) -> None:
    for source in (f"import sys; sys.exit({code})", f"import os; os._exit({code})"):
        outcome = slot.run(source)
        assert (outcome.status, outcome.blame, outcome.exit_code) == (Status.EXIT, Blame.MODEL, code)


def test_leaving_with_0_before_the_last_line_is_not_ok(slot: SlotClient) -> None:
    polite = slot.run("import sys\nsys.exit(0)\nassert False")
    assert (polite.status, polite.blame) == (Status.EXIT, Blame.NOBODY)
    silent = slot.run("import os\nos._exit(0)\nassert False")
    assert (silent.status, silent.blame) == (Status.NO_RESULT, Blame.MODEL)


def test_output_before_a_deadline_is_kept(slot: SlotClient) -> None:
    outcome = slot.run("print('so far')\nwhile True: pass", Limits(wall_s=1))
    assert (outcome.status, outcome.stdout) == (Status.TIMEOUT_WALL, b"so far\n")


def test_more_output_than_a_pipe_holds_arrives_whole(slot: SlotClient) -> None:
    outcome = slot.run("import sys\nsys.stdout.write('x' * 400_000)\nsys.stderr.write('y' * 400_000)")
    assert outcome.status is Status.OK
    assert (len(outcome.stdout), len(outcome.stderr), outcome.truncated) == (400_000, 400_000, False)


def test_the_program_is_main(slot: SlotClient) -> None:
    source = (
        "import pickle, dataclasses\n"
        "@dataclasses.dataclass\nclass P:\n    x: int\n"
        "assert __name__ == '__main__'\n"
        "print(pickle.loads(pickle.dumps(P(3))))\n"
    )
    assert slot.run(source).stdout == b"P(x=3)\n"


def test_threads_and_exit_functions_finish_before_the_end(slot: SlotClient) -> None:
    source = (
        "import atexit, threading, time\n"
        "atexit.register(print, 'last')\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\nprint('main')\n"
    )
    assert slot.run(source).stdout == b"main\nthread\nlast\n"


def test_a_forked_child_does_not_report_for_its_parent(slot: SlotClient) -> None:
    source = "import os\nif os.fork() == 0:\n    raise ValueError('child')\nos.wait()\nprint('parent')\n"
    outcome = slot.run(source)
    assert (outcome.status, outcome.stdout) == (Status.OK, b"parent\n")


def test_subprocesses_and_the_interpreter_itself_run(slot: SlotClient) -> None:
    source = "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'print(5)'], capture_output=True))\n"
    outcome = slot.run(source)
    assert outcome.status is Status.OK
    assert b"5\\n" in outcome.stdout, outcome
