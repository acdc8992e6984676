// The side list: episodes that pass the filter, drawn a window at a time, and what was found in the text of the group.

import { tokenAt } from "./episode.js";
import { byId, count, el, plain, visible } from "./dom.js";
import { filterRows, parseQuery, searchText, unanswered } from "./query.js";
import { app, livedNow } from "./state.js";

const ROW_PX = 48;
const HEAD_PX = 26;
const TALLEST_PX = 12_000_000; // browsers cap the height of an element
const MOST_HITS = 200;
const TYPING_MS = 120;

const side = { items: new Int32Array(0), tops: new Float64Array(1), rows: new Int32Array(0), query: null, listing: null, rowsSeen: -1, waiting: 0 };

export function startSide() {
  const list = byId("episodes"), query = byId("query"), button = byId("side-button");
  list.append(el("div", { class: "room" }), el("div", { class: "window" }));
  list.addEventListener("scroll", () => drawWindow(), { passive: true });
  new ResizeObserver(() => drawWindow()).observe(list);
  query.addEventListener("input", () => {
    clearTimeout(side.waiting);
    side.waiting = setTimeout(() => app.go({ query: query.value }), TYPING_MS);
  });
  query.addEventListener("keydown", (event) => {
    if (event.key === "Escape") query.value ? app.go({ query: (query.value = "") }) : query.blur();
    else if (event.key === "Enter") (byId("hits").querySelector("button") ?? list.querySelector("button"))?.focus();
  });
  button.addEventListener("click", () => openSide(button.getAttribute("aria-expanded") !== "true"));
}

export function openSide(open) {
  byId("side-button").setAttribute("aria-expanded", String(open));
  byId("side").classList.toggle("open", open);
  if (open) drawWindow();
}

// The rows that pass the filter, in order: what `J` and `K` walk through.
export function filteredRows() {
  return side.rows;
}

export async function renderSide() {
  const { listing } = app;
  const query = byId("query");
  if (document.activeElement !== query) query.value = app.query;
  const changed = side.query !== app.query || side.listing !== listing || side.rowsSeen !== listing.rows;
  if (changed) {
    side.parsed = parseQuery(app.query);
    side.rows = filterRows(listing, side.parsed.conditions);
    Object.assign(side, { query: app.query, listing, rowsSeen: listing.rows }, layout(side.rows));
  }
  byId("body").classList.toggle("alone", listing.rows < 2 && !app.query);
  byId("side-button").textContent = `Episodes (${side.rows.length.toLocaleString("en")})`;
  if (changed) drawWindow();
  showCurrent();
  await renderFound();
}

// Interleaves rows (>= 0) with headings (-1 - the row that begins a step or group).
function layout(rows) {
  const { listing } = app;
  const steps = listing.columns.get("step"), groups = listing.columns.get("group"), splits = listing.columns.get("split");
  const items = new Int32Array(2 * rows.length);
  const tops = new Float64Array(2 * rows.length + 1);
  let size = 0, before = -1;
  for (const row of rows) {
    if (before < 0 || steps[row] !== steps[before] || groups[row] !== groups[before] || splits[row] !== splits[before]) {
      items[size] = -1 - row;
      tops[size + 1] = tops[size] + HEAD_PX;
      size++;
    }
    items[size] = row;
    tops[size + 1] = tops[size] + ROW_PX;
    size++;
    before = row;
  }
  return { items: items.subarray(0, size), tops: tops.subarray(0, size + 1) };
}

function drawWindow() {
  const list = byId("episodes");
  const [room, view] = list.children;
  const total = side.tops.at(-1), shown = Math.min(total, TALLEST_PX);
  room.style.height = `${shown}px`;
  const reach = Math.max(1, shown - list.clientHeight);
  const top = total > shown ? (list.scrollTop / reach) * (total - list.clientHeight) : list.scrollTop;
  const first = itemAt(top), last = Math.min(side.items.length, itemAt(top + list.clientHeight) + 2);
  const cells = [];
  for (let at = first; at < last; at++) cells.push(side.items[at] < 0 ? headingCell(-1 - side.items[at]) : rowCell(side.items[at]));
  view.replaceChildren(...cells);
  view.style.transform = `translateY(${list.scrollTop - (top - side.tops[first])}px)`;
}

