// The group: a row a rollout, its credit as a strip, all on one scale and one width a token.

import { commonPrefix } from "./episode.js";
import { byId, count, el, focusRow, plain, signed } from "./dom.js";
import { scaleOf, short, titleOf, unitOf } from "./overlay.js";
import { STRIP_PX, drawStrip, paletteOf } from "./strip.js";
import { app } from "./state.js";
import { nextFailed } from "./view_episode.js";

const shownGroup = { rows: [], episodes: [], strips: [], from: 0, to: 1, chosen: new Set(), observer: null };

export const groupView = {
  title: "Group",
  panel: false,

  async show() {
    const rows = app.listing.members(app.row);
    const episodes = await app.source.episodes(rows);
    Object.assign(shownGroup, { rows, episodes, chosen: new Set() });
    // The prompt, which all share and nobody is paid for, is left out.
    shownGroup.from = Math.min(...episodes.map((episode) => episode.spans.find((span) => span.trained)?.start ?? episode.length));
    shownGroup.to = Math.max(shownGroup.from + 1, ...episodes.map((episode) => episode.length));
    byId("messages").replaceChildren(heading(), el("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Rollouts" }, table()), key(), comparison());
    scrollTo(0, 0);
    shownGroup.observer?.disconnect();
    shownGroup.observer = new ResizeObserver(() => draw());
    shownGroup.observer.observe(byId("messages"));
    draw();
  },

  hide() {
    shownGroup.observer?.disconnect();
  },

  recolour() {
    draw();
  },

  keys: {
    j: () => focusRow(1), k: () => focusRow(-1),
    Enter: () => app.go({ view: "episode" }, true),
    " ": () => app.go({ view: "replay", token: null }, true),
    e: () => toFailed(1), E: () => toFailed(-1),
  },
};

async function toFailed(by) {
  await app.go({ view: "episode", token: null }, true);
  return nextFailed(by);
}

function heading() {
  const { episodes } = shownGroup;
  const first = episodes[0].header;
  const scored = episodes.map((episode) => episode.reward).filter((reward) => reward !== null);
  const mean = scored.reduce((sum, reward) => sum + reward, 0) / scored.length;
  const spread = Math.sqrt(scored.reduce((sum, reward) => sum + (reward - mean) ** 2, 0) / scored.length);
  const words = [count(episodes.length, "rollout"), scored.length ? `mean reward ${plain(mean)}, spread ${plain(spread)}` : "all unscored"];
  if (scored.length > 1 && spread === 0) words.push("no spread: the outcome teaches nothing here");
  if (scored.length < episodes.length && scored.length) words.push(`${episodes.length - scored.length} unscored`);
  return el("div", { class: "view-head" }, el("h2", null, first.group || "one rollout without a group"), el("p", { class: "about" }, words.join(" · ")));
}

function table() {
  const { rows, episodes, from, to } = shownGroup;
  shownGroup.strips = [];
  const own = rows.indexOf(app.row);
  const body = rows.map((row, at) => {
    const episode = episodes[at], entry = app.listing.entry(row);
    const differs = at === own ? null : firstDifference(episodes[own], episode);
    const canvas = el("canvas", { class: "strip", role: "img", "aria-label": spoken(episode, differs), onclick: (event) => openAt(row, canvas, event) });
    canvas.style.height = `${STRIP_PX}px`;
    shownGroup.strips.push({ canvas, episode, differs });
    const box = el("input", { type: "checkbox", "aria-label": `compare ${entry.id}`, onchange: () => setChosen(row, box.checked) });
    const charged = episode.header.charges.reduce((sum, charge) => sum + charge.amount, 0);
    const pair = episode.header.seeds.pair;
    return el("tr", { "aria-current": row === app.row ? "true" : null },
      el("td", null, box),
      el("th", { scope: "row" }, el("button", { type: "button", class: "open-rollout", onclick: (event) => openRow(row, event) }, entry.id),
        pair === undefined ? null : el("span", { class: "about" }, ` pair ${pair}, turn ${episode.header.seeds.fork_turn}`)),
      el("td", { class: "strip-cell" }, canvas),
      el("td", { class: "number" }, entry.reward === null ? "unscored" : plain(entry.reward)),
      el("td", { class: charged ? "number negative" : "number" }, charged ? `−${plain(charged, 2)} (${episode.header.charges.length})` : "0"),
      el("td", { class: "number" }, signed(episode.sum("credit", 0, episode.length), 3)),
      el("td", { class: "number" }, String(entry.turns)),
      el("td", { class: "number" }, entry.tokens.toLocaleString("en")),
      el("td", null, entry.stop),
      el("td", { class: "number" }, at === own ? "reference" : differs === null ? "nowhere" : el("button", { type: "button", class: "link", onclick: () => app.go({ view: "episode", row, token: differs }, true) }, differs.toLocaleString("en"))));
  });
  const head = ["", "rollout", `tokens ${from.toLocaleString("en")} to ${to.toLocaleString("en")}${from ? ", after the prompt" : ""}`, "reward", "charges", "credit", "turns", "tokens", "stop", "differs at"];
  return el("table", { class: "rollouts" },
    el("thead", null, el("tr", null, ...head.map((name, at) => el("th", { scope: "col", class: at > 2 && name !== "stop" ? "number" : null }, name || el("span", { class: "unseen" }, "compare"))))),
    el("tbody", null, ...body));
}

