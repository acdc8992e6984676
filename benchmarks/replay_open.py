"""Times the exported page in Chromium, beside a page that gives every token a span of its own.

Both run in one Chromium, in turns; medians are printed with the lowest and the highest, beside the target. `--repeats`
chooses how often, `--tokens` the length of the long episode. Needs Debian's chromium and the Python package playwright.

What is timed, in the browser by `performance.now()`, up to the second animation frame after the work:
  open       from the start of the navigation to the painted page, decoding the packed columns included
  recolour   from choosing another overlay to the painted page (our page repaints what is near the window)
  hover      from a move of the pointer to the ledger of the token under it; look-up: the character under the pointer
  strips     from the key that opens a group to its painted strips, all rollouts read
  list       from the start of the navigation to the painted list; filter: from a query to the painted list
  CPU        processor time of the page's process over the same work, steadier than the clock on a busy machine
"""

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from accredit.credit import Credit, Ledger, Recorder, StopReason
from accredit.credit.traces import StoredEpisode
from accredit.replay.bundle import bundle
from accredit.replay.html_file import page_of
from accredit.replay.pack import Shown, block, episode_block, in_base64

ARGUMENTS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking".split()
PAINTED = "await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));"
SPANS = """<!doctype html><meta charset="utf-8"><style>
body { font: 13px/1.75 monospace; max-width: 900px }
div { white-space: pre-wrap; overflow-wrap: anywhere }
</style><body><script type="application/json" id="data">%s</script>
<script>
const { texts, credit, advantage } = JSON.parse(document.getElementById("data").textContent);
const share = (v) => Math.min(54, Math.abs(v) * 20);
const tint = (v) => v && `color-mix(in srgb, ${v > 0 ? "#2166ac" : "#b35806"} ${share(v)}%%, transparent)`;
const spans = [];
texts.forEach((tokens, m) => {
  const div = document.createElement("div");
  tokens.forEach((text, i) => {
    const span = document.createElement("span");
    span.textContent = text;
    span.style.backgroundColor = tint(credit[m][i]);
    div.append(span);
    spans.push([span, m, i]);
  });
  document.body.append(div);
});
window.recolour = () => { for (const [span, m, i] of spans) span.style.backgroundColor = tint(advantage[m][i]); };
document.documentElement.dataset.ready = "0";
</script>"""


@lru_cache
def vocabulary() -> list[bytes]:
    """Return the texts of the ids: 2,000 words and some punctuation."""
    rng = np.random.default_rng(0)
    words = [f" {''.join(rng.choice(list('abcdefghilmnorstu'), rng.integers(2, 8)))}".encode() for _ in range(2000)]
    return [*words, b"\n", b".", b",", b"\n\n"]


