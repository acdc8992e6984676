"""Shell: which words of a command are charged, what counts as done, and files that are read from outside."""

import os

import pytest

from accredit.agents.rollout import Episode, live
from accredit.agents.scripted import ScriptedPolicy
from accredit.credit import CallStatus, StopReason
from accredit.envs import check_env, make, tinytokenizers
from accredit.envs.catalogue.scripted import format_call
from accredit.envs.catalogue.shell import Shell
from accredit.envs.catalogue.shell.blame import Ran, judge, syntax_place
from accredit.envs.catalogue.shell.parsing import parse
from accredit.envs.catalogue.shell.workspace import Workspace
from accredit.envs.chatml import ChatMLRenderer
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


@pytest.fixture(scope="module")
def env():
    shell = Shell(level="easy", max_turns=1000)
    shell.reset(seed=0)
    shell.step(
        call(
            "mkdir -p t/src; cd t; echo 'foo = 1' > src/a.txt; echo bar > b.txt; printf '#!/bin/sh\\nexit 3\\n' > three"
        )
    )
    yield shell
    shell.close()


def call(command):
    return format_call("shell", command=command)


def run(env, command):
    """Run a command in the folder `t`; return its result, and the characters of the command that were charged."""
    command = f"cd t; {command}"
    text = call(command)
    env.step(text)
    (result,) = env.last_turn.results
    if result.charge is None:
        return result, None
    charged = text[result.charge.start : result.charge.end]
    return result, charged.encode().decode("unicode_escape").encode("latin-1", "replace").decode("utf-8", "replace")


# What is charged


@pytest.mark.parametrize(
    ("command", "charged"),
    [
        ("cd src && grep -n foo nofile | wc -l", "grep -n foo nofile"),
        ("cat b.txt | sort nofile | head -1", "sort nofile"),
        ("cat nofile | grep foo", "cat nofile"),
        ("cat b.txt; ls nodir", "ls nodir"),
        ("ls nodir && cat b.txt", "ls nodir"),
        ("ls nodir || cat nofile", "cat nofile"),
        ("cat b.txt && catt b.txt", "catt"),
        ("X=1 catt b.txt", "catt"),
        ("./b.txt", "./b.txt"),
        ("if true; then cat nofile; fi", "cat nofile"),
        ("for f in b.txt nofile; do cat $f; done", "cat $f"),
        ("printf 'a\\nb\\n' | while read l; do cat nofile; done", "cat nofile"),
        ("x=$(cat nofile)", "cat nofile"),
        ("show() { cat nofile; }; show", "cat nofile"),
        ("(cat b.txt; cat nofile)", "cat nofile"),
        ("echo hi > nodir/x", "> nodir/x"),
        ("find . -name b.txt | xargs cat nofile", "xargs cat nofile"),
        ("sh three", "sh three"),
        ("cat <<'E'\nls nodir\nE\nls nodir\n", "ls nodir"),
        ("python3 -c 'print(1 / 0)'", "python3 -c 'print(1 / 0)'"),
        ("echo a b )", ")"),
        ("cat b.txt | | wc", "|"),
        ("for f in b.txt; do cat $f", "$f"),
    ],
)
def test_a_failing_command_is_charged_alone(env, command, charged):
    result, found = run(env, command)
    assert result.status is CallStatus.NONZERO_EXIT
    assert found == charged, result.text
    assert "__ran" not in result.text and "environment:" not in result.text


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("false; true", "(no output)"),
        ("grep nothing b.txt", "(exit 1)"),
        ("grep nothing b.txt | wc -l", "0"),
        ("diff b.txt src/a.txt", "1c1\n< bar\n---\n> foo = 1"),
        ("[ -f nofile ]", "(exit 1)"),
        ("[[ -f nofile ]]", "(exit 1)"),
        ("test -f nofile && cat nofile", "(exit 1)"),
        ("! true", "(exit 1)"),
        ("yes | head -1", "y"),
        ("cat nofile 2>/dev/null || echo none", "none"),
        ("if grep -q nothing b.txt; then echo y; else echo n; fi", "n"),
        ('while read l; do echo "$l"; done < b.txt', "bar"),
        ("echo careful >&2", "careful"),
        ("set -- x y; shift; echo $1", "y"),
        ("n=5; read n < b.txt; echo $n", "bar"),
        ("cat", "(no output)"),
        ("", "(no output)"),
    ],
)
def test_an_answer_or_a_warning_is_no_failure(env, command, shown):
    result, charged = run(env, command)
    assert (result.status, charged, result.text) == (CallStatus.OK, None, shown)


def test_a_part_of_a_pipeline_is_charged_on_its_tokens_under_every_tokenizer():
    for name in ("byte_level", "byte_fallback"):
        renderer = ChatMLRenderer(getattr(tinytokenizers, name)(), "signature")
        script = (call('echo "é😀" | cat - nofile | wc -l'), "Done.")
        policy = ScriptedPolicy(renderer, lambda _env, script=script: iter(script))
        (lived,) = live([Episode("ep", "g", 1, 1, 1)], policy, Shell, renderer)
        (charge,) = lived.charges
        pieces = renderer.token_bytes(lived.token_ids[charge.start : charge.end].tolist())
        assert b"cat - nofile" in b"".join(pieces)
        assert b"".join(pieces[1:-1]).decode() in "cat - nofile"


