"""Running tools: limits in time, sync and async mixed, order, and what a stuck tool leaves behind."""

import asyncio
import contextvars
import threading
import time

import pytest

from accredit.credit import CallStatus
from accredit.envs import EnvError, Task, ToolEnv, tool
from accredit.envs.execution import LoopThread, run_inline, start_in_thread, start_on_loop


class Slow(ToolEnv):
    shared = ("gate", "barrier")
    barrier: threading.Barrier

    def tasks(self, rng):
        return [Task("go")]

    def setup(self) -> None:
        self.state = {"log": []}
        self.gate = threading.Event()

    def reward(self) -> float:
        return 0.0

    def note(self, name: str) -> str:
        self.state["log"].append(name)
        return name

    @tool
    def quick(self, name: str) -> str:
        """Answer."""
        return self.note(name)

    @tool
    async def later(self, name: str) -> str:
        """Answer a little later."""
        await asyncio.sleep(0.002)
        return self.note(name)

    @tool(timeout_s=0.05)
    def stuck(self) -> str:
        """Wait for the gate."""
        self.gate.wait(20)
        return "late"

    @tool(timeout_s=0.05)
    async def sleepy(self) -> str:
        """Sleep, but can be woken."""
        await asyncio.sleep(20)
        return "late"

    @tool(timeout_s=0.05)
    async def blocking(self) -> str:
        """Block its loop."""
        self.gate.wait(20)
        return "late"

    @tool(timeout_s=None)
    def here(self) -> str:
        """Say which thread runs this."""
        return threading.current_thread().name

    @tool(parallel=True)
    def meet(self, name: str) -> str:
        """Wait for the other one."""
        self.barrier.wait(5)
        return name

    @tool(parallel=True)
    async def meet_async(self, name: str) -> str:
        """Wait for the other one, without blocking the loop."""
        await asyncio.to_thread(self.barrier.wait, 5)
        return name

    @tool(parallel=True)
    async def loop_name(self) -> str:
        """Say which loop runs this."""
        return str(id(asyncio.get_running_loop()))


@pytest.fixture
def slow():
    env = Slow()
    env.reset(seed=0)
    yield env
    env.gate.set()
    env.close()


def call(name: str, /, **arguments: str) -> str:
    inside = ", ".join(f'"{key}": "{value}"' for key, value in arguments.items())
    return f'<tool_call>{{"name": "{name}", "arguments": {{{inside}}}}}</tool_call>'


def run(env: ToolEnv, *calls: str):
    env.step("".join(calls))
    assert env.last_turn is not None
    return env.last_turn.results


def test_sync_and_async_calls_run_in_order_and_answer_in_order(slow):
    results = run(
        slow, call("later", name="a"), call("quick", name="b"), call("later", name="c"), call("quick", name="d")
    )
    assert [r.text for r in results] == slow.state["log"] == ["a", "b", "c", "d"]
    assert [r.index for r in results] == [0, 1, 2, 3]


def test_results_carry_the_ids_of_their_calls(slow):
    messages, *_ = slow.step(call("quick", name="a") + "text" + call("nope") + call("later", name="b"))
    assert [(m.role, m.call_id, m.name) for m in messages] == [
        ("tool", "call_0", "quick"),
        ("tool", "call_1", "nope"),
        ("tool", "call_2", "later"),
    ]


def test_one_bad_call_never_hides_its_neighbours(slow):
    results = run(slow, call("quick", name="a"), '<tool_call>{"name": broken</tool_call>', call("quick", name="b"))
    assert [r.status for r in results] == [CallStatus.OK, CallStatus.INVALID_JSON, CallStatus.OK]
    assert [bool(r.charge) for r in results] == [False, True, False]
    assert slow.state["log"] == ["a", "b"]


def test_parallel_calls_run_at_once_and_answer_in_call_order(slow):
    slow.barrier = threading.Barrier(3)
    results = run(slow, call("meet", name="a"), call("meet_async", name="b"), call("meet", name="c"))
    assert [r.text for r in results] == ["a", "b", "c"]


def test_a_serial_call_parts_parallel_ones(slow):
    slow.barrier = threading.Barrier(1)
    results = run(slow, call("meet", name="a"), call("quick", name="x"), call("meet", name="b"), call("bad"))
    assert [r.text for r in results][:3] == ["a", "x", "b"]
    assert results[3].status is CallStatus.UNKNOWN_TOOL


