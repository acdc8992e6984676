"""Each view of the page in a real browser: what it shows, its keys, and how one gets from it to the next."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opened_page import VIEWS, Opened, inked
from sample_episodes import shop_group

from accredit.credit import Credit, Ledger
from accredit.credit.traces import StoredEpisode, open_run
from accredit.replay.html_file import page_of

S4, S12 = "&episode=ep-0&step=4", "&episode=ep-0&step=12"


def test_a_group_has_a_strip_a_rollout_on_one_scale(opened: Opened, two_steps: Path) -> None:
    page = opened.goto(two_steps, "#view=group" + S12)
    rows = page.locator(".rollouts tbody tr")
    assert rows.count() == 6 and all(pixels > 500 for pixels in inked(page, ".rollouts canvas"))
    first = rows.nth(0).inner_text()
    assert "1.000" in first and "−0.20 (2)" in first and "reference" in first
    assert "unscored" in rows.nth(5).inner_text() and "infrastructure" in rows.nth(5).inner_text()
    assert "mean reward 0.570" in page.locator(".view-head").inner_text()
    before = page.locator("#strip-scale").inner_text()
    opened.press("]", "]")
    after = page.locator("#strip-scale").inner_text()
    number = lambda text: float(text.split("±")[1].split()[0])  # noqa: E731
    assert number(after) == pytest.approx(2 * number(before), rel=0.1)
    assert "× 2" in page.locator("#legend").inner_text()


def test_from_a_group_a_click_opens_and_a_shift_click_compares(opened: Opened, two_steps: Path) -> None:
    page = opened.goto(two_steps, "#view=group" + S12)
    page.locator(".open-rollout").nth(2).click()
    opened.wait("episode")
    assert "0.600" in page.locator("#heading").inner_text()
    page.go_back()
    opened.wait("group")
    page.locator(".open-rollout").nth(1).click(modifiers=["Shift"])
    opened.wait("compare")
    assert page.locator(".column-head .open-rollout").all_inner_texts() == ["ep-0", "ep-1"]
    page.goto(page.url.replace("view=compare", "view=group"))
    opened.wait("group")
    for place in (0, 2, 3):
        page.locator(".rollouts input").nth(place).check()
    page.click("#compare-chosen")
    opened.wait("compare")
    assert page.locator(".column-head .open-rollout").all_inner_texts() == ["ep-0", "ep-2", "ep-3"]


def test_where_two_rollouts_diverge_is_a_link(opened: Opened, two_steps: Path) -> None:
    page = opened.goto(two_steps, "#view=group" + S12)
    group = shop_group()[1].trajectories
    unlike = group[0].token_ids[: len(group[1])] != group[1].token_ids[: len(group[0])][: len(group[0])]
    expected = int(np.argmax(unlike))
    assert page.locator(".rollouts tbody tr").nth(1).locator(".link").inner_text() == str(expected)
    page.locator(".rollouts tbody tr").nth(1).locator(".link").click()
    opened.wait("episode", 7)
    assert opened.token() == expected


def test_compare_aligns_turns_and_prices_one_rollout_under_two_functions(opened: Opened, two_steps: Path) -> None:
    page = opened.goto(two_steps, "#view=compare" + S12)
    heads = page.locator(".column-head")
    assert heads.all_inner_texts()[1].startswith("ep-3")  # the rollout whose reward is farthest
    assert "The ids are the same up to token" in page.locator("#messages").inner_text()
    page.click("#two-functions")
    page.wait_for_selector(".column-head:nth-child(2) b:text('rloo')")
    assert [text.split()[0] for text in heads.all_inner_texts()] == ["ep-0", "ep-0"]
    assert "one scale for all columns" in page.locator("#legend").inner_text()
    sums = page.locator(".columns-row:nth-child(3) .bar-value").all_inner_texts()
    stored = open_run(two_steps.parent / "shop").episode("ep-0", 12)
    assert stored.credit is not None
    span = stored.trajectory.decisions[0]
    assert float(sums[0].split()[1].replace("−", "-")) == pytest.approx(
        stored.credit.credit.total[span.start : span.end].sum(), abs=1e-3
    )
    assert sums[0] != sums[1]
    opened.press("n")
    assert page.locator('.sum[data-quantity="rloo/credit"]').is_visible()
    assert "with=12%2Fep-0&with=12%2Fep-0%40rloo" in page.url


def test_compare_puts_the_counterfactual_beside_the_factual_and_offers_other_steps(
    opened: Opened, two_steps: Path
) -> None:
    page = opened.goto(two_steps, "#view=compare" + S4)
    heads = page.locator(".column-head").all_inner_texts()
    assert heads[1].startswith("ep-2") and "pair 0, turn 2 decided anew" in heads[1]
    options = page.locator("#beside option").all_inner_texts()
    other = next(text for text in options if text.startswith("step 12 · ep-0"))
    page.select_option("#beside", label=other)
    page.wait_for_selector(".column-head:nth-child(3)")
    assert "step 12" in page.locator(".column-head").nth(2).inner_text()
    page.locator(".column-head .link").nth(0).click()
    opened.until("document.querySelectorAll('.column-head').length === 2")


def seen(page: Any) -> int:
    return int(page.locator("#seek").input_value())


def test_a_replay_shows_what_was_seen_and_nothing_of_the_future(opened: Opened, shop: Path) -> None:
    page = opened.goto(shop, "#view=replay" + S12)
    _, group, _ = shop_group()
    trajectory = group.trajectories[0]
    whole = open_run(shop.parent / "shop").episode("ep-0")
    upto = lambda n: b"".join(whole.token_bytes[:n]).decode()  # noqa: E731
    begin = trajectory.decisions[0].start
    assert seen(page) == begin and opened.text() == upto(begin)
    opened.press(".", ".", ".")
    assert seen(page) == begin + 3 and opened.text() == upto(begin + 3)
    page.evaluate("document.querySelectorAll('.chunk').forEach((c) => (c.firstChild.kept = true))")
    opened.press(">")
    assert seen(page) == trajectory.decisions[1].start and opened.text() == upto(trajectory.decisions[1].start)
    assert page.evaluate("[...document.querySelectorAll('.chunk')].every((c) => c.firstChild.kept)")  # only appended
    opened.press("<")
    assert seen(page) == begin and opened.text() == upto(begin)
    opened.press("G")
    assert opened.text() == upto(len(trajectory)) and page.locator(".end").is_visible()
    opened.press("g", ",")
    assert seen(page) == begin


def test_a_replay_opened_on_a_hidden_token_scrolls_to_the_text_before_it(opened: Opened, shop: Path) -> None:
    opened.page.set_viewport_size({"width": 390, "height": 844})
    hidden = [span for span in shop_group()[1].trajectories[0].spans if span.kind == "scaffold"][-2]
    page = opened.goto(shop, f"#view=replay&episode=ep-0&step=12&token={hidden.start}")
    newest = "[...document.querySelectorAll('.chunk')].findLast((c) => c.offsetParent).getBoundingClientRect().bottom"
    assert page.evaluate("scrollY") > 0
    assert page.evaluate(f"{newest} > document.querySelector('.player').getBoundingClientRect().bottom")
    assert page.evaluate(f"{newest} <= document.getElementById('panel').getBoundingClientRect().top")


def test_as_lived_hides_the_credit_and_hindsight_shows_it(opened: Opened, shop: Path) -> None:
    page = opened.goto(shop, "#view=replay" + S12)
    opened.press("e")
    assert "invalid_arguments" in page.locator("#tool").inner_text()
    assert "−0.10" in page.locator("#tool").inner_text()
    opened.press("p")
    assert any(name.startswith(("pos-", "neg-")) for name in opened.drawn())
    assert page.locator("#ledger .sum").count() > 0
    opened.press("v")
    page.wait_for_selector(".lived")
    assert not any(name.startswith(("pos-", "neg-", "zero")) for name in opened.drawn())
    assert page.locator("#ledger .sum").count() == 0
    assert page.locator("#messages .charge:visible, #messages .turn-credit:visible").count() == 0
    assert "reward" not in page.locator("#heading").inner_text()
    assert page.locator("#lived").inner_text() == "As lived"


def test_the_answer_of_a_tool_comes_after_the_call(opened: Opened, shop: Path) -> None:
    page = opened.goto(shop, "#view=replay" + S12)
    trajectory = shop_group()[1].trajectories[0]
    page.select_option("#unit", "call")
    opened.until("location.hash.includes('by=call')")
    opened.press(".")
    assert seen(page) == trajectory.calls[0].end
    assert '"item": "oak"' in page.locator("#tool").inner_text()
    assert "answered" not in page.locator("#tool").inner_text()
    opened.press(".")
    assert '"price": 5' in page.locator("#tool").inner_text() and "ok" in page.locator("#tool").inner_text()


@pytest.mark.parametrize("unit", ["token", "turn", "clock"])
def test_space_plays_and_pauses_by_every_unit(opened: Opened, shop: Path, unit: str) -> None:
    page = opened.goto(shop, f"#view=replay&by={unit}" + S12)
    start = seen(page)
    page.select_option("#speed", "4")
    page.locator("#messages").focus()
    opened.press(" ")
    opened.until(f"Number(document.getElementById('seek').value) > {start + 2}")
    opened.press(" ")
    stopped = seen(page)
    page.wait_for_timeout(120)
    assert seen(page) == stopped and page.locator("#play").inner_text() == "Play"
    assert " s" in page.locator("#position").inner_text()


def test_space_in_an_episode_starts_its_replay_at_the_token(opened: Opened, shop: Path) -> None:
    page = opened.goto(shop, S12.replace("&", "#", 1))
    opened.press("n", " ")
    opened.wait("replay")
    assert seen(page) == opened.token() + 1


def test_the_run_draws_its_curves_and_scrubs_through_its_steps(opened: Opened, two_steps: Path) -> None:
    page = opened.goto(two_steps, "#view=run&step=4")
    titles = page.locator("figcaption b").all_inner_texts()
    assert titles[:2] == ["Reward", "Held-out success"] and len(titles) == 7
    assert "Tokens masked" in titles and "Credit on call and on thought tokens" in titles
    masked = page.locator(".figure-box", has_text="Tokens masked").inner_text()
    assert "0.750" in masked and "step 4" in masked and "step 12" in masked and "share" in masked
    assert "Groups of step 4" in page.locator("#messages").inner_text()
    opened.press("l")
    opened.until("document.body.textContent.includes('Groups of step 12')")
    opened.press("h")
    opened.until("document.body.textContent.includes('Groups of step 4')")
    page.locator("#step").focus()
    opened.press("ArrowRight")
    opened.until("document.body.textContent.includes('Groups of step 12')")
    page.locator("tbody .open-rollout").first.click()
    opened.wait("group")
    assert "boards-40/s12" in page.locator(".view-head").inner_text()


def test_checks_hold_for_a_sound_group_and_name_the_token_of_a_broken_one(
    opened: Opened, shop: Path, tmp_path: Path
) -> None:
    page = opened.goto(shop, "#view=checks" + S12)
    assert page.locator(".check.bad").count() == 0 and page.locator(".checks tbody tr").count() == 3 + 6
    words, group, credits = shop_group()
    trajectory = group.trajectories[0]
    at = int(np.argmin(trajectory.credit_mask[200:])) + 200
    paid = {"outcome": credits[0].advantage.total.copy()}
    paid["outcome"][at] = 0.5
    broken = Credit(credits[0].credit, Ledger(len(trajectory), paid))
    episode = StoredEpisode(trajectory, broken, words.token_bytes(trajectory.token_ids.tolist()), 12, "train")
    file = tmp_path / "broken.html"
    file.write_text(page_of([episode], encode=lambda texts: [[1] for _ in texts]), encoding="utf-8")
    page = opened.goto(file, "#view=checks")
    assert "1 failure" in page.locator(".view-head").inner_text()
    assert f"token {at} is masked and has an advantage" in page.locator(".check.bad").inner_text()
    assert "of 8 decisions" in page.locator(".check.look").inner_text()
    page.locator(".check.bad .link").click()
    opened.wait("episode")
    assert opened.token() == at and "masked" in page.locator("#ledger > dl").inner_text()


def test_the_digits_open_the_views_and_the_address_holds_them(opened: Opened, two_steps: Path) -> None:
    page = opened.goto(two_steps, "#find=reward>0.5&scale=2&mode=tokens" + S12)
    address = ""
    for digit, view in enumerate(VIEWS, 1):
        opened.press(str(digit))
        opened.wait(view)
        opened.until(f"location.hash.includes('view={view}')")
        address = page.url
        assert "find=reward%3E0.5" in address and "scale=2" in address and "mode=tokens" in address
        assert page.locator("#tabs [aria-current]").inner_text().lower() == view
    page.goto("about:blank")
    page.goto(address)
    opened.wait(VIEWS[-1])
    assert page.locator("#query").input_value() == "reward>0.5"
    page.go_back()


def test_h_and_l_go_to_the_same_task_at_other_steps(opened: Opened, two_steps: Path) -> None:
    page = opened.goto(two_steps, S12.replace("&", "#", 1))
    opened.press("h")
    opened.wait("episode", 0)
    assert "step 4" in page.locator("#heading").inner_text()
    opened.press("l")
    opened.until("document.getElementById('heading').textContent.includes('step 12')")


def test_token_mode_shows_the_template_and_copies_ids(opened: Opened, shop: Path) -> None:
    page = opened.goto(shop, S12.replace("&", "#", 1))
    assert page.locator(".message.scaffold:visible").count() == 0
    opened.press("t")
    page.wait_for_selector(".message.scaffold:visible")
    assert "even" in opened.drawn() and page.locator("#mode").get_attribute("aria-pressed") == "true"
    copied = page.evaluate(
        """() => { const node = document.querySelector('.decision .chunk').firstChild;
        getSelection().setBaseAndExtent(node, 0, node, 6);
        const data = new DataTransfer();
        document.dispatchEvent(new ClipboardEvent('copy', { clipboardData: data, cancelable: true }));
        return data.getData('text/plain'); }"""
    )
    trajectory = shop_group()[1].trajectories[0]
    start = trajectory.decisions[0].start
    assert copied == " ".join(map(str, trajectory.token_ids[start : start + 2]))  # "I", " need"


@pytest.mark.parametrize("view", VIEWS)
def test_no_view_scrolls_sideways_and_every_control_has_a_name(opened: Opened, two_steps: Path, view: str) -> None:
    for width in (390, 1280):
        opened.page.set_viewport_size({"width": width, "height": 844})
        page = opened.goto(two_steps, f"#view={view}&token=204" + S12)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.emulate_media(forced_colors="active", reduced_motion="reduce")
    nameless = page.evaluate(
        """[...document.querySelectorAll('button, input, select, canvas, [role=region], summary, svg[role=img]')]
        .filter((e) => !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length || e.title))
        .map((e) => e.outerHTML)"""
    )
    assert nameless == []
    page.locator("body").press("Tab")
    assert page.evaluate("document.activeElement.id") == "skip"
    for _ in range(12):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement !== document.body")
    page.emulate_media(media="print")
    assert not page.locator("#side").is_visible() and page.locator("#messages").is_visible()
