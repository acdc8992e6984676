"""The filter language on the page, the search over a group's text, and the list of half a million episodes."""

import json
from pathlib import Path

import numpy as np
import pytest
from filter_examples import EXAMPLES, FROM_EPISODES, REFUSED, kept
from opened_page import Opened
from sample_episodes import shop_group

from accredit.credit import Group
from accredit.credit.traces import IndexRow, StoredEpisode
from accredit.replay.bundle import bundle
from accredit.replay.listing import row_of
from accredit.replay.pack import Shown, block, episode_block, in_base64

ROWS: list[IndexRow] = []


def rows() -> list[IndexRow]:
    if not ROWS:
        words, group, credits = shop_group()
        for t, c in zip(group.trajectories, credits, strict=True):
            ROWS.append(row_of(StoredEpisode(t, c, words.token_bytes(t.token_ids.tolist()), 12, "train")))
    return ROWS


SHOWN = "[...document.querySelectorAll('#episodes .name')].map((name) => name.textContent).join()"


def test_the_page_keeps_what_where_keeps(opened: Opened, two_steps: Path) -> None:
    page = opened.goto(two_steps)
    for query, expected in EXAMPLES.items():
        names = [name for _, name in kept(expected)]
        page.locator("#query").fill(query)
        opened.until(f"new URLSearchParams(location.hash.slice(1)).get('find') === {json.dumps(query or None)}")
        opened.until(f"{SHOWN} === '{','.join(names)}'")
        assert page.locator("#found").inner_text() == f"{len(names)} of 12 episodes", query


def test_what_no_listing_answers_keeps_nothing_and_says_so(opened: Opened, two_steps: Path) -> None:
    page = opened.goto(two_steps)
    for query in FROM_EPISODES:
        page.locator("#query").fill(query)
        opened.until("document.getElementById('found').textContent.includes('not in this listing, so nothing matches')")
        assert page.locator("#found").inner_text().startswith("0 of 12"), query
        page.locator("#query").fill("")
        opened.until("document.getElementById('found').textContent === '12 of 12 episodes'")


def test_a_wrong_word_says_what_was_expected_and_found(opened: Opened, two_steps: Path) -> None:
    page = opened.goto(two_steps)
    for query, told in REFUSED.items():
        page.locator("#query").fill(query)
        opened.until(f"document.getElementById('found').textContent.includes({json.dumps(told)})")
    page.locator("#query").fill("rewrad<0")
    opened.until(
        "document.getElementById('found').textContent.includes('rewrad<0 is searched in the text: its field is')"
    )
    page.locator("#query").fill("/[/")
    opened.until("document.getElementById('found').textContent.includes('regular expression')")


def test_words_that_join_conditions_are_searched_where_they_join_none(opened: Opened, shop: Path) -> None:
    page = opened.goto(shop)
    page.locator("#query").fill("turns>5 and")
    opened.until("document.getElementById('found').textContent.startsWith('2 of 6 episodes · ')")
    assert page.locator("#hits mark").first.inner_text() == "and"


def test_the_slash_searches_the_text_of_the_group_and_a_hit_leads_to_its_token(opened: Opened, shop: Path) -> None:
    page = opened.goto(shop)
    opened.press("/")
    page.keyboard.type('"geht nicht"')
    page.wait_for_selector("#hits .hit")
    assert "2 hits in the text of 6 rollouts" in page.locator("#found").inner_text()
    page.locator("#query").press("Escape")
    page.locator("#query").press("Escape")
    opened.until("document.getElementById('hits').hidden")
    page.locator("#query").fill("/gr.{1,2}er\\s+geht/i turns<5")
    opened.until("document.getElementById('found').textContent.startsWith('3 of 6 episodes · 2 hits')")
    page.locator("#hits .hit").nth(1).click()
    opened.wait("episode", 3)
    group = shop_group()[1].trajectories[3]
    assert group.decisions[2].start <= opened.token() < group.decisions[2].end
    assert page.locator(".token").inner_text().strip().startswith("gr")


