// What *as lived* shows beside the text: the call that the policy made last, what it was answered, and a token without
// its credit. Statuses, times and charges are what others made of a call: the policy was told of them in the text only.

import { el, plain, visible } from "./dom.js";
import { startOf } from "./episode.js";
import { shortened } from "./verdict.js";

const WRITERS = { prompt: "the prompt", decision: "the policy", feedback: "the environment", scaffold: "the template" };
const LIVED_ANSWER = 2000;

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
    el("div", { class: "token", dir: "auto" }, shortened(visible(episode.tokenText(token)), 200) || "(no text)"),
    el("dl", null, ...facts.flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)])), why);
}

// The newest call that is written whole after `seen` tokens, as {index, answer}: `answer` is the feedback that answered
// it, null until all of that was read. null where there is no call yet.
export function livedCall(episode, seen) {
  const index = episode.header.calls.findLastIndex((call) => call.end <= seen);
  if (index < 0) return null;
  const { turn } = episode.header.calls[index];
  const answer = episode.spans.find((span) => span.kind === "feedback" && span.turn === turn && episode.callAt(span.start)?.index === index);
  return { index, answer: answer && answer.end <= seen ? answer : null };
}

export function renderLivedCall(pane, episode, { index, answer }) {
  const call = episode.header.calls[index];
  const span = episode.spanOf(call.start);
  const written = span.text.slice(startOf(span, call.start), span.ends[call.end - 1 - span.start]);
  const parts = [
    el("h2", null, `Tool · call ${index + 1}, turn ${call.turn}`), el("div", { class: "tool-name" }, call.name || "call"),
    livedText("arguments", call.arguments === null ? written : JSON.stringify(call.arguments, null, 1)),
  ];
  if (answer) parts.push(livedText("answered", answer.text));
  pane.replaceChildren(...parts);
}

function livedText(name, text) {
  return el("div", { class: "facts fact-text" }, el("span", { class: "about" }, name),
    el("pre", { tabindex: "0", "aria-label": name }, text.length > LIVED_ANSWER ? `${text.slice(0, LIVED_ANSWER)}…` : text));
}
