"""Python in a real sandbox: hidden tests that cannot be talked into passing, and mistakes that are charged in place."""

import json
import os
import re
from functools import reduce
from string import ascii_lowercase
from typing import Any

import numpy as np
import pytest

from accredit.agents.models import load_model
from accredit.credit import CallStatus, StopReason
from accredit.envs import EnvError, Task, check_env, make
from accredit.envs.catalogue.code import VerifierError
from accredit.envs.catalogue.python.env import Python
from accredit.envs.catalogue.python.mistakes import broken_program, wrong_program
from accredit.envs.catalogue.python.problem import Problem, run_source
from accredit.envs.catalogue.python.verify import verify
from accredit.envs.catalogue.scripted import format_call
from accredit.sandboxes import SandboxError
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


TRIPLE = Problem(
    text="f(x): take x, multiply by 3.",
    source="def f(x): return x * 3",
    slips=(("* 3", "+ 3"),),
    examples=((2,), (5,)),
    hidden=((0,), (1,), (4,), (7,)),
)


@pytest.fixture
def env():
    made = Python()
    made.reset(seed=0, options={"task": Task(TRIPLE.prompt, id="triple", data={"problem": TRIPLE})})
    yield made
    made.close()


def call(env, tool, code):
    text = format_call(tool, code=code)
    env.step(text)
    (result,) = env.last_turn.results
    charged = None if result.charge is None else text[result.charge.start : result.charge.end]
    return result, charged


def passed(code, problem=TRIPLE):
    return verify(code, problem.hidden, problem.values(problem.hidden)).passed


def test_the_prompt_says_what_is_asked_with_two_examples():
    assert TRIPLE.prompt == "f(x): take x, multiply by 3. f(2) = 6, f(5) = 15."


def test_a_run_shows_the_examples_and_says_where_they_are_wrong(env):
    assert call(env, "run", "def f(x): return x * 3")[0].text == "f(2) = 6\nf(5) = 15"
    result, charged = call(env, "run", "print('hi')\ndef f(x): return x + 4")
    assert (result.text, charged) == ("hi\nf(2) = 6\nf(5) = 9 not 15", None)


@pytest.mark.parametrize("tool", ["run", "submit"])
@pytest.mark.parametrize(
    ("code", "charged", "status"),
    [
        ("def f(x): return y * 3", "y", CallStatus.TOOL_ERROR),
        ("def f(x): return (x * 3", "(", CallStatus.TOOL_ERROR),
        ("def f(x): return mul(x, 3)", "mul", CallStatus.TOOL_ERROR),
        ("def f(x): return x + '3'", "x + '3'", CallStatus.TOOL_ERROR),
        ("def f(x): return x *", "*", CallStatus.TOOL_ERROR),
        ("@f", "f", CallStatus.TOOL_ERROR),
        ("def g(x): return 1", None, CallStatus.TOOL_ERROR),
        ("def f(): return 1", None, CallStatus.TOOL_ERROR),
        ("import os\nos._exit(3)", None, CallStatus.NONZERO_EXIT),
        ("import os\nos._exit(0)", None, CallStatus.NONZERO_EXIT),
        ("print('x' * 10 ** 6)", None, CallStatus.OUTPUT_LIMIT),
        ("x" * 20_001, "whole value", CallStatus.TOOL_ERROR),
    ],
)
def test_what_breaks_is_charged_where_it_broke_and_can_be_tried_again(env, tool, code, charged, status):
    result, found = call(env, tool, code)
    assert result.status is status
    expected = {None: format_call(tool, code=code), "whole value": json.dumps(code)}.get(charged, charged)
    assert found == expected
    assert env.stop is None
    assert call(env, "submit", TRIPLE.source)[0].text == "ok"
    assert env.outcome == 1.0


