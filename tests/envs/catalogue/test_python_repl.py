"""PythonRepl in a real interpreter: names that stay, forks that branch, cells that are charged in place."""

import json
import os
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

from accredit.credit import CallStatus, StopReason
from accredit.envs import EnvError, Task, check_env, make
from accredit.envs.catalogue.python_repl import PythonRepl
from accredit.envs.catalogue.scripted import format_call
from accredit.envs.recorder import Decision, RecordCredit
from accredit.sandboxes import Limits, SandboxError
from accredit.sandboxes.select import select

LEVELS = ("easy", "medium", "hard")


@pytest.fixture(scope="module", autouse=True)
def _sandbox():
    try:
        select()
    except SandboxError as error:
        if os.environ.get("REQUIRE_SANDBOX"):
            raise
        pytest.skip(f"no sandbox on this machine: {error}")


@pytest.fixture
def env():
    made = PythonRepl(max_turns=30)
    made.reset(seed=3, options={"level": "hard"})
    yield made
    made.close()


def call(env, code):
    text = format_call("python", code=code)
    env.step(text)
    (result,) = env.last_turn.results
    charged = None if result.charge is None else text[result.charge.start : result.charge.end]
    return result, charged


def test_names_stay_from_cell_to_cell_and_both_tables_are_there(env):
    call(env, "big = [r for r in rows if r['qty'] > 0]")
    said = call(env, "print(len(big) == len(rows), sorted(rows[0]), prices.splitlines()[0])")[0].text
    assert said == "True ['day', 'item', 'name', 'qty'] item,price"


def test_an_exception_keeps_what_was_done_before_it_and_a_killed_cell_is_undone(env):
    call(env, "x = 1\ny = x / 0")
    assert call(env, "print(x)")[0].text == "1"
    assert call(env, "x = 2\nimport os\nos._exit(3)")[0].status is CallStatus.NONZERO_EXIT
    assert call(env, "print(x)")[0].text == "1"


def test_an_endless_cell_is_stopped_charged_on_its_call_and_the_episode_goes_on(env):
    env.run_limits = Limits(wall_s=2.0, cpu_s=2.0)
    env.setup()
    call(env, "x = 1")
    result, charged = call(env, "x = 2\nwhile True: pass")
    assert result.status is CallStatus.TIMEOUT
    assert charged == format_call("python", code="x = 2\nwhile True: pass")
    assert call(env, "print(x, len(rows) > 0)")[0].text == "1 True"


def test_a_fork_has_the_names_of_its_original_and_goes_its_own_way(env):
    call(env, "x = [1]")
    fork = env.fork()
    assert fork.state_key() == env.state_key()
    call(env, "x.append(2)")
    assert call(fork, "print(x)")[0].text == "[1]"
    assert call(env, "print(x)")[0].text == "[1, 2]"
    assert fork.state_key() != env.state_key()
    env.close()
    assert call(fork, "print(len(x))")[0].text == "1"
    fork.close()


def test_what_a_cell_does_to_the_table_does_not_change_the_answer(env):
    right = str(env.task.answer)
    call(env, "rows.clear()\nprices = ''")
    env.step(right)
    assert env.outcome == 1.0


def test_a_session_that_dies_is_charged_to_nobody_and_leaves_the_episode_unscored(env):
    call(env, "x = 1")
    os.kill(env.interpreter._session.pid, 9)
    result, charged = call(env, "print(x)")
    assert (result.status, charged) == (CallStatus.INFRASTRUCTURE, None)
    assert (env.stop, env.outcome) == (StopReason.INFRASTRUCTURE, None)


CELLS = {
    "this cell": ("x = {}", "print(1)\ny = ⟦x['k']⟧"),
    "a function of an earlier cell": ("def f(n):\n    return 1 / n\n", "print(2)\nprint(⟦f(0)⟧)"),
    "a longer function of an earlier cell": ("#" * 300 + "\n\n\n\ndef f(n):\n    return rows[0][n]", "⟦f('no')⟧"),
    "a lambda of an earlier cell in the library": ("bad = lambda r: r['no']", "print(⟦sorted(rows, key=bad)⟧)"),
    "a function of this cell": ("x = 1", "def f(n):\n    return ⟦n / 0⟧\nf(x)"),
    "a name of no cell": ("x = 1", "print(⟦z⟧)"),
    "a column that is not there": ("x = 1", "sum(⟦r['count']⟧ for r in rows)"),
    "broken syntax": ("x = 1", "y = 'é'\nprint⟦(⟧x"),
    "letters beyond ASCII": ("größe = 'é😀'", "print(größe + ⟦länge⟧)"),
}


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_pays_for_its_own_expression_and_never_for_another_cells(renderer, name):
    first, second = CELLS[name]
    before, _, rest = second.partition("⟦")
    marked, _, after = rest.partition("⟧")
    record = RecordCredit(PythonRepl(), renderer)
    record.reset(seed=1, options={"level": "easy"})
    start = 0
    ids: list[int] = []
    text = ""
    for code in (first, before + marked + after):
        text = f'<tool_call>{{"name": "python", "arguments": {{"code": {json.dumps(code)}}}}}</tool_call>'
        ids = renderer.encode(text)
        start = len(record.context)
        record.step(Decision(ids, np.full(len(ids), -0.25)))
    trajectory = record.finish(StopReason.CANCELLED)
    record.tool_env.close()
    (charge,) = trajectory.charges
    assert [found.status for found in trajectory.calls] == [CallStatus.OK, CallStatus.TOOL_ERROR]
    spans = renderer.token_spans(ids)
    low = text.index('"code": "') + len('"code": "') + len(json.dumps(before)) - 2
    high = low + len(json.dumps(marked)) - 2
    owners = [at for at, (first, last) in enumerate(spans) if first < high and last > low]
    assert (charge.start - start, charge.end - start) == (owners[0], owners[-1] + 1)