def test_a_forged_report_moves_a_charge_within_the_command_and_no_further():
    script = parse("cat a; cat b")
    assert judge(script, 1, [Ran(0, 0), Ran(99, 1), Ran(1, 1)], "").place == (7, 12)
    assert judge(script, 1, [Ran(99, 1)], "") == (True, None)
    assert judge(script, 0, [Ran(0, 1)], "") == (False, None)  # the status is the sandbox's


def test_a_program_that_writes_its_own_report_is_still_charged(env):
    result, charged = run(env, "echo '0 0' >&9; cat nofile; exit 3")
    assert result.status is CallStatus.NONZERO_EXIT
    assert charged is not None


def test_an_endless_command_is_charged_on_the_call_and_the_files_stay():
    class Hurried(Shell):
        run_limits = Limits(wall_s=1.0, cpu_s=10.0)

    env = Hurried(level="easy")
    env.reset(seed=0)
    text = call("echo hi > x; while :; do :; done")
    env.step(text)
    assert env.last_turn is not None
    (result,) = env.last_turn.results
    assert result.status is CallStatus.TIMEOUT
    assert result.charge is not None and (result.charge.start, result.charge.end) == (0, len(text))
    assert env.state.tree["x"] == "hi\n"
    env.close()


def test_without_bash_a_command_is_charged_as_a_whole(monkeypatch):
    from accredit.envs.catalogue.shell import workspace

    monkeypatch.setattr(workspace, "_DRIVER", workspace._DRIVER.replace("command -v bash", "false"))
    env = Shell(level="easy")
    env.reset(seed=0)
    text = call("true && cat nofile")
    env.step(text)
    assert env.last_turn is not None
    (result,) = env.last_turn.results
    assert result.charge is not None
    assert text[result.charge.start : result.charge.end].strip('"') == "true && cat nofile"
    env.close()


def test_a_sandbox_that_dies_is_charged_to_nobody():
    renderer = ChatMLRenderer(tinytokenizers.byte_level(), "signature")

    class Doomed(Shell):
        def setup(self):
            super().setup()
            os.kill(self.workspace._opened().pid, 9)  # type: ignore[attr-defined]

    policy = ScriptedPolicy(renderer, lambda _env: iter((call("true"), "Done.")))
    (lived,) = live([Episode("ep", "g", 1, 1, 1)], policy, Doomed, renderer)
    assert lived.stop is StopReason.INFRASTRUCTURE
    assert lived.outcome is None and not lived.charges


# What counts as done


@pytest.mark.parametrize("split", ["train", "heldout"])
@pytest.mark.parametrize("level", LEVELS)
def test_the_expert_gets_full_marks(level, split, play):
    env = make("Shell-v0")
    for seed in range(4):
        env.reset(seed=seed, options={"level": level, "split": split})
        assert play(env, env.expert())[0] == 1.0, env.task
    env.close()


@pytest.mark.parametrize(
    "damage",
    [
        "touch more",
        "mkdir more",
        "ln -s /etc/passwd more",
        "mkfifo more",
        "rm logs/*",
        "echo >> $(ls conf/* | head -1)",
    ],
)
def test_whatever_else_has_changed_costs_the_reward(damage, play):
    env = Shell()
    for seed, level in enumerate(("easy", "hard")):
        env.reset(seed=seed, options={"level": level})
        messages = list(env._job.commands)
        messages = [call(command) for command in (*messages, damage)] + [env._job.answer or "Done."]
        assert play(env, messages)[0] == 0.0, env.task
    env.close()


def test_a_wrong_answer_or_a_check_that_fails_scores_nothing(play):
    env, kinds = Shell(), set()
    for seed in range(60):
        env.reset(seed=seed, options={"level": LEVELS[seed % 3]})
        kind = env._job.identity.split()[0]
        if kind in ("where", "lines", "largest") and kind not in kinds:
            assert play(env, [*map(call, env._job.commands), "7777"])[0] == 0.0
        elif kind == "fix" and kind not in kinds:
            half = call("sed -i 's/\\[1:\\]//' src/main.py")
            assert play(env, [half, "Done."])[0] == 0.0
            env.reset(seed=seed, options={"level": LEVELS[seed % 3]})
            own = call("printf 'import sys\\nsys.exit(0)\\n' > src/main.py")
            assert play(env, [own, "Done."])[0] == 0.0
        kinds.add(kind)
    assert {"where", "lines", "largest", "fix"} <= kinds
    env.close()


def test_train_and_heldout_jobs_are_many_and_disjoint():
    env = Shell()
    for level in LEVELS:
        found = {
            split: {env.reset(seed=seed, options={"level": level, "split": split})[1]["task_id"] for seed in range(150)}
            for split in ("train", "heldout")
        }
        assert not found["train"] & found["heldout"]
        assert len(found["train"]) > 50 and len(found["heldout"]) > 15, level