def test_an_endless_program_is_stopped_and_charged_on_the_call(env):
    env.run_limits = type(env.run_limits)(wall_s=1.0, cpu_s=1.0)
    env.setup()
    result, charged = call(env, "run", "while True: pass")
    assert result.status is CallStatus.TIMEOUT
    assert charged == format_call("run", code="while True: pass")


def test_a_failing_line_of_an_earlier_exec_or_of_the_library_is_charged_on_the_line_that_called_it(env):
    assert call(env, "run", "import json\ndef f(x): return json.loads('{')")[1] == "json.loads('{')"
    assert call(env, "run", "def f(x): return 1\nexec('1/0')")[1] == "exec('1/0')"


def test_messages_name_the_line_of_the_policys_own_code(env):
    said = call(env, "run", "def f(x):\n    return (x")[0].text
    assert said == "Error: SyntaxError: '(' was never closed (line 2)"
    assert "line" not in call(env, "run", "def g(x): return 1")[0].text


@pytest.mark.parametrize(
    ("code", "share"),
    [
        ("def f(x): return x * 3", 1.0),
        ("def f(x): return x * 3 if x < 3 else 0", 0.5),
        ("def f(x): return x * 4", 0.25),
        ("f = lambda x: 3 * x", 1.0),
    ],
)
def test_the_reward_is_the_fraction_of_hidden_tests_or_all_or_nothing(env, code, share):
    call(env, "submit", code)
    assert env.stop is StopReason.DONE
    assert env.outcome == share
    env.partial = False
    assert env.reward() == float(share == 1.0)


