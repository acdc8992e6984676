"""`@tool`: schemas from signatures, strict checks of arguments, and errors that say what to do."""

import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from accredit.credit import CallStatus
from accredit.envs import EnvError, InfrastructureError, Task, ToolEnv, ToolError, tool
from accredit.envs.tools import ArgumentFault, Tool, ToolOptions
from accredit.sandboxes.errors import SandboxError


class Unit(enum.Enum):
    KILO = "kilo"
    PIECE = "piece"


class Line(BaseModel):
    sku: str
    qty: int


@dataclass
class Place:
    street: str
    number: int = 1


class Desk(ToolEnv):
    charge = 0.25
    charges = {"unknown_tool": 0.5, "tool_error": 0.125}  # noqa: RUF012

    def tasks(self, rng):
        return [Task("go")]

    def reward(self) -> float:
        return 0.0

    @tool
    def order(self, item: str, qty: int = 1, note: str | None = None) -> str:
        """Order an item.

        It is sent at once.

        Args:
            item: what to order,
                by its name
            qty (int): how many

        Returns:
            A receipt.

        """
        return f"{qty} {item} {note}"

    @tool
    def many(self, lines: list[Line], unit: Unit = Unit.PIECE, place: Place | None = None) -> list[Any]:
        """Order several lines."""
        return [lines, unit, place]

    @tool
    def mixed(
        self, size: Literal["s", "l"] = "s", part: float = 1.0, either: int | str = 0, least: Annotated[int, Ge(3)] = 3
    ) -> dict[str, Any]:
        """Take all kinds."""
        return {"size": size, "part": part, "either": either, "least": least}

    @tool
    def nothing(self) -> None:
        """Do nothing."""

    @tool
    def find(self) -> str | None:
        """Find nothing."""
        return None

    @tool(output_limit=100)
    def long(self) -> str:
        """Say much."""
        return "a" * 500 + "b" * 500

    @tool(charge=0.75)
    def fail(self, how: str) -> str:
        """Fail."""
        raise {
            "tool": ToolError("no such how", argument="how", detail={"exit": 3}),
            "range": ToolError("bad part", argument="how", source_range=(1, 3)),
            "refused": ToolError("not allowed", status=CallStatus.REFUSED),
            "machine": InfrastructureError("server gone"),
            "sandbox": SandboxError("no sandbox"),
            "exit": SystemExit(3),
        }.get(how) or ValueError(f"see https://example.org/x and /root/secret/place/file.py\nsecond line {how}")

    @tool
    def crash(self, how: str = "") -> str:
        """Crash."""
        return {"a": "b"}[how]

    @tool
    def scold(self, word: str) -> str:
        """Work, at a price."""
        self.charge_now(0.3, "rude", argument="word")
        return "well"

    @tool
    def nil(self) -> str:
        """Return half a character."""
        return "a\ud800b"

    @tool
    def odd(self) -> Any:
        """Return what is no JSON."""
        return object()


@pytest.fixture
def desk() -> Desk:
    env = Desk()
    env.reset(seed=0)
    return env


def call(name: str, arguments: str = "{}") -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


def run(env: ToolEnv, text: str):
    env.step(text)
    assert env.last_turn is not None
    return env.last_turn.results


def charged(env: ToolEnv, text: str) -> str:
    (result,) = run(env, text)
    assert result.charge is not None
    return text[result.charge.start : result.charge.end]


