"""PythonMath in a real sandbox, down to the tokens that are charged."""

import json
import os
from pathlib import Path

import pytest

from accredit.agents.rollout import Episode, live
from accredit.agents.scripted import ScriptedPolicy
from accredit.credit import CallStatus, StopReason
from accredit.envs import load_env, tinytokenizers
from accredit.envs.catalogue.python_math import PythonMath
from accredit.envs.chatml import ChatMLRenderer
from accredit.sandboxes import Limits, SandboxError
from accredit.sandboxes.select import probe, select


@pytest.fixture(scope="module", autouse=True)
def _sandbox():
    try:
        select()
    except SandboxError as error:
        if os.environ.get("REQUIRE_SANDBOX"):
            raise
        pytest.skip(f"no sandbox on this machine: {error}")


@pytest.fixture(scope="module", params=["byte_level", "byte_fallback"])
def renderer(request):
    return ChatMLRenderer(getattr(tinytokenizers, request.param)(), "signature")


def call(code):
    return f"<tool_call>{json.dumps({'name': 'python', 'arguments': {'code': code}}, ensure_ascii=False)}</tool_call>"


def played(renderer, *messages, env=PythonMath):
    policy = ScriptedPolicy(renderer, lambda _env: iter(messages))
    (lived,) = live([Episode("ep", "g", 1, 1, 1)], policy, env, renderer)
    return lived


def charged_text(renderer, lived):
    (charge,) = lived.charges
    return b"".join(renderer.token_bytes(lived.token_ids[charge.start : charge.end].tolist())).decode()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('d = {}\nprint(1)\nx = d["k"]', 'd[\\"k\\"]'),
        ('d = {}\ns = "é😀ü" + d["k"]\n', 'd[\\"k\\"]'),
        ("values = [1, 2]\nprint(values[0] + values[7])", "values[7]"),
        ("print(1 / 0)", "1 / 0"),
        ("def f(n):\n    return n.upper()\nprint(f(3))", "n.upper"),
    ],
)
def test_an_exception_charges_the_tokens_of_the_failing_expression(renderer, code, expected):
    lived = played(renderer, call(code), "0")
    assert lived.calls[0].status is CallStatus.TOOL_ERROR
    text = charged_text(renderer, lived)
    # a token may own characters on both sides of the border; nothing else may be charged
    assert expected in text
    (charge,) = lived.charges
    inside = b"".join(renderer.token_bytes(lived.token_ids[charge.start + 1 : charge.end - 1].tolist())).decode(
        errors="ignore"
    )
    assert inside in expected
    assert lived.credit_mask[charge.start : charge.end].all()


def test_a_syntax_error_charges_its_token(renderer):
    lived = played(renderer, call("x = 1\ny = )\n"), "0")
    assert ")" in charged_text(renderer, lived)
    assert lived.charges[0].end - lived.charges[0].start <= 3


def test_what_is_printed_to_stderr_charges_nothing_and_stdout_is_kept(renderer):
    lived = played(renderer, call("import sys\nprint('careful', file=sys.stderr)\nprint(42)"), "0")
    assert lived.calls[0].status is CallStatus.OK
    assert lived.calls[0].result == "42"
    assert not lived.charges


def test_an_endless_loop_ends_at_its_deadline_charged_on_the_call_with_no_process_left(renderer):
    class Hurried(PythonMath):
        run_limits = Limits(wall_s=1.0, cpu_s=5.0)

    marker = f"loop{os.getpid()}"
    named = f"import ctypes\nctypes.CDLL(None).prctl(15, b'{marker}', 0, 0, 0)\n"  # PR_SET_NAME
    lived = played(renderer, call(f"{named}while True: pass"), "0", env=Hurried)
    assert lived.calls[0].status is CallStatus.TIMEOUT
    (charge,) = lived.charges
    assert (charge.start, charge.end) == (lived.calls[0].start, lived.calls[0].end)
    assert marker not in {path.read_text().strip() for path in Path("/proc").glob("[0-9]*/comm") if path.exists()}


def test_a_sandbox_that_dies_is_charged_to_nobody_and_leaves_the_episode_unscored(renderer):
    class Doomed(PythonMath):
        def setup(self):
            super().setup()
            self.interpreter.run("pass")
            os.kill(self.interpreter._session.pid, 9)  # type: ignore[union-attr]

    lived = played(renderer, call("print(1)"), "1", env=Doomed)
    assert lived.stop is StopReason.INFRASTRUCTURE
    assert lived.outcome is None
    assert not lived.charges


def test_forks_run_code_of_their_own(renderer):
    env = load_env("PythonMath-v0")
    env.reset(seed=0)
    env.step(call("print(5)"))
    fork = env.fork()
    fork.step(call("print(6)"))
    env.step(call("print(7)"))
    assert (fork.last_results[-1], env.last_results[-1]) == ("6", "7")
    fork.close()
    env.step(call("print(8)"))
    assert env.last_results[-1] == "8"
    env.close()


@pytest.mark.parametrize("level", ["easy", "medium", "hard"])
def test_the_expert_reaches_full_reward(renderer, level):
    episodes = [Episode(f"ep-{s}", "", s, s, s, {"level": level}) for s in range(6)]
    lived = live(episodes, ScriptedPolicy(renderer), lambda: load_env("PythonMath-v0"), renderer)
    assert [t.reward for t in lived] == [1.0] * 6


def test_the_isolation_of_every_run_is_written_into_the_trajectory(renderer):
    lived = played(renderer, call("print(1)"), call("print(1 / 0)"), "0")
    assert [made.status for made in lived.calls] == [CallStatus.OK, CallStatus.TOOL_ERROR]
    isolation = probe(select()).isolation_id
    assert [made.detail["isolation"] for made in lived.calls] == [isolation, isolation]
