import base64
import hashlib
import logging
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from sample_episodes import shop_group, write_shop_run

from accredit.credit import Credit, Group, Ledger, Recorder, StopReason, TraceError
from accredit.credit.traces import StoredEpisode, TraceWriter, open_run
from accredit.replay import export
from accredit.replay.bundle import join_modules
from accredit.replay.html_file import page_of
from accredit.replay.overlays import columns_of, group_scales
from accredit.replay.pack import Shown, episode_block, read_block


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shop_run(tmp_path_factory.mktemp("run") / "shop")


def listed(page: Path | str) -> list[dict]:
    """Return the rows of a page's listing."""
    text = page if isinstance(page, str) else page.read_text(encoding="utf-8")
    found = re.search(r'<script type="text/plain" id="listing">(.*?)</script>', text)
    assert found
    header, columns = read_block(base64.b64decode(found[1]))
    ends = np.cumsum(columns["id_length"])
    raw = columns["id"].tobytes()
    rows = [{"id": raw[end - size : end].decode()} for end, size in zip(ends, columns["id_length"], strict=True)]
    for name, column in columns.items():
        if not name.startswith("id"):
            table = header["tables"].get(name)
            for row, value in zip(rows, column.tolist(), strict=True):
                row[name] = value if table is None else table[value]
    return rows


def blocks(page: Path | str) -> list[dict]:
    """Return the headers of a page's episodes."""
    text = page if isinstance(page, str) else page.read_text(encoding="utf-8")
    found = re.findall(r'<script type="text/plain" id="episode-\d+">(.*?)</script>', text)
    return [read_block(base64.b64decode(one))[0] for one in found]


def noise_run(folder: Path, steps: int, tokens: int) -> Path:
    rng = np.random.default_rng(0)
    writer = TraceWriter(folder / "traces")
    for step in range(steps):
        recorder = Recorder(episode_id=f"e-{step}", group=f"g-{step}")
        recorder.decision(rng.integers(0, 256, tokens), -rng.random(tokens))
        group = Group((recorder.finish(step / steps, StopReason.DONE),))
        writer.write(step, [group], None, lambda ids: [bytes([i]) for i in ids])
    return folder


def test_a_packed_episode_unpacks_to_the_same_tokens_and_terms(run: Path) -> None:
    episode = open_run(run).episode("ep-0")
    header, columns = read_block(episode_block(Shown(episode)))
    assert np.array_equal(columns["token_id"], episode.trajectory.token_ids)
    assert np.array_equal(columns["logprob"], episode.trajectory.logprobs, equal_nan=True)
    assert columns["bytes"].tobytes() == b"".join(episode.token_bytes)
    assert episode.credit is not None
    for name, term_T in episode.credit.credit.terms.items():
        assert np.array_equal(columns[f"credit:{name}"], term_T.astype(np.float32))
    assert [call["status"] for call in header["calls"]] == [call.status for call in episode.trajectory.calls]


