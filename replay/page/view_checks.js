// Checks: what must hold of every rollout of the group, a row a rollout, each failure with a link to its token.

import { byId, count, el } from "./dom.js";
import { EPISODE_CHECKS, oneTextAnId, onePrompt, outcomeMean } from "./checks.js";
import { app } from "./state.js";

const SIGNS = { ok: "✓", bad: "✗", look: "!", none: "–" };
const SAID = { ok: "holds", bad: "does not hold", look: "look", none: "not checked" };

export const checksView = {
  title: "Checks",
  panel: false,
  colours: false,

  async show() {
    const rows = app.listing.members(app.row);
    const episodes = await app.source.episodes(rows);
    const results = episodes.map((episode) => EPISODE_CHECKS.map(([, check]) => check(episode)));
    const shared = [["mean outcome credit about 0", outcomeMean(episodes)], ["one text an id", oneTextAnId(episodes)], ["one prompt", onePrompt(episodes)]];
    const all = [...results.flat(), ...shared.map(([, result]) => result)];
    const number = (state) => all.filter((result) => result.state === state).length;
    byId("messages").replaceChildren(
      el("div", { class: "view-head" }, el("h2", null, episodes[0].header.group || episodes[0].id),
        el("p", { class: "about", role: "status" }, `${count(number("bad"), "failure")} · ${number("look")} to look at · ${number("ok")} hold · ${number("none")} not checked`)),
      el("h2", { class: "table-title" }, "Of the group"),
      el("table", { class: "table checks group-checks" }, el("tbody", null, ...shared.map(([name, result]) => el("tr", null, el("th", { scope: "row" }, name), checkCell(result, app.row, true))))),
      el("h2", { class: "table-title" }, "Of each rollout"),
      el("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Checks of each rollout" }, el("table", { class: "table checks" },
        el("thead", null, el("tr", null, el("th", { scope: "col" }, "rollout"), ...EPISODE_CHECKS.map(([name]) => el("th", { scope: "col" }, name)))),
        el("tbody", null, ...rows.map((row, at) => el("tr", { "aria-current": row === app.row ? "true" : null },
          el("th", { scope: "row" }, el("button", { type: "button", class: "open-rollout", onclick: () => app.go({ view: "episode", row, token: null }, true) }, episodes[at].id)),
          ...results[at].map((result) => checkCell(result, row))))))));
    scrollTo(0, 0);
  },

  keys: {
    " ": () => app.go({ view: "replay" }, true),
  },
};

function checkCell({ state, words, token }, row, always = false) {
  const jump = token === null ? null : el("button", { type: "button", class: "link", onclick: () => app.go({ view: "episode", row, token }, true) }, `token ${token.toLocaleString("en")}`);
  return el("td", { class: `check ${state}`, title: words }, el("b", { role: "img", "aria-label": `${SAID[state]}: ${words}` }, SIGNS[state]),
    always || state !== "ok" ? el("span", { class: "about" }, ` ${words} `) : null, jump);
}