# Files and forks


def test_files_are_read_without_following_links_or_believing_sizes():
    workspace = Workspace({"a.txt": "a\n"}, Limits(disk_mb=16))
    workspace.run(
        parse(
            "ln -s /etc/passwd out; ln -s / root; mkfifo pipe; truncate -s 10M big; chmod 0 a.txt; printf '\\377' > raw"
        )
    )
    tree = workspace.tree()
    assert {tree[name] for name in ("out", "root")} == {"<link>"}
    assert tree["pipe"] == "<other>" and tree["big"] == f"<{10 << 20} bytes>" and tree["raw"] == "\\xff"
    assert not any("root:x" in text for text in tree.values())
    workspace.run(parse("rm -f *; for n in $(seq 500); do echo > $n; done"))
    assert set(workspace.tree().values()) == {"<file>"}
    workspace.close()


@pytest.mark.parametrize(
    ("command", "statuses"),
    [
        (":() { : | : & }; :", (CallStatus.OK, CallStatus.TOOL_ERROR, CallStatus.NONZERO_EXIT, CallStatus.TIMEOUT)),
        ("yes", (CallStatus.OUTPUT_LIMIT,)),
        ("tail /dev/zero", (CallStatus.OUT_OF_MEMORY, CallStatus.NONZERO_EXIT, CallStatus.TOOL_ERROR)),
        ("head -c 900M /dev/zero > x", (CallStatus.NONZERO_EXIT, CallStatus.TOOL_ERROR)),
        ("kill -9 $PPID", (CallStatus.NONZERO_EXIT,)),
        ("sleep 60 & exec 1>&- 2>&-; kill -STOP $$", (CallStatus.TIMEOUT,)),
        ("cat /proc/$PPID/cmdline | tr '\\0' ' ' > y; touch $'\\377'", (CallStatus.OK,)),
    ],
)
def test_a_hostile_command_ends_as_the_policys_own_doing_and_the_session_goes_on(command, statuses):
    class Hurried(Shell):
        run_limits = Limits(wall_s=3.0, cpu_s=10.0, memory_mb=128, output_bytes=65_536, disk_mb=16)

    env = Hurried(level="easy")
    env.reset(seed=0)
    for said, expected in ((command, statuses), ("echo on", (CallStatus.OK,))):
        env.step(call(said))
        assert env.last_turn is not None
        assert env.last_turn.results[0].status in expected, env.last_results
    assert env.state_key() and env.last_results == ["on"]
    env.close()


def test_too_many_files_end_the_episode_charged_and_without_reward():
    env = Shell(level="easy")
    env.reset(seed=0)
    _, reward, terminated, _, _ = env.step(call("for n in $(seq 500); do echo > $n; done"))
    assert env.last_turn is not None
    assert (reward, terminated, len(env.last_turn.results[0].charges)) == (0.0, True, 1)
    env.close()


def test_a_fork_has_files_of_its_own(play):
    env = Shell(level="easy")
    env.reset(seed=0)
    unopened = env.fork()
    env.step(call("echo one > x"))
    fork = env.fork()
    assert fork.state_key() == env.state_key() != unopened.state_key()
    fork.step(call("echo two > x"))
    env.step(call("cat x"))
    assert env.last_results == ["one"]
    assert fork.state.tree["x"] == "two\n" and env.state.tree["x"] == "one\n"
    assert play(unopened, unopened.expert())[0] == 1.0
    for one in (env, fork, unopened):
        one.close()


def test_equal_trees_have_equal_keys_however_they_came_about():
    env, keys = Shell(level="easy"), []
    for commands in (["touch a", "touch b"], ["touch b c", "mv c a"], ["touch a"]):
        env.reset(seed=0)
        for command in commands:
            env.step(call(command))
        keys.append(env.state_key())
    assert keys[0] == keys[1] != keys[2]
    env.close()


@pytest.mark.timeout(900)  # a hundred sessions, each with processes of its own
def test_the_projects_own_checker_passes():
    failed = [found for found in check_env("Shell-v0", seeds=(0,)) if found.passed is False]
    assert failed == []


def test_prompt_of_the_easy_level_is_short():
    from accredit.agents.models import load_model
    from accredit.envs import RecordCredit

    renderer = load_model("base").renderer
    env = make("Shell-v0")
    for seed in range(10):
        context, _ = RecordCredit(env, renderer).reset(seed=seed)
        assert len(context) < 300
        assert max(len(renderer.encode(call(command))) for command in env.task.data["job"].commands) < 70
    env.close()


def test_a_forged_complaint_of_the_shell_is_read_whatever_number_it_names():
    assert syntax_place(parse("false"), f"line {'9' * 5000}: syntax error near unexpected token `x'") is None


def test_lines_are_counted_as_the_shell_counts_them():
    text = "echo a\x0cb\necho )"
    place = syntax_place(parse(text), "sh: line 2: syntax error near unexpected token `)'")
    assert place == (text.index(")"), len(text))
