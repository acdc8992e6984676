"""SQL: what is right, what a failing query is charged on, and what hostile queries cannot do."""

import json

import apsw
import pytest

from accredit.agents.rollout import Episode, live
from accredit.agents.scripted import ScriptedPolicy
from accredit.credit import CallStatus
from accredit.envs import check_env, make, tinytokenizers
from accredit.envs.catalogue.scripted import format_call
from accredit.envs.catalogue.sql import SQL, engine
from accredit.envs.catalogue.sql.answers import same_answer
from accredit.envs.catalogue.sql.engine import Database, Failure, QueryError, Table
from accredit.envs.chatml import ChatMLRenderer

LEVELS = ("easy", "medium", "hard")
CREATION = (
    "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)",
    "CREATE TABLE things (id INTEGER, owner INTEGER)",
)
ENDLESS = "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) "


@pytest.fixture(scope="module")
def database():
    people = [(number, f"n{number}") for number in range(200)]
    return Database(CREATION, {"people": [*people], "things": [(number, number % 7) for number in range(50)]})


def table(*rows):
    return Table(("a",), tuple(rows))


def query(sql):
    return format_call("query", sql=sql)


def failure(database, sql):
    with pytest.raises(QueryError) as caught:
        database.run(sql)
    place = caught.value.place
    return caught.value.failure, None if place is None else sql[slice(*place)]


# Answers


def test_rows_are_a_multiset_unless_order_is_asked_for():
    assert same_answer(table((1,), (2,), (2,)), table((2,), (1,), (2,)), ordered=False)
    assert not same_answer(table((1,), (2,), (2,)), table((1,), (1,), (2,)), ordered=False)
    assert not same_answer(table((1,), (2,)), table((2,), (1,)), ordered=True)
    assert not same_answer(table((1,)), table((1,), (1,)), ordered=False)


def test_numbers_are_compared_as_numbers_and_null_is_null_alone():
    assert same_answer(table((25,), (None,)), table((None,), (25.0,)), ordered=False)
    assert same_answer(table((0.1 + 0.2,)), table((0.3,)), ordered=False)
    assert not same_answer(table((33.3,)), table((100 / 3,)), ordered=False)
    for other in (0, "", "NULL"):
        assert not same_answer(table((None,)), table((other,)), ordered=False)
    assert not same_answer(table((3,)), table(("3",)), ordered=False)
    assert not same_answer(table((1, 2)), table((1,)), ordered=False)


@pytest.mark.parametrize("level", LEVELS)
def test_a_rival_and_a_copied_result_score_nothing_where_the_right_query_scores_one(level):
    env = SQL(level=level)
    for seed in range(25):
        env.reset(seed=seed)
        question = env.task.data["drawn"].question
        rows = env._pair.right[0].rows
        copied = " UNION ALL ".join(
            "SELECT " + ", ".join(f"'{cell}'" if isinstance(cell, str) else str(cell) for cell in row) for row in rows
        )
        for sql, expected in ((question.sql, 1.0), (copied, 0.0), *((rival, 0.0) for rival in question.rivals)):
            env.reset(seed=seed)
            env.step(query(sql))
            assert env.last_turn is not None
            assert env.last_turn.results[0].status is CallStatus.OK, (sql, env.last_results)
            assert env.step("Done.")[1] == expected, sql


def test_the_last_query_that_ran_counts_and_a_failed_one_changes_nothing():
    env = SQL(level="easy")
    env.reset(seed=0)
    right = env.task.data["drawn"].question.sql
    env.step(query(right))
    key = env.state_key()
    env.step(query("SELECT nope FROM nowhere"))
    assert env.state_key() == key
    assert env.fork().step("Done.")[1] == 1.0
    env.step(query("SELECT 0"))
    assert env.state_key() != key
    assert env.step("Done.")[1] == 0.0


# Charges


@pytest.mark.parametrize(
    ("sql", "charged"),
    [
        ("SELECT nme FROM people", "nme"),
        ("SELECT name FRM people", "people"),  # FRM is read as another name of the column
        ("SELECT name FROM people WHERE name == 'x' ANDD id = 1", "ANDD"),
        ("SELECT name FROM peple", "peple"),
        ("SELECT name AS peple FROM peple, people", "peple"),
        ("SELECT p.nam FROM people p", "p.nam"),
        ("SELECT name FROM people ORDER BY 'é😀', naam", "naam"),
        ("SELECT foo(name) FROM people", "foo"),
        ("SELECT id FROM people, things", "id"),
        ("SELECT name FROM people WHERE COUNT(*) > 1", "COUNT"),
        ("SELECT name FROM people WHERE", "WHERE"),
        ("SELECT 'abc", "'abc"),
        ("SELECT name FROM people; SELECT 2", "SELECT"),
        ("SELECT name FROM people WHERE id = ?", "?"),
        ("-- note\n SELEC name FROM people", "SELEC"),
        ("SELECT random()", "random"),
    ],
)
def test_a_wrong_query_names_exactly_the_token_to_blame(database, sql, charged):
    assert failure(database, sql)[1] == charged


