"""*As lived*: nothing on the screen tells what the policy did not know where the replay stands."""

import re
from pathlib import Path
from typing import Any

import pytest
from opened_page import WIDE, Opened
from sample_episodes import shop_group

from accredit.credit.traces import open_run

# All that a reader, a screen reader or a hand over the page can come to know: text, names, tooltips, values, address.
TOLD = """() => {
  const seen = [...document.querySelectorAll('body *')].filter((e) => e.checkVisibility({ visibilityProperty: true }));
  const names = ['aria-label', 'aria-valuetext', 'aria-valuemax', 'title', 'placeholder', 'max', 'alt'];
  const told = seen.flatMap((e) => [...names.map((name) => e.getAttribute(name)), e.value ?? null]);
  const fills = seen.map((e) => e.style.getPropertyValue('--share'));
  return [document.body.innerText, decodeURIComponent(location.href), document.title, ...told, ...fills]
    .filter(Boolean).join('\\n');
}"""
OUTCOMES = re.compile(
    r"reward|outcome|charged|charges|unscored|invalid_arguments|infrastructure|[−+]0\.|[✓✗]|\d\.\d\d\d"
)


def told(page: Any) -> str:
    found = page.evaluate(TOLD)
    return re.sub(r"-?\d+\.\d+ nats|Credit is hidden: as lived|file:\S+/", "", found.replace("−", "-"))


def outcomes(text: str) -> list[str]:
    return re.findall(OUTCOMES.pattern.replace("−", "-"), text)


@pytest.fixture
def lived(opened: Opened, shop: Path) -> Opened:
    opened.goto(shop, "#view=replay&episode=ep-0&step=12&lived=1&find=reward<2&overlay=credit:outcome&scale=2")
    opened.until("document.documentElement.classList.contains('lived')")
    opened.until("!location.hash.includes('find')")
    return opened


def seek(opened: Opened, token: int) -> None:
    opened.page.evaluate(f"location.hash = location.hash.replace(/token=\\d+/, '') + '&token={token - 1}'")
    opened.until(f"document.getElementById('seek').value === '{token}'")


def test_at_no_turn_is_anything_of_the_outcome_or_of_what_comes_told(lived: Opened, shop: Path) -> None:
    trajectory = shop_group()[1].trajectories[0]
    whole = open_run(shop.parent / "shop").episode("ep-0")
    length = f"{len(trajectory):,}"
    for decision in trajectory.decisions:
        seek(lived, decision.start + 1)
        text = told(lived.page)
        assert outcomes(text) == [] and "done" not in text.split("ep-0", 1)[0], decision
        assert length not in text and str(len(trajectory)) not in text
        assert f"{len(trajectory.decisions)} turns" not in text and "of 7" not in text
        rest = b"".join(whole.token_bytes[decision.start + 1 : decision.end]).decode().split("<tool_call>")[0].strip()
        assert len(rest) < 5 or rest not in text
        assert lived.page.locator(".call:visible, .strip:visible, .end:visible").count() == 0
        assert lived.page.locator("#seek").get_attribute("max") == str(decision.start + 1)


def test_the_whole_text_in_sight_is_what_the_policy_had_read_and_written(lived: Opened, shop: Path) -> None:
    trajectory = shop_group()[1].trajectories[0]
    whole = open_run(shop.parent / "shop").episode("ep-0")
    at = trajectory.decisions[2].start + 3
    seek(lived, at)
    lived.press("t")
    copied = lived.page.evaluate(
        """() => { getSelection().selectAllChildren(document.body);
        const data = new DataTransfer();
        document.dispatchEvent(new ClipboardEvent('copy', { clipboardData: data, cancelable: true }));
        return data.getData('text/plain'); }"""
    )
    assert copied == " ".join(map(str, trajectory.token_ids[:at]))
    assert lived.text() == b"".join(whole.token_bytes[:at]).decode()


def test_the_other_rollouts_are_names_only_and_come_back_whole_in_hindsight(lived: Opened) -> None:
    page = lived.page
    assert page.locator("#episodes .episode").all_inner_texts() == [
        f"ep-{i}" for i in range(5)
    ]  # as filtered, which is not told
    assert not page.locator("#query").is_visible() and page.locator("#found").inner_text() == ""
    assert not page.locator("#overlay").is_visible() and not page.locator("#legend").is_visible()
    lived.press("v")
    lived.until("!document.documentElement.classList.contains('lived')")
    assert "0.60" in page.locator("#episodes .episode").nth(2).inner_text()
    assert page.locator("#query").input_value() == "reward<2" and "5 of 6" in page.locator("#found").inner_text()
    assert "reward 1.000" in page.locator("#heading").inner_text().replace("\n", " ")
    assert page.locator("#overlay").input_value() == "credit:outcome" and page.locator(".strip").is_visible()
    lived.until("location.hash.includes('find=reward')")


def test_the_answer_is_known_when_all_of_it_was_read(lived: Opened) -> None:
    trajectory = shop_group()[1].trajectories[0]
    answer = next(span for span in trajectory.spans if span.kind == "feedback")
    seek(lived, answer.end - 1)
    assert '"item": "oak"' in lived.page.locator("#tool").inner_text()
    assert "}" == lived.page.locator("#tool").inner_text().strip()[-1]  # the arguments are the last that is told
    seek(lived, answer.end)
    told_of = lived.page.locator("#tool").inner_text()
    assert '"price": 5' in told_of and "call 1, turn 0" in told_of and "ms" not in told_of


def test_keys_lead_to_nothing_that_the_policy_did_not_know(lived: Opened) -> None:
    before = lived.page.locator("#seek").input_value()
    lived.press("n", "e", "p", "E", "c", "/")
    assert lived.page.locator("#seek").input_value() == before and outcomes(told(lived.page)) == []


def test_at_the_end_the_stop_is_told_and_the_outcome_is_not(lived: Opened) -> None:
    lived.press("G")
    assert "ended: done" in lived.page.locator(".end").inner_text()
    assert outcomes(told(lived.page)) == []
    assert lived.page.locator("#seek").get_attribute("max") == str(len(shop_group()[1].trajectories[0]))
    lived.press("v")
    lived.until("document.querySelector('.end').innerText.includes('outcome 1.000')")


def test_a_narrow_screen_tells_no_more(lived: Opened) -> None:
    lived.page.set_viewport_size({"width": 390, "height": 844})
    seek(lived, shop_group()[1].trajectories[0].decisions[3].start)
    lived.page.click("#side-button")
    lived.until("document.querySelector('#episodes .episode')?.checkVisibility()")
    assert outcomes(told(lived.page)) == []
    lived.page.set_viewport_size(WIDE)
