// Builds the messages of an episode: a block a span, with its rail, its text and its calls.

import { isFailed, startOf } from "./episode.js";
import { count, el, plain, seconds, signed } from "./dom.js";
import { callFacts, chargeButton, shortened } from "./verdict.js";

const SOFT_CHARACTERS = 2000; // a chunk ends at the next line end after this many
const HARD_CHARACTERS = 8000; // and here in any case
const DIRECTION = /[\u202a-\u202e\u2066-\u2069]/g;

// Returns {blocks, chunks, messages, calls, timed}: what to show, its text chunks in token order, the messages that `j`
// and `k` visit, the element of each call, and when an element comes to be: [{element, at}], `at` in tokens seen.
export function buildMessages(episode, onCall) {
  const built = { blocks: [], chunks: [], messages: [], calls: new Map(), timed: [] };
  const add = (element, at) => {
    built.blocks.push(element);
    built.timed.push({ element, at });
  };
  const begin = episode.spans.findIndex((span) => span.trained);
  const prompt = episode.spans.slice(0, begin < 0 ? episode.spans.length : begin);
  if (prompt.length) add(foldedPrompt(episode, prompt, built), 0);
  const largest = Math.max(...episode.spans.filter((s) => s.trained).map((s) => Math.abs(turnCredit(episode, s) ?? 0)), 1e-12);
  let turn = -1;
  for (const span of episode.spans.slice(prompt.length)) {
    for (; turn < span.turn - 1; turn++) if (!hasDecision(episode, turn + 1)) add(note(`turn ${turn + 1}: the policy sampled nothing`), span.start);
    turn = span.turn;
    for (const segment of episode.header.segments) {
      if (segment[0] > 0 && segment[0] === span.start) add(note(`a fresh context starts here: ${segment[1]}`), span.start);
    }
    add(message(episode, span, built, largest, onCall), span.start);
  }
  add(ending(episode), episode.length);
  built.timed.sort((a, b) => a.at - b.at);
  built.chunks.sort((a, b) => a.first - b.first);
  return built;
}

function turnCredit(episode, span) {
  return episode.sum("credit", span.start, span.end);
}

function hasDecision(episode, turn) {
  return episode.spans.some((span) => span.trained && span.turn === turn);
}

function foldedPrompt(episode, spans, built) {
  const task = spans.filter((span) => span.kind === "prompt").at(-1) ?? spans.at(-1);
  const tokens = spans.at(-1).end - spans[0].start;
  const start = task.text.trim().slice(0, 400);
  const summary = el("summary", null,
    el("span", { class: "role" }, "prompt"), el("span", { class: "about" }, `${count(tokens, "token")} · masked`),
    el("span", { class: "excerpt" }, start));
  const inner = spans.map((span) => el("div", { class: `span ${span.kind}` }, spanChunks(episode, span, built)));
  const details = el("details", { class: "message prompt", tabindex: "-1" }, summary, el("div", { class: "text" }, ...inner));
  built.messages.push({ element: details, spans });
  return details;
}

function message(episode, span, built, largest, onCall) {
  const calls = episode.header.calls.map((call, index) => ({ call, index })).filter(({ call }) => call.turn === span.turn);
  const rail = el("header", { class: "rail" },
    el("span", { class: "role" }, roleOf(episode, span)),
    el("span", { class: "about" }, `turn ${span.turn} · `, el("span", { class: span.trained ? "mask trained" : "mask" }, span.trained ? "trained" : "masked")));
  if (span.trained) rail.append(...creditBar(episode, span, largest));
  const found = span.text.match(DIRECTION);
  if (found) {
    const warning = el("span", { class: "warning", title: "Characters that reorder the text on screen" }, `${count(found.length, "direction mark")}`);
    built.timed.push({ element: warning, at: span.end - 1 }); // it counts those of the whole span
    rail.append(warning);
  }
  const body = el("div", { class: "text" }, spanChunks(episode, span, built));
  if (span.trained) {
    const holds = (start) => span.start <= start && start < span.end;
    for (const { call, index } of calls) {
      const card = callCard(episode, call, index, built, onCall);
      built.timed.push({ element: card, at: span.end });
      body.append(card);
    }
    for (const charge of episode.header.charges) {
      if (charge.call === null && holds(charge.start)) body.append(el("div", { class: "call failed hindsight" }, chargeButton(charge, onCall)));
    }
  }
  const element = el("section", { class: `message ${span.kind}`, tabindex: span.kind === "scaffold" ? null : "0", "aria-label": `${span.kind}, turn ${span.turn}` }, rail, body);
  element.style.setProperty("--lines", String(estimatedLines(span.text)));
  if (span.kind !== "scaffold") built.messages.push({ element, spans: [span] });
  return element;
}

