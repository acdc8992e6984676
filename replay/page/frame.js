// What surrounds every view: the tabs, the heading, the legend, the notice and the help.

import { byId, count, el, plain } from "./dom.js";
import { COMMON_KEYS } from "./keys.js";
import { legendOf, overlaysOf } from "./overlay.js";
import { setTokens } from "./reader.js";
import { app, livedNow } from "./state.js";

export function renderTabs(views, current) {
  const tabs = Object.entries(views).map(([name, view]) =>
    el("button", { type: "button", "aria-current": name === current ? "page" : null, onclick: () => app.go({ view: name }, true) }, view.title));
  byId("tabs").replaceChildren(...tabs);
}

export function renderHeading({ episode, row, listing }, view) {
  const entry = listing.entry(row);
  const reward = el("span", { class: "chip reward" }, entry.reward === null ? "unscored" : "reward ", entry.reward === null ? null : el("b", null, plain(entry.reward)));
  const { charges } = episode.header;
  const charged = charges.reduce((sum, charge) => sum + charge.amount, 0);
  const chip = charges.length ? el("span", { class: "chip charges" }, count(charges.length, "charge"), " ", el("b", null, `−${plain(charged, 2)}`)) : null;
  byId("heading").replaceChildren(
    el("h1", null, entry.env || entry.id, entry.task ? el("span", { class: "task" }, entry.task) : null),
    el("div", { class: "chips" }, ...(livedNow() ? [] : [reward, el("span", { class: "chip" }, entry.stop), chip]),
      el("span", { class: "quiet" }, `${livedNow() ? "" : `${count(entry.turns, "turn")} · ${count(entry.tokens, "token")} · `}step ${entry.step} · ${entry.split}`)));
  byId("heading").hidden = view.heading === false;
}

export function renderOverlays(episode, chosen) {
  const select = byId("overlay");
  const groups = new Map();
  for (const overlay of livedNow() ? [] : overlaysOf(episode)) {
    if (!groups.has(overlay.group)) groups.set(overlay.group, el("optgroup", { label: overlay.group }));
    groups.get(overlay.group).append(el("option", { value: overlay.name }, overlay.label));
  }
  select.replaceChildren(...groups.values());
  select.value = chosen;
  for (const element of [select, ...select.labels]) element.hidden = livedNow();
  if (!byId("mode")) {
    const toggle = el("button", { type: "button", id: "mode", "aria-pressed": "false", title: "Show the template and the borders of tokens; copying gives ids (t)", onclick: () => app.go({ tokens: !app.tokens }) }, "Tokens");
    byId("help-button").before(toggle);
    setTokens(app.tokens);
  }
}

export function renderLegend(episode, name, presses, shown = true, shared = null) {
  byId("legend").hidden = !shown || livedNow();
  if (byId("legend").hidden) return byId("legend").replaceChildren();
  const legend = legendOf(episode, name, presses, shared);
  const swatches = legend.swatches.map(({ bucket, text }) => el("span", { class: `swatch ${bucket}` },
    el("span", { class: `sample h-${bucket}`, "aria-hidden": "true" }, "ab"), text ? el("span", null, text) : null));
  return byId("legend").replaceChildren(el("b", null, legend.title), el("span", { class: "swatches" }, ...swatches), el("span", { class: "about" }, legend.unit));
}

export function renderNotice(words) {
  byId("notice").replaceChildren(words ?? "");
  showNotice();
}

// As lived, what the data's maker said of it is not shown: it may be a filter of outcomes.
export function showNotice() {
  const notice = byId("notice"), words = notice.textContent;
  notice.hidden = !words || (livedNow() && words === app.source?.run.notice);
}

export function renderHelp() {
  const dialog = byId("help");
  const rows = COMMON_KEYS.map(([keys, does]) => el("tr", null, el("td", null, ...keys.split(" ").map((key) => (key === "–" ? "–" : el("kbd", null, key)))), el("td", null, does)));
  const close = el("button", { type: "button", onclick: () => dialog.close() }, "Close");
  dialog.replaceChildren(el("h2", null, "Keys"), el("table", null, el("tbody", null, ...rows)),
    el("p", null, "Blue and a straight underline: above 0. Orange and a wavy one: below. Dotted: exactly 0. Grey text: masked, no gradient reaches it."),
    el("p", null, "Filter: reward<0 error:timeout tool:python credit<-0.5 turns>8 charges>0 step>10 stop:done unscored, with ! or not before a condition. Other words, \"a phrase\" and /an expression/ are searched in the text of the group."), close);
}