def test_schema_comes_from_signature_and_docstring(desk):
    schema = desk.tools["order"].schema
    assert schema.description == "Order an item. It is sent at once."
    assert schema.parameters == {
        "type": "object",
        "properties": {
            "item": {"type": "string", "description": "what to order, by its name"},
            "qty": {"type": "integer", "default": 1, "description": "how many"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["item"],
    }


def test_a_tool_without_parameters_has_an_empty_object(desk):
    assert desk.tools["nothing"].schema.parameters == {"type": "object", "properties": {}}
    assert run(desk, '<tool_call>{"name": "nothing"}</tool_call>')[0].text == "ok"


def test_nested_models_enums_and_dataclasses_arrive_as_objects(desk):
    text = call("many", '{"lines": [{"sku": "oak", "qty": 2}], "unit": "kilo", "place": {"street": "Elm"}}')
    (result,) = run(desk, text)
    assert result.text == '[[{"sku": "oak", "qty": 2}], "kilo", {"street": "Elm", "number": 1}]'


@pytest.mark.parametrize(
    ("name", "arguments", "said", "where"),
    [
        ("order", '{"item": "oak", "qty": "3"}', 'order: argument "qty" must be an integer, found "3"', '"3"'),
        ("order", '{"item": "oak", "qty": true}', 'order: argument "qty" must be an integer, found true', "true"),
        ("order", '{"item": "oak", "qty": 2.5}', 'order: argument "qty" must be an integer, found 2.5', "2.5"),
        ("order", '{"item": 7}', 'order: argument "item" must be text, found 7', "7"),
        ("order", '{"item": "a", "itme": "b"}', 'order: unknown argument "itme", did you mean "item"?', '"b"'),
        ("order", '{"item": "a", "z": 1}', 'order: unknown argument "z" (expected: item, qty, note)', "1"),
        (
            "many",
            '{"lines": [{"sku": "a", "qty": []}]}',
            'many: argument "lines[0].qty" must be an integer, found []',
            "[]",
        ),
        ("many", '{"lines": [{"sku": "a"}]}', 'many: missing argument "qty" in "lines[0]"', '{"sku": "a"}'),
        (
            "many",
            '{"lines": [], "unit": "ton"}',
            "many: argument \"unit\" must be 'kilo' or 'piece', found \"ton\"",
            '"ton"',
        ),
        ("mixed", '{"size": "m"}', "mixed: argument \"size\" must be 's' or 'l', found \"m\"", '"m"'),
        ("mixed", '{"least": 2}', 'mixed: argument "least" must be greater than or equal to 3, found 2', "2"),
        (
            "mixed",
            '{"either": []}',
            'mixed: argument "either" must be an integer, found [] or argument "either" must be text, found []',
            "[]",
        ),
    ],
)
def test_a_wrong_argument_is_named_to_the_model_and_charged_on_its_own_value(desk, name, arguments, said, where):
    text = call(name, arguments)
    (result,) = run(desk, text)
    assert result.status is CallStatus.INVALID_ARGUMENTS
    assert result.text == f"Error: {said}"
    assert result.charge is not None
    assert (text[result.charge.start : result.charge.end], result.charge.amount) == (where, 0.25)
    assert result.charge.reason == "invalid_arguments"


def test_a_missing_argument_charges_the_whole_call(desk):
    text = call("order", '{"qty": 2}')
    assert charged(desk, text) == text
    assert desk.last_results == ['Error: order: missing argument "item"']


def test_many_faults_are_told_shortly(desk):
    (result,) = run(desk, call("order", '{"a": 1, "b": 2, "c": 3, "qty": "x"}'))
    assert result.text.endswith("; and 2 more")
    assert len(result.text) < 300


def test_a_whole_float_is_an_integer_as_json_has_it(desk):
    assert run(desk, call("order", '{"item": "oak", "qty": 3.0}'))[0].text == "3 oak None"
    nested = run(desk, call("many", '{"lines": [{"sku": "a", "qty": 4.0}]}'))[0]
    assert nested.text.startswith('[[{"sku": "a", "qty": 4}]')


def test_an_integer_is_a_number(desk):
    assert '"part": 2.0' in run(desk, call("mixed", '{"part": 2}'))[0].text


def test_text_that_is_no_unicode_is_refused_by_the_check_and_never_comes_back(desk):
    with pytest.raises(ArgumentFault, match="not valid Unicode"):
        desk.tools["order"].bind({"item": "\ud800"})
    assert run(desk, call("nil"))[0].text == "a?b"


def test_results_are_text_as_is_or_compact_json(desk):
    assert run(desk, call("find"))[0].text == "null"
    assert run(desk, call("mixed"))[0].text == '{"size": "s", "part": 1.0, "either": 0, "least": 3}'


def test_a_long_result_is_cut_in_the_middle_and_says_so(desk):
    (result,) = run(desk, call("long"))
    assert result.truncated and result.status is CallStatus.OK
    assert len(result.text) <= 100
    assert result.text.startswith("aaaa") and result.text.endswith("bbbb")
    assert "1000 characters, the middle was left out" in result.text


def test_a_tool_error_is_charged_to_its_argument_at_the_tools_own_amount(desk):
    text = call("fail", '{"how": "tool"}')
    (result,) = run(desk, text)
    assert (result.status, result.text, result.detail) == (CallStatus.TOOL_ERROR, "Error: no such how", {"exit": 3})
    assert result.charge is not None
    assert (text[result.charge.start : result.charge.end], result.charge.amount) == ('"tool"', 0.75)


def test_a_source_range_narrows_the_charge_inside_the_raw_string(desk):
    text = call("fail", '{"how": "r\\u0061nge"}')
    assert charged(desk, text) == "\\u0061n"


def test_a_refusal_keeps_its_status_and_charges_the_call(desk):
    text = call("fail", '{"how": "refused"}')
    (result,) = run(desk, text)
    assert result.status is CallStatus.REFUSED
    assert result.charge is not None and (result.charge.start, result.charge.end) == (0, len(text))


def test_other_exceptions_are_short_text_without_links_paths_or_traceback(desk):
    (result,) = run(desk, call("fail", '{"how": "else"}'))
    assert result.status is CallStatus.TOOL_ERROR
    assert result.text == "Error: ValueError: see  and file.py"
    assert result.charge is not None and result.charge.amount == 0.75


def test_a_tool_that_exits_is_a_tool_error(desk):
    assert run(desk, call("fail", '{"how": "exit"}'))[0].status is CallStatus.TOOL_ERROR


def test_amounts_follow_the_reason(desk):
    assert [r.charge.amount for r in run(desk, call("crash") + call("crush")) if r.charge] == [0.125, 0.5]


@pytest.mark.parametrize("how", ["machine", "sandbox"])
def test_infrastructure_is_never_charged_and_leaves_the_episode_unscored(desk, how):
    messages, reward, terminated, truncated, info = desk.step(call("fail", f'{{"how": "{how}"}}') + call("nothing"))
    assert desk.last_turn is not None
    assert [r.status for r in desk.last_turn.results] == [CallStatus.INFRASTRUCTURE, CallStatus.OK]
    assert all(not r.charges for r in desk.last_turn.results)
    assert (reward, terminated, truncated, info["unscored"], desk.outcome) == (0.0, False, True, True, None)
    assert len(messages) == 2


def test_a_tool_may_charge_its_own_call(desk):
    text = call("scold", '{"word": "fool"}')
    (result,) = run(desk, text)
    assert result.status is CallStatus.OK
    assert [(text[c.start : c.end], c.amount, c.reason) for c in result.charges] == [('"fool"', 0.3, "rude")]


def test_charging_outside_of_a_tool_is_an_error(desk):
    with pytest.raises(EnvError, match="outside of a tool"):
        desk.charge_now(0.1, "x")


def test_a_result_that_is_no_json_is_the_authors_fault(desk):
    with pytest.raises(EnvError, match=r"tool Desk.odd returned a object is neither text nor JSON"):
        desk.step(call("odd"))


def test_a_repaired_call_runs_is_marked_and_may_be_charged():
    env = Desk(repair_charge=0.05)
    env.reset(seed=0)
    text = call("order", '"{\\"item\\": \\"oak\\"}"')
    (result,) = run(env, text)
    assert (result.status, result.text) == (CallStatus.REPAIRED, "1 oak None")
    assert result.charge is not None and result.charge.amount == 0.05
    plain = Desk()
    plain.reset(seed=0)
    assert run(plain, text)[0].charges == ()


def test_zero_charges_nothing():
    env = Desk(charge=0.0, charges={})
    env.reset(seed=0)
    assert run(env, call("order"))[0].charges == ()


def define(source: str) -> type[ToolEnv]:
    names: dict[str, Any] = {"ToolEnv": ToolEnv, "tool": tool, "Any": Any}
    exec(source, names)
    return names["Bad"]


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        ("self, x", "parameter 'x' has no type: write a type hint"),
        ("self, *x: int", "parameter 'x' takes any arguments"),
        ("self, **x: int", "parameter 'x' takes any arguments"),
        ("self, x: int, /", "parameter 'x' is positional-only"),
        ("self, x: ToolEnv", "parameter 'x': .* has no JSON schema"),
        ("x: int", "its first parameter must be `self`"),
    ],
)
def test_a_signature_without_schema_is_refused_when_the_class_is_defined(signature, said):
    with pytest.raises(EnvError, match=r"tool Bad\.act.*" + said):
        define(
            f"class Bad(ToolEnv):\n    @tool\n    def act({signature}) -> str:\n        '''Act.'''\n        return ''\n"
        )