def test_j_and_k_walk_through_the_filtered_rollouts_and_e_through_their_failures(opened: Opened, shop: Path) -> None:
    page = opened.goto(shop, "#find=error:invalid")
    opened.wait("episode", 0)
    opened.press("J")
    opened.wait("episode", 3)
    opened.press("K")
    opened.wait("episode", 0)
    opened.press("e", "e", "e")
    opened.wait("episode", 3)
    opened.until("document.activeElement.textContent.startsWith('✗')")
    assert page.locator("#ledger .why").is_visible()


def half_a_million(path: Path) -> Path:
    """Write a page whose listing has 500,000 rows; only the first has its tokens in the file."""
    count = 500_000
    words, group, credits = shop_group()
    t = Group(group.trajectories[:1]).trajectories[0]
    episode = StoredEpisode(t, credits[0], words.token_bytes(t.token_ids.tolist()), 12, "train")
    rng = np.random.default_rng(0)
    ids = [f"s{i // 64:06}-g{i // 8 % 8:03}-m{i % 8:02}".encode() for i in range(count)]
    ids[0] = t.episode_id.encode()
    member = np.arange(count, dtype="<i4")
    zero = np.zeros(count, dtype="<i4")
    tables = {
        "split": ["train"], "group": [f"s{g // 8:06}-g{g % 8:03}" for g in range(count // 8)],
        "env": ["accredit/Shop-v0"], "task": ["boards"], "stop": ["done"],
    }  # fmt: skip
    columns = {
        "id_length": np.array([len(name) for name in ids], dtype="<u4"),
        "id": np.frombuffer(b"".join(ids), dtype="u1"),
        "step": member // 64,
        "split": zero, "group": member // 8, "env": zero, "task": zero, "stop": zero,
        "reward": rng.random(count).astype("<f4"),
        "turns": rng.integers(1, 12, count).astype("<i4"),
        "tokens": rng.integers(300, 9000, count).astype("<i4"),
        "charges": rng.integers(0, 3, count).astype("<i4"),
    }  # fmt: skip
    listing = block({"rows": count, "next": 0, "tables": tables}, columns, level=1)
    run = {"title": "large", "notice": "", "live": False, "metrics": [], "functions": []}
    packed = in_base64(episode_block(Shown(episode)))
    path.write_text(bundle("large", run, in_base64(listing), [packed]), encoding="utf-8")
    return path


def test_half_a_million_episodes_are_listed_filtered_and_scrolled(opened: Opened, tmp_path: Path) -> None:
    page = opened.goto(half_a_million(tmp_path / "large.html"))
    assert "500,000 of 500,000 episodes" in page.locator("#found").inner_text()
    assert page.locator("#episodes .episode").count() < 40
    page.evaluate("() => { const list = document.getElementById('episodes'); list.scrollTop = list.scrollHeight; }")
    opened.until("document.querySelector('#episodes .window').textContent.includes('s007812-g003-m07')")
    page.locator("#query").fill("reward>0.999 turns=11 charges=0")
    opened.until("document.getElementById('found').textContent.match(/^[0-9]+ of 500,000/)")
    page.locator("#query").fill("error:timeout")
    opened.until("document.getElementById('found').textContent.includes('error: not in this listing')")


@pytest.mark.parametrize("known", [True, False])
def test_a_listing_without_what_only_readers_know_still_lists(opened: Opened, tmp_path: Path, known: bool) -> None:
    from dataclasses import replace

    from accredit.replay.listing import listing_block

    plain = [row if known else replace(row, summary=None) for row in rows()]
    words, group, credits = shop_group()
    packed = [
        in_base64(episode_block(Shown(StoredEpisode(t, c, words.token_bytes(t.token_ids.tolist()), 12, "train"))))
        for t, c in zip(group.trajectories, credits, strict=True)
    ]
    run = {"title": "x", "notice": "", "live": False, "metrics": [], "functions": []}
    file = tmp_path / "plain.html"
    file.write_text(bundle("x", run, in_base64(listing_block(plain)), packed), encoding="utf-8")
    page = opened.goto(file, "#view=run&find=tool:price")
    kept = sum("price" in row.summary.tools for row in plain if row.summary is not None)
    assert page.locator("#found").inner_text().startswith(f"{kept} of 6 episodes")
    assert ("not in this listing" in page.locator("#found").inner_text()) != known
    titles = page.locator("figcaption b").all_inner_texts()
    assert ("Credit on call and on thought tokens" in titles) == known
