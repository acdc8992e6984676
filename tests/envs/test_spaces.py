"""The message spaces hold what environments and models say, and survive JSON."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.envs import Message, MessageSpace, MessagesSpace


@pytest.mark.parametrize("space", [MessageSpace(), MessageSpace(20), MessagesSpace()])
def test_samples_lie_inside_vary_and_survive_json(space):
    space.seed(3)
    samples = [space.sample() for _ in range(200)]
    assert all(space.contains(sample) and sample in space for sample in samples)
    assert len(set(samples)) > 30
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable(samples)))) == samples


@pytest.mark.parametrize("make", [MessageSpace, MessagesSpace])
def test_a_seed_fixes_the_samples(make):
    one, other = make(), make(seed=5)
    one.seed(5)
    assert [one.sample() for _ in range(20)] == [other.sample() for _ in range(20)]


@settings(deadline=None)
@given(st.text())
def test_any_text_is_a_message(text):
    assert text in MessageSpace()
    assert MessageSpace().from_jsonable(json.loads(json.dumps(MessageSpace().to_jsonable([text])))) == [text]


def test_what_is_no_text_lies_outside():
    assert 3 not in MessageSpace() and None not in MessageSpace() and b"x" not in MessageSpace()
    assert "abc" not in MessageSpace(2)
    assert [Message("user", "x")] not in MessagesSpace() and ("x",) not in MessagesSpace()
    assert (Message("user", 3),) not in MessagesSpace()  # type: ignore[arg-type]


def test_spaces_are_equal_by_content():
    assert MessageSpace() == MessageSpace() != MessageSpace(3)
    assert MessagesSpace() == MessagesSpace() != MessageSpace()
    assert hash(MessageSpace(3)) == hash(MessageSpace(3))
    assert repr(MessageSpace(3)) == "MessageSpace(3)"


@pytest.mark.parametrize("space", [MessageSpace(), MessagesSpace()])
def test_nothing_can_be_masked(space):
    with pytest.raises(ValueError, match="no fixed alphabet"):
        space.sample(mask=1)