def test_the_page_allows_its_own_script_and_style_and_nothing_else(run: Path, tmp_path: Path) -> None:
    text = export(run, tmp_path / "a.html").read_text(encoding="utf-8")
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert found
    policy = unescape(found[1])
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy and "http" not in policy
    for tag in ("style", 'script type="module"'):
        inside = re.search(f"<{tag}>(.*?)</{tag.split()[0]}>", text, re.DOTALL)
        assert inside
        digest = base64.b64encode(hashlib.sha256(inside[1].encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert text.index("Content-Security-Policy") < text.index("<style>") < text.index("<script")
    assert not re.search(r'(src|href)="(?!#)', text)


def test_every_module_of_the_page_is_joined_once_and_stays_small() -> None:
    script = join_modules("main.js")
    folder = Path(export.__code__.co_filename).parent / "page"
    for module in folder.glob("*.js"):
        assert script.count(f"// {module.name}\n") == 1
        assert len(module.read_text().splitlines()) < 400
    assert not re.search(r"^(import|export) ", script, re.MULTILINE)
    assert "innerHTML" not in script and "insertAdjacentHTML" not in script


def test_every_import_of_a_module_is_exported_where_it_says() -> None:
    folder = Path(export.__code__.co_filename).parent / "page"
    for module in folder.glob("*.js"):  # joined, a wrong name still works; served, it does not
        for names, home in re.findall(r'^import \{([^}]*)\} from "\./([\w-]+\.js)";', module.read_text(), re.MULTILINE):
            for name in filter(None, map(str.strip, names.split(","))):
                found = re.search(
                    rf"^export (async )?(function|const|let|class) {name}\b", (folder / home).read_text(), re.MULTILINE
                )
                assert found, f"{module.name} imports {name} from {home}"
        source = re.sub(r"^import .*", "", module.read_text(), flags=re.MULTILINE)
        for name in re.findall(r"^import \{([^}]*)\}", module.read_text(), re.MULTILINE):
            for each in filter(None, map(str.strip, name.split(","))):
                assert re.search(rf"\b{each}\b", source), f"{module.name} imports {each} and does not use it"


def test_the_whole_run_is_exported_by_default(run: Path, tmp_path: Path) -> None:
    page = export(run, tmp_path / "deep" / "all.html")
    assert [entry["id"] for entry in listed(page)] == [f"ep-{i}" for i in range(6)]
    assert np.isnan(listed(page)[5]["reward"])


def test_ids_are_taken_in_the_order_asked_and_unknown_ones_are_named(run: Path, tmp_path: Path) -> None:
    page = export(run, tmp_path / "a.html", episodes=["ep-3", "ep-1"])
    assert [entry["id"] for entry in listed(page)] == ["ep-3", "ep-1"]
    with pytest.raises(TraceError, match="no episode 'ep-9'"):
        export(run, tmp_path / "b.html", episodes=["ep-9"])
    assert not (tmp_path / "b.html").exists()


def test_top_takes_the_highest_rewards_and_leaves_unscored_ones_last(run: Path, tmp_path: Path) -> None:
    assert [e["id"] for e in listed(export(run, tmp_path / "a.html", top=3))] == ["ep-0", "ep-1", "ep-2"]
    assert [e["id"] for e in listed(export(run, tmp_path / "a.html", top=5))] == [f"ep-{i}" for i in range(5)]


def test_group_step_and_split_select_and_say_what_there_is(run: Path, tmp_path: Path) -> None:
    assert len(listed(export(run, tmp_path / "a.html", group="boards-40/s12", step=12, split="train"))) == 6
    with pytest.raises(TraceError, match="has step 3: there are 12"):
        export(run, tmp_path / "a.html", step=3)
    with pytest.raises(TraceError, match="has split 'heldout': there are train"):
        export(run, tmp_path / "a.html", split="heldout")


def test_over_budget_the_newest_steps_stay_and_the_rest_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = noise_run(tmp_path / "run", steps=6, tokens=20_000)
    with caplog.at_level(logging.WARNING):
        page = export(run, tmp_path / "a.html", budget_mb=0.5)
    kept = [entry["id"] for entry in listed(page)]
    assert 0 < len(kept) < 6 and kept == [f"e-{i}" for i in range(6)][-len(kept) :]
    notice = f"{len(kept)} of 6 episodes are in this file, {6 - len(kept)} are left out"
    assert notice in caplog.text and notice in page.read_text(encoding="utf-8")
    assert page.stat().st_size < 0.5e6


def test_one_scale_holds_for_a_group() -> None:
    words, group, credits = shop_group()
    episodes = [
        StoredEpisode(t, c, words.token_bytes(t.token_ids.tolist()), 0, "train")
        for t, c in zip(group.trajectories, credits, strict=True)
    ]
    shared = group_scales(episodes)
    assert all(header["scales"] == shared for header in blocks(page_of(episodes)))
    magnitudes = np.concatenate([np.abs(dict(columns_of(e.credit))["credit"]) for e in episodes])
    assert shared["credit"] == pytest.approx(np.percentile(magnitudes[magnitudes > 0], 99))


def test_a_signal_that_is_zero_everywhere_has_scale_one() -> None:
    _, group, credits = shop_group()
    trajectory, credit = group.trajectories[5], credits[5]
    zero = {name: np.zeros(len(trajectory)) for name in credit.credit.terms}
    stored = StoredEpisode(trajectory, Credit(Ledger(len(trajectory), zero), Ledger(len(trajectory), zero)), [], 0, "")
    assert set(group_scales([stored]).values()) == {1.0}
    assert group_scales([StoredEpisode(trajectory, None, [], 0, "")]) == {}


def test_data_cannot_close_its_block(tmp_path: Path) -> None:
    recorder = Recorder("</script><b>", "<!--", "<script>alert(1)</script>", "</title>")
    recorder.decision(list(b"</script>"), [-1.0] * 9)
    stored = StoredEpisode(recorder.finish(1.0, StopReason.DONE), None, [bytes([b]) for b in b"</script>"], 0, "train")
    text = page_of([stored], title="</title><script>alert(1)</script>")
    assert text.count("<script") == 4 and text.count("</script>") == 4
    assert "alert(1)</script>" not in text and "<!--" not in text.split("<body>")[1]