def test_an_undefined_type_is_refused_when_the_environment_is_made():
    bad = define("class Bad(ToolEnv):\n    @tool\n    def act(self, x: 'Missing') -> str:\n        return ''\n")
    with pytest.raises(EnvError, match="type hint that is not defined: name 'Missing'"):
        bad()


def test_a_docstring_that_describes_no_parameter_is_refused():
    body = "'''Act.\n\n        Args:\n            y: what\n        '''"
    with pytest.raises(EnvError, match="describes 'y'"):
        define(
            f"class Bad(ToolEnv):\n    @tool\n    def act(self, x: int) -> str:\n        {body}\n        return ''\n"
        )


@pytest.mark.parametrize("name", ["step", "close", "answer", "charge", "task", "tools", "end", "reward"])
def test_a_tool_may_not_take_a_name_that_the_environment_needs(name):
    with pytest.raises(EnvError, match=rf"tool Bad.{name}: ToolEnv itself has '{name}': name the tool otherwise"):
        define(f"class Bad(ToolEnv):\n    @tool\n    def {name}(self) -> str:\n        return ''\n")


def test_parameters_may_have_any_name():
    class Names(Desk):
        @tool
        def names(self, schema: str, copy: int, model_config: str, json: str = "") -> list[Any]:
            """Take names that pydantic has for itself."""
            return [schema, copy, model_config, json]

    env = Names()
    env.reset(seed=0)
    assert run(env, call("names", '{"schema": "a", "copy": 1, "model_config": "b"}'))[0].text == '["a", 1, "b", ""]'


