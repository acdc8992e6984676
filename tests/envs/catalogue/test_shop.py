"""Shop: what is charged at once, what shows only at the end, and what the books are compared with."""

import copy
import dataclasses
import json
import pickle
from collections.abc import Iterator

import numpy as np
import pytest

from accredit.credit import CallStatus
from accredit.envs import EnvError, Task, ToolEnv, make
from accredit.envs.catalogue.scripted import format_call
from accredit.envs.catalogue.shop import Shop
from accredit.envs.catalogue.shop.database import ShopDatabase
from accredit.envs.catalogue.shop.rules import Books, PlacedOrder, Refund, expected_books
from accredit.envs.catalogue.shop.tasks import ShopTask, identity
from accredit.envs.catalogue.shop.world import Change, Item, Line, Order, Person, Purchase, Request, Return, World

ITEMS = (
    Item("lamp", "acorn", 3, 8, False),
    Item("mug", "amber", 2, 0, False),
    Item("sofa", "anvil", 9, 9, True),
    Item("tent", "atlas", 5, 4, False),
)
PEOPLE = (Person("alice", True, "ruby"), Person("bruno", False, "onyx"))
PAST = (Purchase("alice", "acorn", 3, 30), Purchase("alice", "atlas", 2, 31))
WORLD = World({i.name: i for i in ITEMS}, {p.name: p for p in PEOPLE}, PAST)


def books(*requests: Request) -> Books:
    return expected_books(WORLD, requests)


def order(name: str, *lines: Line, fast: bool = True) -> Order:
    return Order(name, lines, fast)


def playing(requests: tuple[Request, ...], level: str = "hard") -> Shop:
    env = Shop(level=level)
    task = Task("Serve.", id=identity(requests), data={"drawn": ShopTask(level, requests, "Serve.", world=WORLD)})
    env.reset(seed=0, options={"task": task})
    return env


def call(env: ToolEnv, tool: str, /, **arguments):
    text = format_call(tool, **arguments)
    env.step(text)
    assert env.last_turn is not None
    (result,) = env.last_turn.results
    return text, result


def test_members_get_the_coupon_and_big_items_ship_slow():
    assert books(order("alice", Line("lamp", 2))).orders == (
        PlacedOrder("alice", (("acorn", 2),), "ruby", False, "fast"),
    )
    assert books(order("bruno", Line("sofa", 2))).orders == (PlacedOrder("bruno", (("anvil", 2),), "", False, "slow"),)


def test_a_short_item_is_refused_or_replaced():
    assert books(order("alice", Line("mug", 1))) == Books(refused=("mug",))
    assert books(order("alice", Line("mug", 1, "lamp"))).orders[0].lines == (("acorn", 1),)
    assert books(order("alice", Line("mug", 5, "tent"))) == Books(refused=("mug",))


def test_more_than_five_pieces_need_an_approval():
    assert not books(order("alice", Line("lamp", 5))).orders[0].approved
    assert books(order("alice", Line("lamp", 6))).orders[0].approved


def test_the_last_word_of_a_customer_counts():
    changed = books(order("alice", Line("lamp", 2, change=Change(6)), Line("sofa", 1, change=Change(0))))
    assert changed.orders == (PlacedOrder("alice", (("acorn", 6),), "ruby", True, "fast"),)


def test_a_purchase_of_thirty_days_is_refunded_and_an_older_one_refused():
    assert books(Return("alice", "lamp", 2)) == Books(refunds=(Refund("alice", "acorn", 2),))
    assert books(Return("alice", "tent", 2)) == Books(refused=("tent",))