def test_the_second_of_two_equal_words_is_blamed_by_its_place(database):
    sql = "SELECT name, nme AS name FROM people WHERE 'nme' = name"
    with pytest.raises(QueryError) as caught:
        database.run(sql)
    assert caught.value.place == (13, 16)


@pytest.mark.parametrize("tokenizer", ["byte_level", "byte_fallback"])
def test_only_the_tokens_of_the_wrong_name_are_charged(tokenizer):
    renderer = ChatMLRenderer(getattr(tinytokenizers, tokenizer)(), "signature")
    sql = "SELECT 'é😀 \"nme\"', nme FROM sqlite_master"
    policy = ScriptedPolicy(renderer, lambda _env: iter((query(sql), "Done.")))
    (lived,) = live([Episode("ep", "g", 1, 1, 1)], policy, SQL, renderer)
    (charge,) = lived.charges
    pieces = renderer.token_bytes(lived.token_ids[charge.start : charge.end].tolist())
    assert b"nme" in b"".join(pieces)
    assert b"".join(pieces[1:-1]).decode() in "nme"
    assert len(b"".join(pieces)) <= 6
    assert charge.start > lived.token_ids.size // 4  # the second `nme`, not the one in the text


# What a hostile query cannot do


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("DELETE FROM people", "DELETE"),
        ("insert into nope values (1)", "insert"),
        ("/* x */ PRAGMA query_only = off", "PRAGMA"),
        ("ATTACH '/tmp/x.db' AS x", "ATTACH"),
        ("VACUUM INTO '/tmp/x.db'", "VACUUM"),
        ("BEGIN", "BEGIN"),
        ("ANALYZE", "ANALYZE"),
        ("WITH x AS (SELECT 1) DELETE FROM people", "WITH"),
        ("SELECT load_extension('x')", "load_extension"),
        ("SELECT randomblob(10)", "randomblob"),
        ("SELECT * FROM pragma_table_info('people')", "pragma_table_info"),
        ("SELECT value FROM json_each('[1]')", "json_each"),
        ("EXPLAIN DELETE FROM people", "EXPLAIN"),
    ],
)
def test_what_is_not_reading_is_denied_on_its_first_word(database, sql, word):
    assert failure(database, sql) == (Failure.DENIED, word)
    assert database.run("SELECT COUNT(*) FROM people").rows == ((200,),)


@pytest.mark.parametrize(
    "sql",
    [
        ENDLESS + "SELECT COUNT(*) FROM t",
        "WITH RECURSIVE t(x) AS (SELECT 1 UNION SELECT x + 1 FROM t) SELECT COUNT(*) FROM t",
        ENDLESS + "SELECT hex(zeroblob(9000)) || x FROM t ORDER BY 1",
        ENDLESS + "SELECT group_concat(x) FROM t",
        "SELECT COUNT(*) FROM people a, people b, people c, people d",
        "SELECT a.name FROM people a, people b, people c ORDER BY a.name || b.name || c.name",
        "WITH s AS (SELECT replace(hex(zeroblob(4900)), '0', 'a') v) "
        "SELECT SUM(instr(v, substr(v, 5000) || 'b')) FROM s, people, people p",
    ],
)
def test_an_endless_query_is_stopped_within_its_steps_time_and_memory(database, sql, monkeypatch):
    monkeypatch.setattr(engine, "MOST_S", 1.0)
    before = apsw.memory_used()
    apsw.memory_high_water(True)
    kind, place = failure(database, sql)
    assert kind in (Failure.TIMEOUT, Failure.OUT_OF_MEMORY)
    assert place is None
    assert apsw.memory_high_water() - before < engine.MOST_MEMORY + engine.VALUE_BYTES * engine._BETWEEN
    assert apsw.memory_used() - before < 1 << 20  # what it took is given back
    assert database.run("SELECT COUNT(*) FROM people").rows == ((200,),)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT zeroblob(1000000000)",
        "SELECT printf('%1000000000d', 1)",
        "SELECT printf('%.*c', 1000000000, 'x')",
        "SELECT 'a' LIKE '" + "%a" * 300 + "'",
        "SELECT " + "+".join(["1"] * 1500),
        "SELECT " + "-" * 3900 + "1",
        "WITH " + ", ".join(f"a{n} AS (SELECT 1 FROM a{n + 1} p, a{n + 1} q)" for n in range(40)) + " SELECT 1 FROM a0",
        "WITH a AS (SELECT 1 x)"
        + "".join(f", a{n} AS (SELECT p.x FROM a{n - 1 if n else ''} p, a{n - 1 if n else ''} q)" for n in range(28))
        + " SELECT COUNT(*) FROM a27",
        "WITH RECURSIVE f(a, b) AS (SELECT 'x', 'y' UNION ALL SELECT a || b, b || a FROM f) SELECT length(a) FROM f",
        "x" * 200_000,
        "SELECT '\0'",
    ],
)
def test_a_huge_value_or_text_is_refused_without_being_made(database, sql):
    before = apsw.memory_used()
    apsw.memory_high_water(True)
    with pytest.raises(QueryError):
        database.run(sql)
    assert apsw.memory_high_water() - before < engine.MOST_MEMORY