// The first token at which an episode is unlike the reference; null where it is the same to its end.
function firstDifference(reference, episode) {
  const common = commonPrefix(reference, episode);
  return common === episode.length && common === reference.length ? null : Math.min(common, episode.length - 1);
}

function spoken(episode, differs) {
  const failed = episode.failedCalls().length;
  const parts = [`${titleOf(app.overlay)} of ${episode.id}, ${count(episode.length, "token")}, ${count(episode.turns, "turn")}`, count(failed, "failed call")];
  if (differs !== null) parts.push(`first differs from the reference at token ${differs}`);
  return parts.join(", ");
}

function draw() {
  const palette = paletteOf(byId("messages"));
  const name = shownGroup.episodes.some((episode) => app.overlay === "mask" || episode.signal(app.overlay)) ? app.overlay : "mask";
  const scale = scaleOf(shownGroup.episodes[0], name, app.presses);
  for (const { canvas, episode, differs } of shownGroup.strips) {
    drawStrip(canvas, episode, { name, scale, from: shownGroup.from, to: shownGroup.to, differs, palette });
    canvas.setAttribute("aria-label", spoken(episode, differs));
  }
  byId("strip-scale")?.replaceChildren(name === "mask" ? "filled: trained" : `a full bar is ±${short(scale)} ${unitOf(name)}, the 99th percentile of the group`);
}

function key() {
  const words = [["▮", "bars up: above 0, bars down: below 0"], ["▨", "masked: no gradient"], ["|", "a turn begins"], ["✕", "failed call"], ["◆", "first token unlike the reference's (the rollout at hand)"]];
  return el("p", { class: "about key" }, el("span", { id: "strip-scale" }), ...words.map(([sign, word]) => el("span", null, el("b", { "aria-hidden": "true" }, sign), ` ${word}`)));
}

function comparison() {
  return el("p", { class: "about" },
    el("button", { type: "button", id: "compare-chosen", class: "action", disabled: true, onclick: () => compareRows([...shownGroup.chosen]) }, "Compare the chosen"),
    " Click a rollout to read it, shift-click to compare it with the one at hand; click a strip to open that token. ",
    el("kbd", null, "["), el("kbd", null, "]"), " change the scale.");
}

function setChosen(row, on) {
  shownGroup.chosen[on ? "add" : "delete"](row);
  byId("compare-chosen").disabled = shownGroup.chosen.size < 2;
}

function compareRows(rows) {
  return app.go({ view: "compare", row: rows[0], token: null, compare: rows.map((row) => ({ row, label: "" })) }, true);
}

function openRow(row, event) {
  if (event.shiftKey && row !== app.row) return compareRows([app.row, row]);
  return app.go({ view: "episode", row, token: null }, true);
}

function openAt(row, canvas, event) {
  if (event.shiftKey) return openRow(row, event);
  const box = canvas.getBoundingClientRect();
  const token = shownGroup.from + Math.floor(((event.clientX - box.left) / box.width) * (shownGroup.to - shownGroup.from));
  return app.go({ view: "episode", row, token: token < app.listing.number("tokens", row) ? token : null }, true);
}