@pytest.mark.parametrize(
    ("tool", "arguments", "blamed"),
    [
        ("find", {"item": "gold"}, '"gold"'),
        ("customer", {"name": "zoe"}, '"zoe"'),
        ("history", {"name": "zoe"}, '"zoe"'),
        ("add", {"sku": "lamp", "qty": 1}, '"lamp"'),
        ("add", {"sku": "acorn", "qty": 0}, "0"),
        ("add", {"sku": "acorn", "qty": 10**30}, str(10**30)),
        ("remove", {"sku": "acorn"}, '"acorn"'),
        ("coupon", {"code": "gold"}, '"gold"'),
        ("checkout", {"name": "alice", "ship": "soon"}, '"soon"'),
        ("checkout", {"name": "alice", "ship": "fast"}, None),
        ("refuse", {"item": "gold"}, '"gold"'),
        ("refund", {"name": "bruno", "sku": "acorn", "qty": 1}, '"acorn"'),
        ("refund", {"name": "alice", "sku": "acorn", "qty": 4}, "4"),
    ],
)
def test_the_impossible_fails_at_once_and_is_charged_where_it_is_wrong(tool, arguments, blamed):
    env = playing((order("alice", Line("lamp", 2)),))
    before = env.state_key()
    text, result = call(env, tool, **arguments)
    assert result.status in (CallStatus.TOOL_ERROR, CallStatus.INVALID_ARGUMENTS)
    assert result.charge is not None
    assert text[result.charge.start : result.charge.end] == (blamed or text)
    assert env.state_key() == before
    assert env.stop is None


@pytest.mark.parametrize("text", ["\ud800", "'; drop table items; --", "\x00"])
def test_odd_text_is_an_unknown_item_and_harms_nothing(text):
    env = playing((order("alice", Line("lamp", 2)),))
    before = env.state_key()
    _, result = call(env, "find", item=text)
    assert not result.status.ran
    assert env.state_key() == before


RIGHT = {
    "add": {"sku": "acorn", "qty": 2},
    "coupon": {"code": "ruby"},
    "checkout": {"name": "alice", "ship": "fast"},
}


def serve(env: ToolEnv, **changes) -> float:
    for tool, arguments in {**RIGHT, **changes}.items():
        if arguments is not None and env.stop is None:
            _, result = call(env, tool, **arguments)
            assert result.charge is None, result
    if env.stop is None:
        env.step("Done.")
    assert env.outcome is not None
    return env.outcome


def test_the_right_calls_score_without_any_read():
    assert serve(playing((order("alice", Line("lamp", 2)),))) == 1.0


@pytest.mark.parametrize(
    "changes",
    [
        {"add": {"sku": "acorn", "qty": 3}},
        {"add": {"sku": "atlas", "qty": 2}},
        {"coupon": None},
        {"coupon": {"code": "onyx"}},
        {"checkout": {"name": "bruno", "ship": "fast"}},
        {"checkout": {"name": "alice", "ship": "slow"}},
        {"checkout": None},
        {"add": None, "coupon": None, "checkout": None, "refuse": {"item": "lamp"}},
    ],
)
def test_a_broken_rule_is_not_charged_and_shows_only_at_the_end(changes):
    assert serve(playing((order("alice", Line("lamp", 2)),)), **changes) == 0.0


def test_an_unneeded_approval_and_an_unneeded_refusal_cost_the_reward():
    for extra in (
        ("approve", {}),
        ("refuse", {"item": "tent"}),
        ("refund", {"name": "alice", "sku": "atlas", "qty": 1}),
    ):
        env = playing((order("alice", Line("lamp", 2)),))
        call(env, extra[0], **extra[1])
        assert serve(env) == 0.0


def test_more_than_stock_can_be_ordered_and_scores_nothing():
    env = playing((order("alice", Line("mug", 1)),))
    assert serve(env, add={"sku": "amber", "qty": 1}) == 0.0
    env = playing((order("alice", Line("mug", 1)),))
    _, result = call(env, "refuse", item="mug")
    assert result.status is CallStatus.OK
    assert env.outcome == 1.0


def test_extra_reads_are_harmless():
    env = playing((order("alice", Line("lamp", 2)),))
    start = env.state_key()
    for tool, arguments in (
        ("find", {"item": "sofa"}),
        ("customer", {"name": "bruno"}),
        ("history", {"name": "alice"}),
    ):
        _, result = call(env, tool, **arguments)
        assert result.charge is None
    assert env.state_key() == start
    assert serve(env) == 1.0


def test_a_mistake_can_be_undone():
    env = playing((order("alice", Line("lamp", 2)),))
    call(env, "add", sku="atlas", qty=1)
    call(env, "remove", sku="atlas")
    assert serve(env) == 1.0


def test_different_ways_to_one_state_have_one_key():
    env, other = playing((order("alice", Line("lamp", 2)),)), playing((order("alice", Line("lamp", 2)),))
    call(env, "add", sku="acorn", qty=2)
    call(env, "add", sku="atlas", qty=1)
    call(other, "add", sku="atlas", qty=1)
    call(other, "add", sku="acorn", qty=1)
    assert env.state_key() != other.state_key()
    call(other, "add", sku="acorn", qty=1)
    assert env.state_key() == other.state_key()


