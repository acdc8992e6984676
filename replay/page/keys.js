// The keys that every view knows; a view's own come first.

import { byId } from "./dom.js";
import { overlaysOf } from "./overlay.js";
import { reader } from "./reader.js";
import { filteredRows, openSide } from "./side.js";
import { app, VIEW_NAMES } from "./state.js";

let beforeMask = null;

const COMMON = {
  J: () => stepRollout(1), K: () => stepRollout(-1),
  h: () => stepStep(-1), l: () => stepStep(1),
  c: stepOverlay, m: toggleMask, t: () => app.go({ tokens: !app.tokens }),
  "[": () => app.go({ presses: app.presses - 1 }), "]": () => app.go({ presses: app.presses + 1 }),
  g: () => scrollTo(0, 0), G: () => scrollTo(0, document.documentElement.scrollHeight),
  "/": () => { openSide(true); byId("query").focus(); byId("query").select(); },
  "?": () => (byId("help").open ? byId("help").close() : byId("help").showModal()),
  Escape: letGo,
};
VIEW_NAMES.forEach((view, at) => (COMMON[String(at + 1)] = () => app.go({ view }, true)));

export const COMMON_KEYS = [
  ["1 – 6", "run, group, episode, replay, compare, checks"],
  ["j k", "next, previous message; in a table, row"],
  ["J K", "next, previous rollout of the list"],
  ["h l", "previous, next step"],
  ["n p", "next, previous credited span"],
  ["e E", "next, previous failed call, over all rollouts"],
  ["space", "play, pause"],
  [". ,", "next, previous token"],
  ["> <", "next, previous turn"],
  ["v", "replay: as lived, in hindsight"],
  ["b", "replay: by token, call, turn, clock"],
  ["c", "next overlay"],
  ["m", "mask on, off"],
  ["[ ]", "stronger, weaker colours"],
  ["t", "messages, tokens"],
  ["g G", "start, end"],
  ["/", "filter and search"],
  ["?", "these keys"],
  ["Esc", "let go of the token"],
];

export function bindKeys(views) {
  const help = byId("help");
  byId("help-button").addEventListener("click", () => help.showModal());
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("select, input, textarea")) return;
    // A focused button keeps the keys that press it.
    if ((event.key === " " || event.key === "Enter") && event.target.closest("button, summary, a, [role=slider]")) return;
    const action = views[app.view].keys?.[event.key] ?? COMMON[event.key];
    if (!action || !app.episode || (help.open && action !== COMMON["?"] && action !== letGo)) return;
    event.preventDefault();
    action(event);
  });
}

function stepRollout(by) {
  const rows = filteredRows();
  const at = rows.indexOf(app.row);
  const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by;
  if (next >= 0 && next < rows.length) app.go({ row: rows[next], token: null }, true);
}

// The same task at the next or previous step that has it; else that step's first episode.
function stepStep(by) {
  const { listing } = app;
  const steps = listing.columns.get("step"), tasks = listing.columns.get("task");
  let best = -1;
  for (const row of filteredRows()) {
    const ahead = (steps[row] - steps[app.row]) * by;
    if (ahead <= 0) continue;
    const lead = best < 0 ? Infinity : (steps[best] - steps[app.row]) * by;
    const same = tasks[row] === tasks[app.row];
    if (ahead < lead || (ahead === lead && same && tasks[best] !== tasks[app.row])) best = row;
  }
  if (best >= 0) app.go({ row: best, token: null }, true);
}

function stepOverlay() {
  const names = overlaysOf(app.episode).map((overlay) => overlay.name);
  app.go({ overlay: names[(names.indexOf(app.overlay) + 1) % names.length] });
}

function toggleMask() {
  const { overlay } = app;
  const back = beforeMask ?? overlaysOf(app.episode)[0].name;
  beforeMask = overlay === "mask" ? null : overlay;
  app.go({ overlay: overlay === "mask" ? back : "mask" });
}

function letGo() {
  const help = byId("help");
  if (help.open) return help.close();
  openSide(false);
  if (reader.built && app.view !== "replay") reader.look(null);
  document.activeElement?.blur?.();
}
