"""Times the exported page on one long episode beside a page that gives every token a span of its own.

Both run in one Chromium, in turns; medians are printed with the lowest and the highest. `--tokens` and `--repeats`
choose the size. Needs Debian's chromium and the Python package playwright.

What is timed, in the browser by `performance.now()`, up to the second animation frame after the work:
  open       from the start of the navigation to the painted page, decoding the packed columns included
  recolour   from choosing another overlay to the painted page (our page repaints what is near the window)
  pointer    one look-up of the character under the pointer
  CPU        processor time of the page's process over one open, steadier than the clock on a busy machine
"""

import argparse
import json
import shutil
import statistics
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import CDPSession, Page, sync_playwright

from accredit.credit import Credit, Ledger, Recorder, StopReason
from accredit.credit.traces import StoredEpisode
from accredit.replay.html_file import page_of

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


def long_episode(tokens: int) -> StoredEpisode:
    """Return an episode of about `tokens` tokens in turns of 500, with a credit that differs at every token."""
    rng = np.random.default_rng(0)
    words = [f" {''.join(rng.choice(list('abcdefghilmnorstu'), rng.integers(2, 8)))}".encode() for _ in range(2000)]
    words += [b"\n", b".", b",", b"\n\n"]
    recorder = Recorder("accredit/Long-v0", "long", "long", seeds={"environment": 0})
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


def open_ms(page: Page, file: Path) -> float:
    page.goto("about:blank")
    page.goto(file.as_uri(), wait_until="commit")
    page.wait_for_selector("html[data-ready]", timeout=120_000)
    return page.evaluate(f"async () => {{ {PAINTED} return performance.now(); }}")


def cpu_ms(session: CDPSession) -> float:
    """Return the processor time that the page's process has used so far."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(1000 * metric["value"] for metric in metrics if metric["name"] == "ProcessTime")


def recolour_ms(page: Page, change: str) -> float:
    return page.evaluate(
        f"async () => {{ const start = performance.now(); {change} {PAINTED} return performance.now() - start; }}"
    )


def hover_ms(page: Page) -> float:
    """Return the mean of 200 look-ups along a line of the window."""
    return page.evaluate(
        """() => { const main = document.getElementById("messages"), box = main.getBoundingClientRect();
        const start = performance.now();
        for (let i = 0; i < 200; i++) document.caretPositionFromPoint(box.left + 160 + 2 * i, 400);
        return (performance.now() - start) / 200; }"""
    )


def line(name: str, found: list[float]) -> str:
    return f"{name:30} {statistics.median(found):8.1f} ms   ({min(found):.1f} to {max(found):.1f}, n={len(found)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    executable = shutil.which("chromium")
    if executable is None:
        raise SystemExit("there is no chromium on the PATH (Debian: apt-get install chromium)")
    episode = long_episode(chosen.tokens)
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        ours, theirs = Path(folder) / "ours.html", Path(folder) / "spans.html"
        ours.write_text(page_of([episode]), encoding="utf-8")
        theirs.write_text(span_page(episode), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        pages = {name: browser.new_page(viewport={"width": 1280, "height": 860}) for name in ("ours", "spans")}
        choose = "const s = document.getElementById('overlay'); s.value = '%s'; s.dispatchEvent(new Event('change'));"
        sessions = {name: page.context.new_cdp_session(page) for name, page in pages.items()}
        for session in sessions.values():
            session.send("Performance.enable")

        def timed_open(name: str, label: str, file: Path) -> None:
            before = cpu_ms(sessions[name])
            times.setdefault(f"open, {label}", []).append(open_ms(pages[name], file))
            times.setdefault(f"open, {label} (CPU)", []).append(cpu_ms(sessions[name]) - before)

        for repeat in range(chosen.repeats):
            timed_open("ours", "ours", ours)
            overlay = ("advantage", "credit:process")[repeat % 2]
            times.setdefault("recolour, ours", []).append(recolour_ms(pages["ours"], choose % overlay))
            times.setdefault("character under pointer, ours", []).append(hover_ms(pages["ours"]))
            timed_open("spans", "span a token", theirs)
            times.setdefault("recolour, span a token", []).append(recolour_ms(pages["spans"], "recolour();"))
        nodes = {name: page.evaluate("document.querySelectorAll('*').length") for name, page in pages.items()}
        print(f"{len(episode.trajectory):,} tokens, Chromium {browser.version}, headless")
        print(f"file: ours {ours.stat().st_size / 1e6:.2f} MB, spans {theirs.stat().st_size / 1e6:.2f} MB")
        print(f"elements: ours {nodes['ours']:,}, spans {nodes['spans']:,}")
        browser.close()
    for name, found in times.items():
        print(line(name, found))


if __name__ == "__main__":
    main()