WHERE = {
    r"of (\w+)": lambda row, value: row.name == value,
    r"with (\w+)": lambda row, value: row.item == value,
    r"with qty above (\d+)": lambda row, value: row.qty > int(value),
    r"before day (\d+)": lambda row, value: row.day < int(value),
}
ASKED = {
    r"How many rows {}\?": lambda rows, cost: len(rows),
    r"Sum of (qty|day) in rows {}\?": lambda rows, cost, column: sum(getattr(row, column) for row in rows),
    r"Largest (qty|day) in rows {}, 0 if there is none\?": lambda rows, cost, column: max(
        [0, *(getattr(row, column) for row in rows)]
    ),
    r"How many different (name|item)s have a total qty of (\d+) or more in rows {}\?": lambda rows, cost, key, least: (
        sum(total >= int(least) for total in counted(rows, key).values())
    ),
    r"Which (name|item) has the largest total qty in rows {}\? .*": lambda rows, cost, key: best(counted(rows, key)),
    r"How many rows {} are worth more than (\d+) .*": lambda rows, cost, above: sum(cost(r) > int(above) for r in rows),
    r"What are the rows {} worth together .*": lambda rows, cost: sum(map(cost, rows)),
    r"Which (name|item) is worth most \(qty times price, summed\) in rows {}\? .*": lambda rows, cost, key: best(
        counted(rows, key, cost)
    ),
}


def counted(rows, key, cost=lambda row: row.qty):
    totals = Counter()
    for row in rows:
        totals[getattr(row, key)] += cost(row)
    return totals


def best(totals):
    return sorted((-total, key) for key, total in totals.items())[0][1] if totals else "none"


def test_answers_mean_what_the_questions_say():
    env, met = PythonRepl(), set()
    for level in LEVELS:
        for seed in range(150):
            env.reset(seed=seed, options={"level": level})
            tables = env.task.data["tables"]
            prices = dict(tables.prices)
            matches = []
            for asked, meant in ASKED.items():
                for where, keep in WHERE.items():
                    inner = re.sub(r"\((.*)\)", r"(?P<value>\1)", where)
                    found = re.fullmatch(asked.replace("{}", inner), env.task.prompt)
                    if found:
                        value = found.group("value")
                        others = [v for at, v in enumerate(found.groups(), 1) if at != found.re.groupindex["value"]]
                        rows = [row for row in tables.orders if keep(row, value)]
                        matches.append(meant(rows, lambda row, p=prices: row.qty * p[row.item], *others))
                        met.add(asked)
            assert matches == [env.task.answer], env.task.prompt
    assert met == set(ASKED)


@pytest.mark.parametrize(
    ("said", "score"),
    [("{}", 1.0), ("It is {}.", 1.0), ("{} or 77777", 0.0), ("7.{}", 0.0), ("", 0.0), ("I do not know.", 0.0)],
)
def test_the_last_number_or_word_is_the_answer(env, said, score):
    env.step(said.format(env.task.answer))
    assert env.outcome == score


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("split", ["train", "heldout"])
def test_the_expert_reaches_full_reward(level, split, play):
    env = make("PythonRepl-v0", level=level)
    turns = {"easy": (2, 2), "medium": (3, 3), "hard": (4, 5)}[level]
    for seed in range(8):
        env.reset(seed=seed, options={"split": split})
        reward, took = play(env, env.expert())
        assert reward == 1.0, env.task
        assert turns[0] <= took <= turns[1]
    env.close()


@pytest.mark.parametrize("level", LEVELS)
def test_success_falls_and_failing_cells_rise_with_the_error_rate(level, play):
    env: Any = make("PythonRepl-v0", level=level)
    success, failed = [], []
    for rate in (0.0, 0.8):
        rng, rewards, bad = np.random.default_rng(0), [], 0
        for seed in range(10):
            env.reset(seed=seed)
            for message in env.sloppy(rng, rate):
                _, reward, terminated, truncated, _ = env.step(message)
                bad += sum(not result.status.ran for result in env.last_turn.results)
                if terminated or truncated:
                    rewards.append(reward)
                    break
        success.append(np.mean(rewards))
        failed.append(bad)
    assert success[0] == 1.0 > success[1]
    assert failed[0] == 0 < failed[1]
    env.close()


def test_a_foreign_task_is_refused_by_name():
    with pytest.raises(EnvError, match="was not drawn by PythonRepl"):
        PythonRepl().reset(options={"task": Task("Ask.", id="mine")})


@pytest.mark.parametrize("level", LEVELS)
def test_the_checker_passes(level):
    checks = ("seeds", "isolation", "state key", "fork", "no-op", "gold", "errors", "masks")
    found = check_env("PythonRepl-v0", seeds=(0,), only=checks, level=level)
    assert [result for result in found if result.passed is False] == []
