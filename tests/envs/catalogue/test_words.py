"""The word lists: distinct, and never part of other text."""

import re

import pytest

from accredit.envs import make
from accredit.envs.catalogue.words import ITEMS, NAMES, WORDS
from accredit.envs.toolprompt import tools_text

ALL = (*WORDS, *ITEMS, *NAMES)


def test_the_lists_share_no_word_and_hold_enough():
    assert len(set(ALL)) == len(ALL)
    assert len(WORDS) >= len(ITEMS) + len(NAMES)
    assert all(re.fullmatch(r"[a-z]+", word) for word in ALL)


def test_no_word_is_part_of_another_one():
    assert [(one, other) for one in ALL for other in ALL if one != other and one in other] == []


@pytest.mark.parametrize("name", ["Shop-v0", "Arithmetic-v0", "Chain-v0"])
def test_no_word_is_part_of_another_word_of_a_prompt(name):
    env = make(name)
    for level in env.levels:
        for seed in range(30):
            messages, _ = env.reset(seed=seed, options={"level": level})
            text = tools_text(env.schemas, "signature") + " ".join(message.content for message in messages)
            others = set(re.findall(r"[a-z_]+", text.lower())) - set(ALL)
            assert [(word, other) for word in ALL for other in others if word in other] == []