def test_a_change_of_mind_is_told_once_in_the_result_of_the_add():
    env = playing((order("alice", Line("lamp", 2, change=Change(4)), Line("tent", 1)),))
    assert json.loads(call(env, "add", sku="acorn", qty=2)[1].text) == {"note": "make it 4"}
    call(env, "remove", sku="acorn")
    assert call(env, "add", sku="acorn", qty=4)[1].text == "ok"


def test_checkout_takes_from_stock_and_empties_the_cart():
    env = playing((order("alice", Line("lamp", 2)), order("bruno", Line("lamp", 1))))
    call(env, "add", sku="acorn", qty=2)
    assert json.loads(call(env, "checkout", name="alice", ship="slow")[1].text) == {"total": 6}
    assert json.loads(call(env, "find", item="lamp")[1].text)["stock"] == 6
    assert call(env, "checkout", name="bruno", ship="slow")[1].status is CallStatus.TOOL_ERROR
    assert call(env, "coupon", code="ruby")[1].status is CallStatus.OK
    call(env, "add", sku="acorn", qty=1)
    assert call(env, "checkout", name="alice", ship="slow")[1].status is CallStatus.TOOL_ERROR


def test_calls_that_cannot_run_do_not_hide_their_neighbours():
    env = playing((order("alice", Line("lamp", 2)),))
    env.step(format_call("add", sku="acorn", qty=2) + format_call("steal") + format_call("coupon", code="ruby"))
    assert env.last_turn is not None
    assert [result.status.ran for result in env.last_turn.results] == [True, False, True]
    assert env.step(format_call("checkout", name="alice", ship="fast"))[1] == 1.0


def test_copies_of_the_database_are_independent():
    original = ShopDatabase(WORLD, ())
    original.add("acorn", 2)
    for twin in (copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
        assert twin.canonical() == original.canonical()
        twin.add("acorn", 1)
        assert twin.canonical() != original.canonical()
    assert original.books().cart == (("acorn", 2),)


def test_a_level_offers_the_tools_that_it_needs_and_keeps_added_ones():
    env = make("Shop-v0")
    found = env.tools["find"]
    env.add_tool(dataclasses.replace(found, schema=dataclasses.replace(found.schema, name="look")))
    for level, count in (("easy", 6), ("medium", 7), ("hard", 10), ("easy", 6)):
        env.reset(seed=0, options={"level": level})
        assert len(env.tools) == count + 1


def test_own_text_and_turn_limit_are_kept():
    env = make("Shop-v0", system="Be kind.", max_turns=2)
    messages, _ = env.reset(seed=0)
    assert messages[0].content == "Be kind."
    assert env.max_turns == 2


def test_a_foreign_task_is_refused_by_name():
    with pytest.raises(EnvError, match="was not drawn by Shop"):
        make("Shop-v0").reset(options={"task": Task("Sell.", id="mine")})


def _easy(seeds: range) -> Iterator[tuple[Shop, int]]:
    env = Shop()
    for seed in seeds:
        env.reset(seed=seed)
        yield env, seed


def test_easy_prompts_are_short():
    words = [sum(len(message.content.split()) for message in env.opening()) for env, _ in _easy(range(50))]
    assert max(words) <= 40


def test_every_rule_decides_some_easy_episode(play):
    seen = set()
    for env, _ in _easy(range(100)):
        drawn = env.task.data["drawn"]
        wanted = expected_books(drawn.make_world(), drawn.requests)
        placed = wanted.orders[0] if wanted.orders else None
        seen.add((placed is None, bool(placed and placed.coupon), placed.ship if placed else ""))
    assert seen == {
        (True, False, ""),
        *((False, coupon, ship) for coupon in (True, False) for ship in ("fast", "slow")),
    }


def test_half_of_the_rules_let_go_leave_a_third_to_half_of_easy_episodes_right(play):
    rng = np.random.default_rng(0)
    success = np.mean([play(env, env.sloppy(rng, 0.5))[0] for env, _ in _easy(range(300))])
    assert 0.3 <= success <= 0.5
