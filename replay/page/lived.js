// What *as lived* shows beside the text: the call that the policy made last, what it was answered, and a token without
// its credit. Statuses, times and charges are what others made of a call: the policy was told of them in the text only.

import { el, plain } from "./dom.js";
import { startOf } from "./episode.js";
import { tokenHead } from "./ledger.js";
import { argumentsOf, textFact } from "./verdict.js";

const WRITERS = { prompt: "the prompt", decision: "the policy", feedback: "the environment", scaffold: "the template" };
const LIVED_CHARACTERS = 2000;

export function renderLivedToken(panel, episode, token) {
  panel.classList.toggle("open", token !== null);
  const head = el("h2", null, "Token");
  const why = el("p", { class: "about" }, "Credit is hidden: as lived. Press v for hindsight.");
  if (token === null) return panel.replaceChildren(head, why);
  const span = episode.spanOf(token);
  const facts = [["id", String(episode.ids[token])], ["position", token.toLocaleString("en")],
    ["turn", span.turn < 0 ? "before the first" : String(span.turn)], ["written by", WRITERS[span.kind]]];
  if (!Number.isNaN(episode.logprobs[token])) facts.push(["log-prob", `${plain(episode.logprobs[token], 4)} nats`]);
  return panel.replaceChildren(head,
    tokenHead(episode, token),
    el("dl", null, ...facts.flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)])), why);
}

// The feedback that answered a call, null until all of it was read.
export function livedAnswer(episode, index, seen) {
  const { turn } = episode.header.calls[index];
  const answer = episode.spans.find((span) => span.kind === "feedback" && span.turn === turn && episode.callAt(span.start)?.index === index);
  return answer && answer.end <= seen ? answer : null;
}

export function renderLivedCall(pane, episode, index, answer) {
  const call = episode.header.calls[index];
  const span = episode.spanOf(call.start);
  const written = span.text.slice(startOf(span, call.start), span.ends[call.end - 1 - span.start]);
  pane.replaceChildren(
    el("h2", null, `Tool · call ${index + 1}, turn ${call.turn}`), el("div", { class: "tool-name" }, call.name || "call"),
    el("div", { class: "facts" }, textFact("arguments", argumentsOf(call) ?? written, LIVED_CHARACTERS),
      answer && textFact("answered", answer.text, LIVED_CHARACTERS)));
}