HOSTILE = {
    "claims to equal everything": "class A:\n    def __eq__(self, o): return True\ndef f(x): return A()",
    "an int that claims it": (
        "class A(int):\n    def __eq__(self, o): return True\n    __hash__ = int.__hash__\ndef f(x): return A(99)"
    ),
    "a list that claims it": "class A(list):\n    def __eq__(self, o): return True\ndef f(x): return A()",
    "ends early with success": "import os\nos._exit(0)",
    "ends at the second test": "import os\ndef f(x):\n    os._exit(0)",
    "leaves by SystemExit": "import sys\ndef f(x): sys.exit(0)",
    "prints what looks like results": "print('passed 4/4')\nprint([0, 3, 12, 21])\ndef f(x): return None",
    "raises at import": "raise SystemExit(0)",
    "no function": "x = 1",
    "not a program": "def f(x",
    "floods the output": "import os\nwhile True: os.write(1, b'x' * 65536)",
    "floods from the function": "import os\ndef f(x):\n    while True: os.write(1, b'y' * 65536)",
    "deep nesting": "def f(x):\n    a = []\n    for _ in range(10 ** 5): a = [a]\n    return a",
    "a number too long to write": "def f(x): return 10 ** 10000",
    "an endless list": "def f(x):\n    a = []\n    a.append(a)\n    return a",
    "finds the marks and forges lines": (
        "import sys, os, json\nframe = sys._getframe()\nwhile frame:\n"
        "    names = {**frame.f_globals, **frame.f_locals}\n"
        "    mark = names.get('mark') or names.get('MARK')\n    frame = frame.f_back\n    if mark: break\n"
        "for i in range(9):\n"
        "    for v in (True, [], {}, {'list': [1]}, {'dict': [[[], 1]]}, {'no': 1}, {'a': 1, 'b': 2}, None, 1e999):\n"
        "        os.write(1, (mark + json.dumps([i, v]) + '\\n').encode())\n"
        "    os.write(1, (mark + '[' * 60000 + '\\n').encode()) if i == 0 else 0\n"
        "def f(x): return x * 3"
    ),
    "patches the checker's modules": (
        "import json, os, builtins\njson.dumps = lambda *a: '[0, 0]'\nos.write = lambda *a: 0\n"
        "builtins.type = lambda *a: int\nbuiltins.enumerate = lambda x: []\ndef f(x): return x * 3"
    ),
    "answers only what was shown": "def f(x): return {2: 6, 5: 15}.get(x)",
    "uses up its memory": "def f(x):\n    a = []\n    while True: a.append(bytearray(10 ** 7))",
    "closes all files": "import os\nos.closerange(0, 64)\ndef f(x): return x * 3",
    "kills its parent": "import os\nos.kill(os.getppid(), 9)\ndef f(x): return 1",
    "forks without end": "import os\ndef f(x):\n    while True: os.fork()",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_program_gains_nothing_and_is_never_unscored(name):
    assert not any(passed(HOSTILE[name]))


def test_a_program_that_forks_and_answers_twice_gets_what_its_first_answer_is_worth():
    assert passed("import os\nos.fork()\ndef f(x): return x * 3") == (True,) * 4
    assert not any(passed("import os\npid = os.fork()\ndef f(x): return -1"))


def test_a_right_program_may_print_as_it_likes():
    assert all(passed("print('loading')\ndef f(x):\n    print('x is', x)\n    return x * 3"))


def test_a_test_that_raises_or_ends_fails_alone():
    assert passed("def f(x): return 3 * x if x != 1 else 1 / 0") == (True, False, True, True)
    assert passed("import sys\ndef f(x): return 3 * x if x != 1 else sys.exit(1)") == (True, False, True, True)
    assert passed("import os\ndef f(x): return 3 * x if x != 4 else os._exit(1)") == (True, True, False, False)


def test_files_written_in_a_run_are_not_there_in_the_verification(env):
    planted = "import sys, pathlib\nfor folder in ('.', '/tmp'):\n    for name in ('json', 'io', 'os', 'answers'):\n"
    planted += "        try: pathlib.Path(folder, name + '.py').write_text('raise SystemExit(0)')\n"
    planted += "        except OSError: pass\ndef f(x): return 1"
    assert call(env, "run", planted)[0].status is CallStatus.OK
    call(
        env,
        "submit",
        "import pathlib\nleft = pathlib.Path('answers.py').exists()\ndef f(x): return 7 if left else x * 3",
    )
    # the run before the verification sees the file and only has to work; the verification must not see it
    assert env.outcome == 1.0


def test_expected_values_never_enter_the_process_that_runs_the_program():
    secret = 918_273_645
    search = (
        "import sys\nseen, frame = [], sys._getframe()\nwhile frame is not None:\n"
        "    seen += [k for part in (frame.f_locals, frame.f_globals) for k, v in list(part.items())\n"
        "             if str(918273 * 1000 + 645) in repr(v)]\n    frame = frame.f_back\ndef f(x): return bool(seen)"
    )
    assert verify(search, [(1,)], [secret]).passed == (False,)
    assert verify(search, [(1,)], [False]).passed == (True,)
    assert verify(search, [(secret,)], [True]).passed == (True,)  # what does enter is found that way


def test_values_are_compared_by_kind_and_content():
    cases = {
        "[1, (2, 'a')]": [1, (2, "a")],
        "{'a': [1], 2: None}": {"a": [1], 2: None},
        "{1, 2}": {1, 2},
        "'\\ud800é\\n'": "\ud800é\n",
    }
    for text, value in cases.items():
        assert verify(f"def f(): return {text}", [()], [value]).passed == (True,)
    assert verify("def f(): return [1, 2]", [()], [(1, 2)]).passed == (False,)


def test_a_checker_that_cannot_begin_is_nobodys_fault_and_leaves_the_episode_unscored(env, monkeypatch):
    monkeypatch.setattr("accredit.envs.catalogue.python.verify._HARNESS", "raise RuntimeError('broken checker')")
    with pytest.raises(VerifierError, match="verifier_error"):
        verify(TRIPLE.source, TRIPLE.hidden, TRIPLE.values(TRIPLE.hidden))
    result, _ = call(env, "submit", TRIPLE.source)
    assert (result.status, result.charge) == (CallStatus.INFRASTRUCTURE, None)
    assert (env.stop, env.outcome) == (StopReason.INFRASTRUCTURE, None)


def test_programs_that_do_the_same_on_the_examples_lead_to_one_state(env):
    fork = env.fork()
    call(env, "run", "def f(x): return x * 3")
    call(fork, "run", "def f(n):\n    return 3 * n")
    assert env.state_key() == fork.state_key()
    call(env, "run", "def f(x): return x * 3")
    call(fork, "run", "def f(n): return 4 * n")
    assert env.state_key() != fork.state_key()
    fork.close()


def test_a_file_that_a_run_leaves_behind_is_part_of_the_state(env):
    fork = env.fork()
    call(env, "run", "def f(x): return x * 3")
    call(fork, "run", "open('notes', 'w').write('f(2) is 6')\ndef f(x): return x * 3")
    assert env.last_results == fork.last_results
    assert env.state_key() != fork.state_key(), "the next run can read the notes"
    fork.close()


@pytest.mark.parametrize("level", LEVELS)
def test_the_right_program_is_right_and_mistakes_are_mistakes(level):
    env, rng = make("Python-v0", level=level), np.random.default_rng(0)
    kinds = set()
    for seed in range(150):
        env.reset(seed=seed)
        problem = env.task.data["problem"]
        inputs = (*problem.examples, *problem.hidden)
        assert len(set(map(repr, inputs))) == len(inputs) == 10
        assert run_source(wrong_program(problem, rng), inputs) != problem.values(inputs)
        with pytest.raises((NameError, TypeError, SyntaxError)) as failed:
            run_source(broken_program(problem, rng), problem.examples[:1])
        kinds.add(failed.type)
    assert kinds >= {NameError, TypeError, SyntaxError}


STEPS = {
    "add": lambda value, by: value + by,
    "subtract": lambda value, by: value - by,
    "multiply by": lambda value, by: value * by,
    "take the rest by": lambda value, by: value % by,
    "make it at least": max,
    "make it at most": min,
}


def test_easy_problems_mean_the_steps_that_they_say_in_that_order():
    env = make("Python-v0")
    for seed in range(200):
        env.reset(seed=seed)
        problem = env.task.data["problem"]
        for inputs, value in zip(problem.hidden, problem.values(problem.hidden), strict=True):
            found = inputs[0]
            for step in problem.text.split("take x, ")[1].rstrip(".").split(", "):
                name, number = step.rsplit(" ", 1)
                found = STEPS[name](found, inputs[1] if number == "y" else int(number))
            assert found == value, problem.text


MEANT = {
    r"f\(n\): Sum the digits of n that are above (\d), then multiply by (\d)\.": lambda n, above, by: (
        by * sum(int(d) for d in str(n) if int(d) > above)
    ),
    r"f\(n\): Count the numbers from 1 to n that leave the rest (\d) by (\d)\.": lambda n, rest, by: len(
        [i for i in range(1, n + 1) if i % by == rest]
    ),
    r"f\(s\): Move each letter of s (\d+) on in the alphabet; after z comes a\. Keep spaces\.": lambda s, by: (
        s.translate(str.maketrans(ascii_lowercase, ascii_lowercase[by:] + ascii_lowercase[:by]))
    ),
    r"f\(s\): s without the letters (.) and (.), backwards\.": lambda s, a, b: s[::-1].replace(a, "").replace(b, ""),
    r"f\(numbers\): Return the (\d).. largest of the different numbers, or (-\d) if there are fewer\.": (
        lambda numbers, k, other: ([other] * k + sorted(set(numbers)))[-k]
    ),
    r"f\(numbers\): Drop repeated numbers, keep the first of each; then rotate the list (\d) to the left\.": (
        lambda numbers, by: (lambda kept: [kept[(i + by) % len(kept)] for i in range(len(kept))])(
            list(dict.fromkeys(numbers))
        )
    ),
    r"f\(rows\): rows are lists of equal length\. Return the largest of each column, times (\d); \[\] without rows\.": (
        lambda rows, by: [by * max(row[at] for row in rows) for at in range(len(rows[0]) if rows else 0)]
    ),
    r"f\(s\): True if the (..) in s are balanced and at most (\d) deep, else False\.": (
        lambda s, pair, most: not reduce(lambda left, _: left.replace(pair, ""), range(most), s)
    ),
}


@pytest.mark.parametrize("meant", MEANT, ids=lambda text: text[:60])
def test_harder_problems_mean_what_they_say(meant):
    env, met = Python(), 0
    for level in ("medium", "hard"):
        for seed in range(250):
            env.reset(seed=seed, options={"level": level})
            problem = env.task.data["problem"]
            found = re.fullmatch(meant, problem.text)
            if found is None:
                continue
            met += 1
            words = [int(word) if re.fullmatch(r"-?\d+", word) else word for word in found.groups()]
            inputs = (*problem.examples, *problem.hidden)
            assert [MEANT[meant](*given, *words) for given in inputs] == problem.values(inputs), problem.text
    assert met


@pytest.mark.parametrize("level", LEVELS)
def test_prompts_and_easy_actions_are_short_for_the_base_policy(level):
    renderer = load_model("base").renderer
    env = make("Python-v0", level=level)
    prompts, actions = [], []
    for seed in range(60):
        messages, _ = env.reset(seed=seed)
        prompts.append(sum(len(piece.ids) for piece in renderer.prompt(messages, env.schemas)))
        actions.append(len(renderer.encode(next(env.expert()))))
    assert max(prompts) < (400 if level == "hard" else 250)
    if level == "easy":
        assert max(actions) < 40


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("split", ["train", "heldout"])
def test_the_expert_reaches_full_reward(level, split, play):
    env = make("Python-v0", level=level)
    for seed in range(12):
        env.reset(seed=seed, options={"split": split})
        assert play(env, env.expert()) == (1.0, 2)
    env.close()


def test_success_falls_and_failing_calls_rise_with_the_error_rate(play):
    env: Any = make("Python-v0")
    success, failed = [], []
    for rate in (0.0, 0.3, 0.8):
        rng, rewards, bad = np.random.default_rng(1), [], 0
        for seed in range(16):
            env.reset(seed=seed)
            messages = env.sloppy(rng, rate)
            for message in messages:
                _, reward, terminated, truncated, _ = env.step(message)
                bad += not env.last_turn.results[0].status.ran
                if terminated or truncated:
                    rewards.append(reward)
                    break
        success.append(np.mean(rewards))
        failed.append(bad)
    assert success[0] == 1.0 > success[1] > success[2]
    assert failed[0] == 0 < failed[1] < failed[2]
    env.close()


def test_a_foreign_task_is_refused_by_name():
    with pytest.raises(EnvError, match="was not drawn by Python"):
        env = Python()
        env.reset(options={"task": Task("Write.", id="mine")})
        env.step(format_call("run", code="x = 1"))


@pytest.mark.parametrize("level", LEVELS)
def test_the_checker_passes(level):
    checks = ("seeds", "isolation", "state key", "fork", "no-op", "gold", "errors", "masks")
    failed = [found for found in check_env("Python-v0", seeds=(0,), only=checks, level=level) if found.passed is False]
    assert failed == []


def test_a_forged_value_of_an_unknown_kind_fails_its_test_alone():
    forged = (
        "import os, sys\ndef f(x):\n    seen = sys._getframe(1).f_locals\n"
        "    if 'mark' in seen and seen['index'] == 0:\n"
        "        os.write(seen['out'], (seen['mark'] + '[0, {\"odd\": []}]\\n').encode())\n    return x"
    )
    assert verify(forged, [(1,), (2,)], [1, 2]).passed == (False, True)
