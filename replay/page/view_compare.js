// Compare: rollouts side by side, aligned by turn, on one scale. The same rollout may stand there twice, under two credit
// functions.

import { alignedTurns, choicesFor, firstComparison } from "./comparison.js";
import { commonPrefix, isFailed, partsOf } from "./episode.js";
import { byId, count, el, plain, signed } from "./dom.js";
import { renderLegend } from "./frame.js";
import { spanChunks } from "./messages.js";
import { scaleOf } from "./overlay.js";
import { reader } from "./reader.js";
import { app } from "./state.js";
import { chargeButton } from "./verdict.js";

const MOST_COLUMNS = 4;

export const compareView = {
  title: "Compare",
  panel: true,
  anewOn: ["compare"],

  async show() {
    if (!app.compare.some((item) => item.row === app.row)) app.compare = await firstComparison(app.row);
    app.source.useFunctions(app.compare.map((item) => item.label).filter(Boolean));
    const items = app.compare.slice(0, MOST_COLUMNS);
    const episodes = await app.source.episodes(items.map((item) => item.row));
    const built = { chunks: [], messages: [], calls: new Map() };
    const onCall = (at) => (first, last) => {
      reader.episode = episodes[at];
      reader.range(first, last);
    };
    const rows = alignedTurns(episodes);
    const grid = el("div", { class: "columns", role: "table", "aria-label": "Turns side by side" },
      el("div", { role: "row", class: "columns-row" }, ...items.map((item, at) => columnHead(item, episodes[at], at))),
      ...rows.map((row) => turnRow(row, items, episodes, built, onCall)));
    grid.style.setProperty("--columns", String(items.length));
    reader.show(episodes[Math.max(0, items.findIndex((item) => item.row === app.row))], built);
    // The same overlay under each column's function, on the largest of their scales.
    const name = (item) => (["logprob", "gap", "entropy", "mask"].includes(app.overlay) ? app.overlay : overlayUnder(item.label));
    reader.scale = () => Math.max(...items.map((item, at) => scaleOf(episodes[at], name(item), app.presses)));
    legend();
    byId("messages").replaceChildren(chooser(items), divergence(episodes), el("div", { class: "scroller" }, grid));
    scrollTo(0, 0);
    reader.recolour((chunk) => name(items[chunk.column]));
    this.move();
  },

  hide() {
    reader.scale = null;
  },

  move() {
    if (app.token !== null && app.token < reader.episode.length) reader.look(app.token);
  },

  recolour() {
    legend();
    reader.recolour();
    byId("messages").querySelectorAll("[data-sum]").forEach((cell) => cell.replaceChildren(cell.sum()));
  },

  keys: {
    j: () => reader.stepMessage(1), k: () => reader.stepMessage(-1),
    n: () => reader.stepCredited(1), p: () => reader.stepCredited(-1),
    ".": () => reader.stepToken(1), ",": () => reader.stepToken(-1),
    ">": () => reader.stepTurn(1), "<": () => reader.stepTurn(-1),
    e: () => reader.stepFailed(1), E: () => reader.stepFailed(-1),
    " ": () => app.go({ view: "replay" }, true),
  },
};

function legend() {
  renderLegend(app.episode, app.overlay, app.presses, true, { scale: reader.scale(), words: "one scale for all columns" });
}

// The chosen overlay as another function has it: its own term of that name, or its total.
function overlayUnder(label) {
  const { quantity, term } = partsOf(app.overlay);
  return (label ? `${label}/` : "") + quantity + (term === null ? "" : `:${term}`);
}

function columnHead(item, episode, at) {
  const { reward, stop, step } = app.listing.entry(item.row);
  const seeds = episode.header.seeds;
  const pair = seeds.pair === undefined ? null : ` · pair ${seeds.pair}, turn ${seeds.fork_turn} decided anew`;
  const remove = app.compare.length > 1 ? el("button", { type: "button", class: "link", "aria-label": `remove ${episode.id}`, onclick: () => app.go({ row: app.compare.find((_, other) => other !== at).row, compare: app.compare.filter((_, other) => other !== at) }) }, "remove") : null;
  return el("div", { role: "columnheader", class: "column-head" },
    el("button", { type: "button", class: "open-rollout", onclick: () => app.go({ view: "episode", row: item.row, token: null }, true) }, episode.id), " ", remove,
    el("div", { class: "about" }, `step ${step} · ${reward === null ? "unscored" : `reward ${plain(reward)}`} · ${stop} · ${count(episode.header.charges.length, "charge")}${pair ?? ""}`),
    el("div", null, "credit by ", el("b", null, item.label || "the stored function")));
}