def long_episode(tokens: int, member: int = 0, group: str = "") -> StoredEpisode:
    """Return an episode of about `tokens` tokens in turns of 500, with a credit that differs at every token."""
    words = vocabulary()
    rng = np.random.default_rng(member)
    recorder = Recorder("accredit/Long-v0", "long", f"long-{member}", group, {"environment": 0})
    for _ in range(tokens // 500):
        recorder.decision(rng.integers(0, len(words), 400), -rng.random(400) * 3)
        recorder.feedback(rng.integers(0, len(words), 100))
    trajectory = recorder.finish(1.0, StopReason.DONE)
    mask_T = trajectory.credit_mask
    credit = Ledger(len(mask_T), {name: rng.normal(size=len(mask_T)) * mask_T for name in ("outcome", "process")})
    advantage = Ledger(len(mask_T), {"outcome": rng.normal(size=len(mask_T)) * mask_T})
    return StoredEpisode(trajectory, Credit(credit, advantage), [words[i] for i in trajectory.token_ids], 0, "train")


def span_page(episode: StoredEpisode) -> str:
    """Return the page of the other technique: one coloured span a token, values as JSON."""
    assert episode.credit is not None
    spans = episode.trajectory.spans
    texts = [[b.decode() for b in episode.token_bytes[s.start : s.end]] for s in spans]
    credit, advantage = (
        [np.round(ledger.total[s.start : s.end], 4).tolist() for s in spans]
        for ledger in (episode.credit.credit, episode.credit.advantage)
    )
    data = json.dumps({"texts": texts, "credit": credit, "advantage": advantage}).replace("<", "\\u003c")
    return SPANS % data


def half_a_million(episode: StoredEpisode) -> str:
    """Return a page whose listing has 500,000 rows; only the first has its tokens in the file."""
    count, rng = 500_000, np.random.default_rng(0)
    ids = [f"s{i // 64:06}-g{i // 8 % 8:03}-m{i % 8:02}".encode() for i in range(count)]
    member, zero = np.arange(count, dtype="<i4"), np.zeros(count, dtype="<i4")
    tables = {
        "split": ["train"], "group": [f"s{g // 8:06}-g{g % 8:03}" for g in range(count // 8)], "env": ["accredit/X-v0"],
        "task": ["x"], "stop": ["done"],
    }  # fmt: skip
    columns = {
        "id_length": np.array([len(name) for name in ids], dtype="<u4"),
        "id": np.frombuffer(b"".join(ids), dtype="u1"),
        "step": member // 64, "split": zero, "group": member // 8, "env": zero, "task": zero, "stop": zero,
        "reward": rng.random(count).astype("<f4"), "turns": rng.integers(1, 12, count).astype("<i4"),
        "tokens": rng.integers(300, 9000, count).astype("<i4"), "charges": rng.integers(0, 3, count).astype("<i4"),
    }  # fmt: skip
    listing = in_base64(block({"rows": count, "next": 0, "tables": tables}, columns))
    run = {"title": "many", "notice": "", "live": False, "metrics": [], "functions": []}
    return bundle("many", run, listing, [in_base64(episode_block(Shown(episode)))])


def open_ms(page: Page, file: Path, tail: str = "") -> float:
    page.goto("about:blank")
    page.goto(file.as_uri() + tail, wait_until="commit")
    page.wait_for_selector("html[data-ready]", timeout=120_000)
    return page.evaluate(f"async () => {{ {PAINTED} return performance.now(); }}")


def cpu_ms(session: CDPSession) -> float:
    """Return the processor time that the page's process has used so far."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(1000 * metric["value"] for metric in metrics if metric["name"] == "ProcessTime")


def work_ms(page: Page, change: str) -> float:
    """Time `change`, a statement of the page's own, to the painted page."""
    return page.evaluate(
        f"async () => {{ const start = performance.now(); {change} {PAINTED} return performance.now() - start; }}"
    )


CHOOSE = "const s = document.getElementById('overlay'); s.value = '%s'; s.dispatchEvent(new Event('change'));"
LOOK_UP = """() => { const box = document.getElementById("messages").getBoundingClientRect();
    const start = performance.now();
    for (let i = 0; i < 200; i++) document.caretPositionFromPoint(box.left + 160 + 2 * i, 400);
    return (performance.now() - start) / 200; }"""
# The ledger is drawn within the frame of the move: the time of the work itself, without the wait for that frame.
HOVER = """async () => { const box = document.getElementById("messages").getBoundingClientRect();
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    let spent = 0;
    for (let i = 0; i < 40; i++) {
        document.elementFromPoint(box.left + 170 + 9 * i, 420).dispatchEvent(new PointerEvent("pointermove",
            { bubbles: true, clientX: box.left + 170 + 9 * i, clientY: 420, pointerType: "mouse" }));
        const start = performance.now();
        await frame();
        document.body.offsetHeight;
        spent += Math.min(performance.now() - start, performance.now() - window.began);
    }
    return spent / 40; }"""
BEGUN = """() => { const real = window.requestAnimationFrame.bind(window);
    window.requestAnimationFrame = (work) => real((now) => { window.began = performance.now(); work(now); }); }"""
STRIPS = """document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "2", bubbles: true }));
    while (document.documentElement.dataset.view !== "group") await new Promise((done) => setTimeout(done, 1));"""
FILTER = """const q = document.getElementById("query"), found = document.getElementById("found"); q.focus();
    q.value = "%s"; q.dispatchEvent(new Event("input"));
    const before = found.textContent;
    while (found.textContent === before) await new Promise((done) => setTimeout(done, 1));"""


class Bench:
    """Pages of one browser, and what was measured in them."""

    def __init__(self, browser: Browser) -> None:
        self.pages = {name: browser.new_page(viewport={"width": 1280, "height": 860}) for name in ("ours", "spans")}
        self.sessions = {name: page.context.new_cdp_session(page) for name, page in self.pages.items()}
        for session in self.sessions.values():
            session.send("Performance.enable")
        self.times: dict[str, list[float]] = {}

    def add(self, label: str, found: float) -> None:
        """Keep one measurement, in milliseconds."""
        self.times.setdefault(label, []).append(found)

    def timed(self, name: str, label: str, work: Callable[[Page], float]) -> None:
        """Keep what `work` measured, and the processor time that the page's process spent meanwhile."""
        before = cpu_ms(self.sessions[name])
        self.add(label, work(self.pages[name]))
        self.add(f"{label} (CPU)", cpu_ms(self.sessions[name]) - before)


TARGETS = {
    "open 100k tokens, ours": 500, "recolour, ours": 250, "hover, ours": 16, "strips of 16 x 64k": 500,
    "list 500k episodes": 1000,
}  # fmt: skip


def line(name: str, found: list[float]) -> str:
    target = f"target {TARGETS[name]}" if name in TARGETS else ""
    spread = f"({min(found):.1f} to {max(found):.1f}, n={len(found)})"
    return f"{name:34} {statistics.median(found):8.1f} ms   {spread:30} {target}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    executable = shutil.which("chromium")
    if executable is None:
        raise SystemExit("there is no chromium on the PATH (Debian: apt-get install chromium)")
    episode = long_episode(chosen.tokens)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        files = {name: Path(folder) / f"{name}.html" for name in ("ours", "spans", "group", "export", "many")}
        files["ours"].write_text(page_of([episode]), encoding="utf-8")
        files["spans"].write_text(span_page(episode), encoding="utf-8")
        for name, tokens in (("group", 64_000), ("export", 32_000)):
            members = [long_episode(tokens, member, "g") for member in range(16)]
            files[name].write_text(page_of(members), encoding="utf-8")
        files["many"].write_text(half_a_million(long_episode(2000)), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        bench = Bench(browser)
        for repeat in range(chosen.repeats):
            _round(bench, files, repeat)
        open_ms(bench.pages["spans"], files["spans"])
        nodes = {name: page.evaluate("document.querySelectorAll('*').length") for name, page in bench.pages.items()}
        print(f"{len(episode.trajectory):,} tokens, Chromium {browser.version}, headless")
        for name, file in files.items():
            print(f"file {name}: {file.stat().st_size / 1e6:.2f} MB{'  target 10' if name == 'export' else ''}")
        print(f"elements: ours {nodes['ours']:,}, a span a token {nodes['spans']:,}")
        browser.close()
    for name, found in bench.times.items():
        print(line(name, found))


def _round(bench: Bench, files: dict[str, Path], repeat: int) -> None:
    ours, spans = bench.pages["ours"], bench.pages["spans"]
    bench.timed("ours", "strips: open 16 x 64k", lambda page: open_ms(page, files["group"]))
    bench.timed("ours", "strips of 16 x 64k", lambda page: work_ms(page, STRIPS))
    bench.timed("ours", "list 500k episodes", lambda page: open_ms(page, files["many"]))
    bench.add("filter 500k episodes", work_ms(ours, FILTER % f"reward>0.{repeat + 90} turns>8"))
    bench.timed("ours", "open 100k tokens, ours", lambda page: open_ms(page, files["ours"]))
    bench.timed(
        "ours", "recolour, ours", lambda page: work_ms(page, CHOOSE % ("advantage", "credit:process")[repeat % 2])
    )
    bench.add("look-up, ours", ours.evaluate(LOOK_UP))
    ours.evaluate(BEGUN)
    bench.timed("ours", "hover, ours", lambda page: page.evaluate(HOVER))
    bench.timed("spans", "open 100k tokens, span a token", lambda page: open_ms(page, files["spans"]))
    bench.timed("spans", "recolour, span a token", lambda page: work_ms(page, "recolour();"))
    spans.goto("about:blank")


if __name__ == "__main__":
    main()