@pytest.mark.parametrize("options", [{"timeout_s": 0}, {"output_limit": 0}, {"charge": -1.0}, {"charge": float("inf")}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(EnvError, match="expected"):
        tool(**options)


def test_tool_wants_a_plain_method():
    with pytest.raises(EnvError, match="put @tool on a plain def"):
        tool(staticmethod(len))  # type: ignore[arg-type]
    with pytest.raises(EnvError, match="generator"):

        @tool
        def many(self):
            yield 1


def test_a_subclass_inherits_overrides_and_hides_tools():
    class Small(Desk):
        order = None  # type: ignore[assignment]

        def crash(self, how: str = "", why: int = 0) -> str:
            """Crash with a reason."""
            return "fine"

    assert "order" not in Small().tools and "order" in Desk().tools
    assert Small().tools["crash"].schema.parameters["properties"]["why"]["type"] == "integer"
    assert list(Desk().tools)[:3] == ["order", "many", "mixed"]


def test_tools_stay_plain_methods(desk):
    assert desk.order("oak", qty=2) == "2 oak None"


def test_an_instance_may_be_given_further_tools(desk):
    desk.add_tool(
        Tool(desk.tools["nothing"].schema.__class__("echo", "Say it"), lambda env, **said: said, options=ToolOptions())
    )
    assert run(desk, call("echo", '{"a": 1}'))[0].text == '{"a": 1}'
    with pytest.raises(EnvError, match="already has a tool"):
        desk.add_tool(desk.tools["echo"])
    assert "echo" not in Desk().tools


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(["order", "many", "mixed", "fail", "crash", "scold"]), JSON)
def test_no_arguments_ever_raise(name, arguments):
    import json

    env = Desk()
    env.reset(seed=0)
    text = call(name, json.dumps(arguments))
    env.step(text)
    assert env.last_turn is not None
    (result,) = env.last_turn.results
    for charge in result.charges:
        assert 0 <= charge.start < charge.end <= len(text)