function turnRow({ turn, cells, same }, items, episodes, built, onCall) {
  const row = el("div", { role: "row", class: same && new Set(items.map((item) => item.row)).size > 1 ? "columns-row same" : "columns-row" });
  cells.forEach((spans, at) => {
    const episode = episodes[at];
    const cell = el("div", { role: "cell", class: "turn-cell", tabindex: spans.length ? "0" : null, "aria-label": `${episode.id}, ${turn < 0 ? "prompt" : `turn ${turn}`}` });
    const head = el("div", { class: "about turn-head" }, el("span", null, turn < 0 ? "prompt" : `turn ${turn}`), same ? el("span", null, "the same ids") : null);
    cell.append(head);
    if (!spans.length) cell.append(el("span", { class: "about" }, "(it had ended)"));
    else if (turn >= 0) head.append(turnSum(spans, items[at], episode));
    const before = built.chunks.length;
    const body = el("div", { class: "text" }, ...spans.map((span) => el("div", { class: `span-${span.kind} ${span.kind}` }, spanChunks(episode, span, built))));
    for (const chunk of built.chunks.slice(before)) chunk.column = at;
    if (turn < 0) cell.append(el("details", { class: "prompt" }, el("summary", null, count(spans.reduce((sum, span) => sum + span.end - span.start, 0), "token")), body));
    else cell.append(body);
    for (const [index, call] of episode.header.calls.entries()) {
      if (call.turn !== turn || turn < 0) continue;
      const charges = episode.header.charges.filter((charge) => charge.call === index);
      if (isFailed(call) || charges.length) cell.append(el("div", { class: "call failed" }, el("b", null, `✗ ${call.name || "unreadable call"} ${call.status}`), ...charges.map((charge) => chargeButton(charge, onCall(at)))));
    }
    built.messages.push({ element: cell, spans });
    row.append(cell);
  });
  return row;
}

function turnSum(spans, item, episode) {
  const cell = el("span", { "data-sum": "", class: "bar-value" });
  cell.sum = () => {
    const name = app.overlay === "mask" || ["logprob", "gap", "entropy"].includes(app.overlay) ? (item.label ? `${item.label}/credit` : "credit") : overlayUnder(item.label);
    const values = episode.signal(name);
    if (!values) return "no such term";
    let sum = 0, charged = false;
    for (const span of spans) if (span.trained) for (let t = span.start; t < span.end; t++) [sum, charged] = [sum + values[t], true];
    const { quantity, term } = partsOf(name);
    const mean = quantity === "advantage";
    const tokens = spans.filter((span) => span.trained).reduce((size, span) => size + span.end - span.start, 0);
    return charged ? `${term ?? quantity}${mean ? " a token" : ""} ${signed(mean ? sum / tokens : sum, 3)}` : "";
  };
  cell.append(cell.sum());
  return cell;
}

function divergence(episodes) {
  if (episodes.length < 2) return el("p", { class: "about" }, "Choose what to set beside it.");
  const common = Math.min(...episodes.slice(1).map((episode) => (episode === episodes[0] ? episode.length : commonPrefix(episodes[0], episode))));
  if (common === episodes[0].length) return el("p", { class: "about" }, "The ids are the same to the end.");
  const turn = episodes[0].spanOf(common).turn;
  return el("p", { class: "about" }, `The ids are the same up to `, el("button", { type: "button", class: "link", onclick: () => reader.look(common) }, `token ${common.toLocaleString("en")}`), `, in turn ${turn}.`);
}

function chooser(items) {
  const choices = choicesFor(app.row, app.episode).filter((choice) => !items.some((item) => item.row === choice.row && item.label === choice.label));
  const groups = new Map();
  choices.forEach((choice, at) => {
    if (!groups.has(choice.group)) groups.set(choice.group, el("optgroup", { label: choice.group }));
    groups.get(choice.group).append(el("option", { value: at }, choice.text));
  });
  const add = el("select", { id: "beside", "aria-label": "Set beside it", disabled: items.length >= MOST_COLUMNS, onchange: ({ target }) => add.value !== "" && app.go({ compare: [...items, { row: choices[target.value].row, label: choices[target.value].label }] }, true) },
    el("option", { value: "" }, items.length >= MOST_COLUMNS ? `${MOST_COLUMNS} at most` : "set beside it …"), ...groups.values());
  const replaceWith = (compare) => app.go({ compare }, true);
  const label = app.episode.header.functions.map((about) => about.label).find(Boolean) ?? app.source.run.functions[0];
  return el("div", { class: "chooser" }, add,
    label ? el("button", { type: "button", class: "action", id: "two-functions", onclick: () => replaceWith([{ row: app.row, label: "" }, { row: app.row, label }]) }, `this rollout under two credit functions`) : null);
}