def test_a_sync_tool_past_its_time_is_left_behind_and_charged(slow):
    text = call("stuck")
    (result,) = run(slow, text)
    assert (result.status, result.text) == (CallStatus.TIMEOUT, "Error: stuck did not answer within 0.05 s")
    assert result.charge is not None and (result.charge.start, result.charge.end) == (0, len(text))
    assert slow.left_behind == ("stuck",)
    assert run(slow, call("quick", name="on"))[0].text == "on"


def test_an_instance_with_a_stuck_tool_is_neither_reset_nor_forked_until_the_tool_ends(slow):
    run(slow, call("stuck"))
    for act in (lambda: slow.reset(seed=1), slow.fork):
        with pytest.raises(EnvError, match="stuck ran past its time and still runs in a thread"):
            act()
    slow.gate.set()
    until = time.monotonic() + 10
    while slow.left_behind and time.monotonic() < until:
        time.sleep(0.002)
    slow.reset(seed=1)
    assert slow.fork().task == slow.task


def test_an_async_tool_past_its_time_is_cancelled_and_leaves_nothing(slow):
    (result,) = run(slow, call("sleepy"))
    assert result.status is CallStatus.TIMEOUT
    assert slow.left_behind == ()
    assert run(slow, call("later", name="on"))[0].text == "on"


def test_a_blocked_loop_is_replaced(slow):
    (result,) = run(slow, call("blocking"))
    assert result.status is CallStatus.TIMEOUT
    assert slow.left_behind == ("blocking",)
    assert run(slow, call("later", name="on"))[0].text == "on"


def test_a_tool_without_limit_runs_in_the_callers_thread(slow):
    assert run(slow, call("here"))[0].text == threading.current_thread().name


def test_async_tools_share_one_loop_for_the_life_of_the_environment(slow):
    first = run(slow, call("loop_name"), call("loop_name"))
    slow.reset(seed=2)
    again = run(slow, call("loop_name"))
    assert len({r.text for r in (*first, *again)}) == 1


def test_step_works_inside_a_running_event_loop(slow):
    async def inside():
        return run(slow, call("later", name="a"), call("quick", name="b"))

    assert [r.text for r in asyncio.run(inside())] == ["a", "b"]


def test_step_works_in_threads_beside_an_event_loop():
    async def inside():
        envs = [Slow() for _ in range(4)]
        for seed, env in enumerate(envs):
            env.reset(seed=seed)
        return await asyncio.gather(
            *(asyncio.to_thread(run, env, call("later", name=str(i))) for i, env in enumerate(envs))
        )

    assert [r[0].text for r in asyncio.run(inside())] == ["0", "1", "2", "3"]


def test_close_may_be_called_twice_and_ends_the_loop(slow):
    run(slow, call("later", name="a"))
    loop = slow.private_loop()
    slow.close()
    slow.close()
    loop.thread.join(5)
    assert not loop.thread.is_alive()


def test_a_thread_sees_the_callers_context():
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(7)
    assert start_in_thread(variable.get, 5, "test")().value == 7


def test_errors_of_work_are_outcomes_wherever_it_runs():
    def fail():
        raise TimeoutError("mine")

    async def fail_async():
        raise TimeoutError("mine")

    loop = LoopThread("test")
    outcomes = [run_inline(fail), start_in_thread(fail, 5, "test")(), start_on_loop(loop, fail_async, 5)()]
    loop.close()
    assert [(str(o.error), o.expired) for o in outcomes] == [("mine", False)] * 3


class Hooks(Slow):
    slow_hook = ""

    def setup(self) -> None:
        super().setup()
        if self.slow_hook == "setup":
            self.gate.wait(20)

    def reward(self) -> float:
        if self.slow_hook == "reward":
            self.gate.wait(20)
        return 0.0


@pytest.mark.parametrize("hook", ["setup", "reward"])
def test_time_limits_cover_setup_and_scoring(hook):
    env = Hooks()
    env.slow_hook = hook
    if hook == "reward":
        env.reset(seed=0)
    env.hook_timeout_s = 0.05
    with pytest.raises(EnvError, match=rf"Hooks\.{hook}\(\) did not end within 0.05 s"):
        env.step("answer") if hook == "reward" else env.reset(seed=0)
    env.gate.set()