function itemAt(top) {
  let low = 0, high = side.items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (side.tops[middle + 1] <= top) low = middle + 1;
    else high = middle;
  }
  return low;
}

function showCurrent() {
  const list = byId("episodes");
  const at = side.items.indexOf(app.row);
  if (at >= 0 && side.tops.at(-1) <= TALLEST_PX) {
    const seen = side.tops[at] >= list.scrollTop && side.tops[at + 1] <= list.scrollTop + list.clientHeight;
    if (!seen) list.scrollTop = side.tops[at] - list.clientHeight / 2;
  }
  drawWindow();
}

function headingCell(row) {
  const { step, split, group } = app.listing.entry(row);
  const name = [`step ${step}`, split === "train" ? null : split, group || null].filter(Boolean).join(" · ");
  return el("button", { type: "button", class: "group-name", title: `${name}: side by side`, onclick: () => app.go({ view: "group", row, token: null }, true) }, name);
}

function rowCell(row) {
  const entry = app.listing.entry(row);
  const button = (...content) => el("button", { type: "button", class: "episode", "aria-current": row === app.row ? "true" : null, onclick: (event) => choose(row, event) },
    el("span", { class: "name" }, entry.id), ...content);
  if (livedNow()) return button();
  const fill = el("i", { class: "reward-fill" });
  fill.style.setProperty("--share", String(Math.max(0, Math.min(1, entry.reward ?? 0))));
  const about = [count(entry.turns, "turn"), entry.charges ? count(entry.charges, "charge") : null, entry.stop === "done" ? null : entry.stop];
  return button(el("span", { class: "figure" }, entry.reward === null ? "unscored" : plain(entry.reward, 2)),
    el("span", { class: "reward-bar" }, fill),
    el("span", { class: "about" }, about.filter(Boolean).join(" · ")));
}

function choose(row, event) {
  openSide(false);
  if (event.shiftKey && row !== app.row) return app.go({ view: "compare", compare: [{ row: app.row, label: "" }, { row, label: "" }] }, true);
  const stays = app.view === "replay" || app.view === "checks";
  return app.go({ view: stays ? app.view : "episode", row, token: null }, true);
}

async function renderFound() {
  const { listing } = app;
  const { pattern, problems, conditions } = side.parsed;
  const found = byId("found"), hits = byId("hits");
  byId("query").hidden = livedNow(); // it may tell of outcomes, and the search of turns to come
  hits.hidden = !pattern || livedNow();
  if (hits.hidden) hits.replaceChildren();
  if (livedNow()) return found.replaceChildren();
  const words = [];
  if (conditions.length || listing.rows > 1) words.push(`${side.rows.length.toLocaleString("en")} of ${(listing.rows - listing.dead.size).toLocaleString("en")} episodes`);
  words.push(...problems);
  const lacking = unanswered(conditions, listing);
  if (lacking.length) words.push(`${lacking.join(", ")}: not in this listing, so nothing matches`);
  if (!pattern || !listing.rows) return found.replaceChildren(words.join(" · "));
  const members = listing.members(app.row);
  const searched = app.query;
  const episodes = await app.source.episodes(members);
  if (searched !== app.query || livedNow()) return null;
  const buttons = [];
  let total = 0;
  episodes.forEach((episode, at) => {
    const list = searchText(episode, pattern, MOST_HITS, tokenAt);
    total += list.length;
    for (const hit of list.slice(0, Math.max(0, MOST_HITS - buttons.length))) buttons.push(hitButton(members[at], episode, hit));
  });
  words.push(`${count(total, "hit")} in the text of ${count(members.length, "rollout")}${total > buttons.length ? `, the first ${buttons.length} listed` : ""}`);
  hits.replaceChildren(...buttons);
  return found.replaceChildren(words.join(" · "));
}

function hitButton(row, episode, hit) {
  const where = `${episode.id} · turn ${episode.spanOf(hit.first).turn}`;
  return el("button", { type: "button", class: "hit", onclick: () => app.go({ view: app.view === "replay" ? "replay" : "episode", row, token: hit.first, range: [hit.first, hit.last] }, true) },
    el("span", { class: "about" }, where), el("span", { class: "context" }, visible(hit.before), el("mark", null, visible(hit.match)), visible(hit.after)));
}
