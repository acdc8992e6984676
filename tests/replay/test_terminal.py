import io
import subprocess
import sys

import pytest
from rich.console import Console
from sample_episodes import write_shop_run

from accredit.credit.traces import StoredEpisode, open_run
from accredit.replay import show


@pytest.fixture(scope="module")
def episode(tmp_path_factory: pytest.TempPathFactory) -> StoredEpisode:
    return open_run(write_shop_run(tmp_path_factory.mktemp("run"))).episode("ep-0")


def printed(episode: StoredEpisode, ledger: int = 0, **settings) -> str:
    console = Console(file=io.StringIO(), width=200, **settings)
    show(episode, console, ledger)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_off_a_terminal_the_text_is_plain_and_whole(episode: StoredEpisode) -> None:
    text = printed(episode)
    assert "\x1b" not in text
    for span in episode.trajectory.spans:
        assert b"".join(episode.token_bytes[span.start : span.end]).decode() in text


def test_charges_are_listed_with_reason_status_and_answer(episode: StoredEpisode) -> None:
    text = printed(episode)
    assert "charge -0.1 invalid_arguments on tokens [" in text
    assert "price ended invalid_arguments: unknown item" in text
    assert "reward 1.000 · done · 8 turns" in text


def test_credit_shows_as_colour_and_underline_and_masked_text_is_dim(episode: StoredEpisode) -> None:
    text = printed(episode, force_terminal=True, color_system="truecolor")
    positive, negative, dim = "\x1b[4;38;2;146;184;220m", "\x1b[21;38;2;224;162;106m", "\x1b[2m"
    assert positive in text and negative in text and dim in text


def test_the_ledger_lists_terms_that_sum_to_the_credit(episode: StoredEpisode) -> None:
    text = printed(episode, ledger=8)
    first = episode.trajectory.decisions[0].start
    assert f"ledger of tokens [{first}, {first + 8})" in text and "trained: sampled by the policy" in text
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    assert [int(row[0]) for row in rows] == list(range(first, first + 8))
    for row in rows:
        total, _, terms = row[4].partition(" = ")
        added = sum(float(term.split()[-1]) for term in terms.split(", "))
        assert added == pytest.approx(float(total), abs=2e-4)  # each is rounded to 4 digits


def test_masked_tokens_in_the_ledger_say_why(episode: StoredEpisode) -> None:
    text = printed(episode, ledger=60)
    assert "masked: written by the environment" in text and "masked: template, nobody sampled it" in text


def test_terminal_control_characters_are_made_visible(episode: StoredEpisode) -> None:
    tokens = [b"\x1b[2J" if i == 30 else token for i, token in enumerate(episode.token_bytes)]
    hostile = StoredEpisode(episode.trajectory, episode.credit, tokens, episode.step, episode.split)
    text = printed(hostile)
    assert "\x1b" not in text and "\\u001b[2J" in text


def test_the_room_is_cheap_to_import() -> None:
    code = "import sys, accredit.replay; sys.exit('pyarrow' in sys.modules or 'rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