function roleOf(episode, span) {
  const name = span.kind === "feedback" ? episode.callAt(span.start)?.call.name : null;
  return name ? `feedback · ${name}` : span.kind;
}

function creditBar(episode, span, largest) {
  const value = turnCredit(episode, span);
  const reward = episode.header.turn_rewards[span.turn];
  const parts = [];
  if (value !== null) {
    const fill = el("i", { class: value < 0 ? "negative" : "positive" });
    fill.style.setProperty("--share", String(Math.min(1, Math.abs(value) / largest)));
    parts.push(el("span", { class: "turn-credit hindsight", title: "Credit of this turn: the sum over its decision tokens" },
      el("span", { class: "bar" }, fill), el("span", { class: "bar-value" }, signed(value, 3))));
  }
  if (reward) parts.push(el("span", { class: "about hindsight" }, `turn reward ${signed(reward, 3)}`));
  return parts;
}

function callCard(episode, call, index, built, onCall) {
  const failed = isFailed(call);
  const charges = episode.header.charges.filter((charge) => charge.call === index);
  const took = seconds(call.duration_s);
  const head = el("button", { type: "button", class: "call-head", onclick: () => onCall(call.start, call.end, index) },
    el("span", { class: "status" }, failed ? "✗" : "✓"), el("b", null, call.name || "unreadable call"),
    el("span", { class: "status-name" }, call.status), took ? el("span", { class: "about" }, took) : null);
  const card = el("div", { class: failed ? "call failed hindsight" : "call hindsight" }, head, ...charges.map((charge) => chargeButton(charge, onCall)));
  if (failed || charges.length) {
    card.append(el("div", { class: "answer" }, el("span", { class: "about" }, call.truncated ? "answered (cut)" : "answered"), el("pre", { tabindex: "0" }, shortened(call.result))));
  }
  card.append(lazyDetails("arguments, output, verdict", () => callFacts(call)));
  built.calls.set(index, card);
  return card;
}

// A fold whose content is made when it is first opened.
function lazyDetails(title, make) {
  const details = el("details", { class: "detail", ontoggle: () => details.childElementCount > 1 || details.append(make()) }, el("summary", null, title));
  return details;
}

// Appends the chunks of a span to `built.chunks` and returns their elements.
export function spanChunks(episode, span, built) {
  const fragment = document.createDocumentFragment();
  let first = span.start, start = 0;
  for (let t = span.start; t < span.end; t++) {
    const i = t - span.start, end = span.ends[i];
    const last = t + 1 === span.end;
    const whole = last || !span.joined[i + 1];
    const size = end - start;
    if (!last && !(whole && ((size >= SOFT_CHARACTERS && span.text[end - 1] === "\n") || size >= HARD_CHARACTERS))) continue;
    const piece = span.text.slice(start, end);
    const element = el("div", { class: "chunk" }, document.createTextNode(piece));
    element.style.setProperty("--lines", String(estimatedLines(piece)));
    built.chunks.push({ element, episode, span, first, last: t + 1, start: startOf(span, first), text: piece });
    fragment.append(element);
    first = t + 1;
    start = end;
  }
  return fragment;
}

function estimatedLines(piece) {
  let lines = piece.length / 90 + 1;
  for (let at = piece.indexOf("\n"); at >= 0; at = piece.indexOf("\n", at + 1)) lines += 0.6;
  return Math.ceil(lines);
}

function note(words) {
  return el("p", { class: "note" }, words);
}

function ending(episode) {
  const { stop, error, outcome, seconds: took } = episode.header;
  const element = el("p", { class: "note end" }, `ended: ${stop}`,
    el("span", { class: "hindsight" }, outcome === null ? " · unscored" : ` · outcome ${plain(outcome)}`), took === null ? null : ` · ${seconds(took)}`);
  if (error) element.append(el("pre", null, error));
  return element;
}
