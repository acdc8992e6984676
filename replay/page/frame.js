// What surrounds an episode: the heading, the list of episodes, the legend, the notice and the help.

import { count, el, plain } from "./dom.js";
import { legendOf, overlaysOf } from "./overlay.js";

export const KEYS = [
  ["j k", "next, previous message"],
  ["n p", "next, previous credited span"],
  ["e E", "next, previous failed call"],
  [". ,", "next, previous token"],
  ["c", "next overlay"],
  ["m", "mask overlay on, off"],
  ["g G", "start, end of the episode"],
  ["J K", "next, previous episode"],
  ["?", "these keys"],
  ["Esc", "let go of the token"],
];

export function renderHeading(entry) {
  const reward = el("span", { class: "chip reward" }, entry.reward === null ? "unscored" : "reward ", entry.reward === null ? null : el("b", null, plain(entry.reward)));
  const charged = entry.charges ? el("span", { class: "chip charges" }, count(entry.charges, "charge"), " ", el("b", null, `−${plain(entry.charged, 2)}`)) : null;
  document.getElementById("heading").replaceChildren(
    el("h1", null, entry.env || entry.id, entry.task ? el("span", { class: "task" }, entry.task) : null),
    el("div", { class: "chips" }, reward, el("span", { class: "chip" }, entry.stop), charged,
      el("span", { class: "quiet" }, `${count(entry.turns, "turn")} · ${count(entry.tokens, "token")} · step ${entry.step} · ${entry.split}`)));
}

export function renderList(run, current, onOpen) {
  const items = [];
  let heading = null;
  run.episodes.forEach((entry, index) => {
    const name = `step ${entry.step}${entry.split === "train" ? "" : ` · ${entry.split}`}${entry.group ? ` · ${entry.group}` : ""}`;
    if (name !== heading) items.push(el("h2", null, name));
    heading = name;
    const fill = el("i", { class: "reward-fill" });
    fill.style.setProperty("--share", String(Math.max(0, Math.min(1, entry.reward ?? 0))));
    items.push(el("button", { type: "button", class: "episode", "aria-current": index === current ? "true" : null, onclick: () => onOpen(index) },
      el("span", { class: "name" }, entry.id), el("span", { class: "figure" }, entry.reward === null ? "unscored" : plain(entry.reward, 2)),
      el("span", { class: "reward-bar" }, fill),
      el("span", { class: "about" }, [count(entry.turns, "turn"), entry.charges ? count(entry.charges, "charge") : null, entry.stop === "done" ? null : entry.stop].filter(Boolean).join(" · "))));
  });
  const list = document.getElementById("episodes");
  list.replaceChildren(...items);
  list.hidden = run.episodes.length < 2;
  document.getElementById("body").classList.toggle("alone", list.hidden);
  list.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

export function renderOverlays(episode, chosen) {
  const select = document.getElementById("overlay");
  const groups = new Map();
  for (const overlay of overlaysOf(episode)) {
    if (!groups.has(overlay.group)) groups.set(overlay.group, el("optgroup", { label: overlay.group }));
    groups.get(overlay.group).append(el("option", { value: overlay.name }, overlay.label));
  }
  select.replaceChildren(...groups.values());
  select.value = chosen;
}

export function renderLegend(episode, name) {
  const legend = legendOf(episode, name, 0);
  const swatches = legend.swatches.map(({ bucket, text }) => el("span", { class: `swatch ${bucket}` },
    el("span", { class: `sample h-${bucket}`, "aria-hidden": "true" }, "ab"), text ? el("span", null, text) : null));
  document.getElementById("legend").replaceChildren(el("b", null, legend.title), el("span", { class: "swatches" }, ...swatches), el("span", { class: "about" }, legend.unit));
}

export function renderNotice(words) {
  const notice = document.getElementById("notice");
  notice.hidden = !words;
  notice.replaceChildren(words ?? "");
}

export function renderHelp() {
  const dialog = document.getElementById("help");
  const rows = KEYS.map(([keys, does]) => el("tr", null, el("td", null, ...keys.split(" ").map((key) => el("kbd", null, key))), el("td", null, does)));
  const close = el("button", { type: "button", onclick: () => dialog.close() }, "Close");
  dialog.replaceChildren(el("h2", null, "Keys"), el("table", null, el("tbody", null, ...rows)),
    el("p", null, "Blue and a straight underline: above 0. Orange and a wavy one: below. Dotted: exactly 0. Grey text: masked, no gradient reaches it."), close);
}
