import dataclasses
import io
import re
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console
from sample_episodes import write_shop_run

from accredit.credit import Credit, Ledger
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


def ledger_rows(text: str) -> list[list[str]]:
    lines = text[text.index("ledger of tokens") :].splitlines()[1:]
    return [re.split(r" {2,}", line.strip()) for line in lines]


def test_the_ledger_lists_terms_that_sum_to_the_credit(episode: StoredEpisode) -> None:
    text = printed(episode, ledger=8)
    t = episode.trajectory
    first = t.decisions[0].start
    assert f"ledger of tokens [{first}, {first + 8})" in text and "trained: sampled by the policy" in text
    head, *rows = ledger_rows(text)
    assert head == ["position", "token", "id", "logprob", "reward", "credit", "advantage", "mask"]
    assert [int(row[0]) for row in rows] == list(range(first, first + 8))
    for row in rows:
        assert float(row[-4]) == pytest.approx(t.logprobs[int(row[0])], abs=1e-3)
        for cell in row[-3:-1]:
            total, _, terms = cell.partition(" = ")
            added = sum(float(term.split()[-1]) for term in terms.split(", "))
            assert added == pytest.approx(float(total), abs=2e-4)  # each is rounded to 4 digits


def test_the_ledger_says_where_rewards_were_given(episode: StoredEpisode) -> None:
    t = episode.trajectory
    rows = ledger_rows(printed(episode, ledger=len(t)))
    given = {int(row[0]) for row in rows[1:] if any("(outcome)" in cell for cell in row)}
    assert given == {t.decisions[-1].end - 1}


def test_off_a_terminal_no_row_of_the_ledger_is_folded(episode: StoredEpisode) -> None:
    console = Console(file=io.StringIO(), width=40)
    show(episode, console, 6)
    assert isinstance(console.file, io.StringIO)
    assert len(ledger_rows(console.file.getvalue())) == 7


def test_masked_tokens_in_the_ledger_say_why(episode: StoredEpisode) -> None:
    text = printed(episode, ledger=60)
    assert "masked: written by the environment" in text and "masked: template, nobody sampled it" in text


def test_the_ledger_has_what_the_update_computed_and_a_dash_where_it_did_not_look(episode: StoredEpisode) -> None:
    assert "ratio" not in printed(episode, ledger=9)
    t = episode.trajectory
    at = t.decisions[0].start
    trainer = np.where(np.arange(len(t)) == at, t.logprobs + np.float32(0.5), np.nan).astype(np.float32)
    signals = {"trainer_logprob": trainer, "entropy": np.where(np.isnan(trainer), np.nan, np.float32(0.25))}
    head, first, second = printed(dataclasses.replace(episode, signals=signals), ledger=2).splitlines()[-3:]
    assert head.split()[4:7] == ["trainer", "ratio", "entropy"]
    assert f"{trainer[at]:.3f}  1.649  0.250" in re.sub(" {2,}", "  ", first)
    assert "—  —  —" in re.sub(" {2,}", "  ", second)


HOSTILE = "\x1b[2J\x1b]0;t\x07\r\x9b1m\u202egnp.exe\u2066\u200f\U000e0041\x00\x7f"


@pytest.mark.parametrize("terminal", [False, True])
def test_hostile_text_cannot_steer_the_terminal(episode: StoredEpisode, terminal: bool) -> None:
    # every place where a run's text is shown: tokens, names, results, reasons, terms
    t = episode.trajectory
    call = dataclasses.replace(t.calls[1], name=HOSTILE, result=HOSTILE)
    charges = tuple(dataclasses.replace(charge, reason=HOSTILE, call=0) for charge in t.charges)
    steered = dataclasses.replace(t, task_id=HOSTILE, env_id=HOSTILE, calls=(call,), charges=charges)
    assert episode.credit is not None
    ledger = Ledger(len(t), {HOSTILE: np.where(t.credit_mask, 0.1, 0.0)})
    tokens = [HOSTILE.encode() if i % 7 == 0 else token for i, token in enumerate(episode.token_bytes)]
    hostile = StoredEpisode(steered, Credit(ledger, ledger), tokens, episode.step, episode.split)
    text = printed(hostile, ledger=len(t), force_terminal=terminal, color_system="truecolor" if terminal else None)
    ours = re.sub(r"\x1b\[[0-9;]*m", "", text)  # the styles of rich
    assert all(c == "\n" or c == "\t" or c.isprintable() for c in ours)
    assert "\\u001b[2J" in ours and "\\u202e" in ours and "\\U000e0041" in ours


def test_the_room_is_cheap_to_import() -> None:
    code = "import sys, accredit.replay; sys.exit('pyarrow' in sys.modules or 'rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