def test_more_rows_than_can_be_read_are_cut_and_answer_nothing(database):
    found = database.run("SELECT a.id FROM people a, people b")
    assert found.cut and len(found.rows) == engine.MOST_ROWS
    assert not same_answer(found, found, ordered=False)


def test_a_long_result_is_cut_for_the_policy_and_says_so():
    env = SQL(level="easy")
    env.reset(seed=0)
    env.step(
        query(
            "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t LIMIT 90) "
            "SELECT x, hex(zeroblob(900)) FROM t"
        )
    )
    assert env.last_results[0].splitlines()[-1] == "(70 more rows)"
    assert max(map(len, env.last_results[0].splitlines())) < 300


def test_a_timeout_charges_the_call_and_the_episode_goes_on(monkeypatch):
    monkeypatch.setattr(engine, "MOST_STEPS", 10_000)
    env = SQL(level="easy")
    env.reset(seed=0)
    text = query(ENDLESS + "SELECT COUNT(*) FROM t")
    env.step(text)
    assert env.last_turn is not None
    (result,) = env.last_turn.results
    assert result.status is CallStatus.TIMEOUT and result.charge is not None
    assert (result.charge.start, result.charge.end) == (0, len(text))
    assert env.stop is None


# The environment


@pytest.mark.parametrize("split", ["train", "heldout"])
@pytest.mark.parametrize("level", LEVELS)
def test_the_expert_gets_full_marks_in_three_turns(level, split, play):
    env = make("SQL-v0")
    for seed in range(40):
        env.reset(seed=seed, options={"level": level, "split": split})
        assert play(env, env.expert()) == (1.0, 3), env.task


def test_one_level_knows_many_tasks_and_holds_some_out():
    env = SQL()
    for level in LEVELS:
        found = {
            split: {env.reset(seed=seed, options={"level": level, "split": split})[1]["task_id"] for seed in range(150)}
            for split in ("train", "heldout")
        }
        assert not found["train"] & found["heldout"]
        assert len(found["train"]) > 50 and len(found["heldout"]) > 15, level


def test_the_projects_own_checker_passes():
    failed = [found for found in check_env("SQL-v0", seeds=(0, 1)) if found.passed is False]
    assert failed == []


def test_prompt_and_action_of_the_easy_level_are_short():
    from accredit.agents.models import load_model
    from accredit.envs import RecordCredit

    renderer = load_model("base").renderer
    env = make("SQL-v0")
    for seed in range(10):
        context, _ = RecordCredit(env, renderer).reset(seed=seed)
        assert len(context) < 300
        env.reset(seed=seed)
        assert max(len(renderer.encode(message)) for message in _said(env)) < 120


def _said(env):
    for message in env.expert():
        yield message
        env.step(message)


def test_a_result_is_plain_text():
    env = SQL(level="easy")
    env.reset(seed=0)
    env.step(query("SELECT NULL AS a, 1.5 AS b, 'x' AS c, x'0a' AS d"))
    assert env.last_results == ["a | b | c | d\nNULL | 1.5 | x | x'0a'"]
    assert json.dumps(env.last_results)


@pytest.mark.parametrize("sql", ["SELECT CAST(x'ff' AS TEXT)", "SELECT char(55296)", "SELECT '\ud800'"])
def test_text_that_is_none_is_the_querys_own_failure(database, sql):
    assert failure(database, sql)[0] is Failure.ERROR


def test_a_result_too_large_for_the_trainer_is_stopped_before_it_is_whole(database):
    endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 900) SELECT "
    assert failure(database, f"{endless}zeroblob(20000) FROM r")[0] is Failure.OUT_OF_MEMORY


@pytest.mark.parametrize("name", ["date", "datetime", "julianday", "strftime", "time"])
def test_no_query_reads_the_clock(database, name):
    arguments = "'%s', 'now'" if name == "strftime" else "'now'"
    assert failure(database, f"SELECT {name}({arguments})")[0] is Failure.DENIED
