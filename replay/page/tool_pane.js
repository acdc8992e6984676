// The tool pane of a replay: the newest call whose text is written. In hindsight its answer comes once the environment
// has spoken, with the verdict; lived.js says what is shown of it as lived.

import { el } from "./dom.js";
import { isFailed } from "./episode.js";
import { livedAnswer, renderLivedCall } from "./lived.js";
import { argumentsOf, callFacts } from "./verdict.js";

const PANE_CHARACTERS = 2000;
let inPane = []; // what the pane shows: the episode, whether as lived, the call, whether it was answered

export function renderToolPane(pane, episode, seen, lived) {
  const { calls } = episode.header;
  const index = calls.findLastIndex((call) => call.end <= seen);
  const call = calls[index];
  const answer = lived && call ? livedAnswer(episode, index, seen) : null;
  const answered = lived ? answer !== null : Boolean(call) && seen > episode.spanOf(call.start).end;
  const now = [episode, lived, index, answered];
  if (now.every((part, at) => part === inPane[at])) return;
  inPane = now;
  if (!call) pane.replaceChildren(el("h2", null, "Tool"), el("p", { class: "about" }, "No call yet."));
  else if (lived) renderLivedCall(pane, episode, index, answer);
  else {
    const charges = episode.header.charges.filter((charge) => charge.call === index);
    pane.replaceChildren(el("h2", null, `Tool · call ${index + 1} of ${calls.length}, turn ${call.turn}`),
      el("div", { class: "tool-name" }, `${answered ? (isFailed(call) ? "✗ " : "✓ ") : ""}${call.name || "unreadable call"}`),
      answered ? callFacts(call, charges, PANE_CHARACTERS) : el("pre", null, argumentsOf(call) ?? "unreadable"));
  }
}
