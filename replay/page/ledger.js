// The side panel: everything that is known of one token, the sums that make its credit and its advantage, and the call
// that it belongs to or was charged for.

import { callFacts } from "./verdict.js";
import { count, el, plain, signed, visible } from "./dom.js";

const MASK_REASONS = {
  prompt: "masked: prompt, not sampled",
  decision: "trained: sampled by the policy",
  feedback: "masked: written by the environment",
  scaffold: "masked: template, nobody sampled it",
};
const SHOWN_ANSWER = 600;

export function renderLedger(panel, episode, token, pinned) {
  panel.classList.toggle("open", token !== null);
  if (token === null) {
    panel.replaceChildren(el("h2", null, "Ledger"), el("p", { class: "about" }, "Point at a token to see what it was paid, and why. Click to keep it."));
    return;
  }
  const parts = [
    el("h2", null, pinned ? "Ledger · kept" : "Ledger"),
    tokenHead(episode, token),
    el("dl", null, ...tokenFacts(episode, token).flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)])),
  ];
  const labels = [...episode.functions.keys()];
  if (labels.includes("")) parts.push(...sumTables(episode, "", token));
  else parts.push(el("p", { class: "about" }, "No credit was stored with this episode."));
  for (const charge of episode.chargesAt(token)) parts.push(chargeNote(episode, charge));
  for (const label of labels.filter(Boolean)) parts.push(...sumTables(episode, label, token));
  const call = episode.callAt(token);
  if (call && !episode.chargesAt(token).some((charge) => charge.call === call.index)) parts.push(callNote(call.call));
  panel.replaceChildren(...parts);
}

export function tokenHead(episode, token) {
  const text = visible(episode.tokenText(token));
  return el("div", { class: "token", dir: "auto" }, text.length > 200 ? `${text.slice(0, 200)}…` : text || "(no text)");
}

function tokenFacts(episode, token) {
  const span = episode.spanOf(token);
  const [first, last] = episode.runOf(token);
  const logprob = episode.logprobs[token];
  const facts = [
    ["id", String(episode.ids[token])],
    ["position", `${token.toLocaleString("en")} of ${episode.length.toLocaleString("en")}`],
    ["turn", span.turn < 0 ? "before the first" : `${span.turn} (policy ${episode.header.policy_versions[span.turn]})`],
  ];
  if (!Number.isNaN(logprob)) facts.push(["log-prob", `${plain(logprob, 4)} nats (p ${plain(Math.exp(logprob), 3)})`]);
  facts.push(...updateFacts(episode, token));
  facts.push(["mask", MASK_REASONS[span.kind]]);
  if (last - first > 1) facts.push(["shares", `a character with ids ${Array.from(episode.ids.subarray(first, last)).join(" ")}`]);
  if (last - first > 1 || episode.tokenText(token).includes("\ufffd")) {
    const hex = Array.from(episode.tokenBytes(token).subarray(0, 24), (byte) => byte.toString(16).padStart(2, "0"));
    facts.push(["bytes", hex.join(" ") + (episode.byteLengths[token] > 24 ? " …" : "")]);
  }
  if (episode.header.straddles.includes(token)) facts.push(["straddles", "its bytes belong to two spans or calls"]);
  return facts;
}

// What the update computed of a token, where the episode has it at all; a dash for a token that it did not look at.
function updateFacts(episode, token) {
  const [trainer, gap, entropy] = [episode.columns.get("trainer_logprob"), episode.signal("gap"), episode.columns.get("entropy")];
  const number = (value, text) => (Number.isNaN(value) ? "—" : text(value));
  const nats = (value) => `${plain(value, 4)} nats`;
  const facts = [];
  if (trainer) {
    facts.push(["trainer", number(trainer[token], nats)]);
    facts.push(["ratio", number(gap[token], (value) => `${plain(Math.exp(value), 4)} (gap ${signed(value)})`)]);
  }
  if (entropy) facts.push(["entropy", number(entropy[token], nats)]);
  return facts;
}

function sumTables(episode, label, token) {
  return ["credit", "advantage"].map((quantity) => sumTable(episode, quantity, label, token));
}

function sumTable(episode, quantity, label, token) {
  const name = label ? `${label}/${quantity}` : quantity;
  const rows = episode.terms(quantity, label).map((term) => sumRow(term.name, term.values[token], ""));
  const caption = label ? el("caption", { class: "about" }, `under ${label}`) : null;
  return el("table", { class: "sum", "data-quantity": name }, caption, el("tbody", null, ...rows),
    el("tfoot", null, sumRow(quantity, episode.signal(name)[token], "total")));
}

function sumRow(name, value, kind) {
  const sign = value > 0 ? "positive" : value < 0 ? "negative" : "none";
  return el("tr", { class: kind }, el("th", { scope: "row" }, name), el("td", { class: sign }, signed(value)));
}

function chargeNote(episode, charge) {
  const call = charge.call === null ? null : episode.header.calls[charge.call];
  const note = el("div", { class: "why" },
    el("b", null, `−${plain(charge.amount, 2)} ${charge.reason}`),
    el("span", { class: "about" }, ` on ${count(charge.end - charge.start, "token")}`));
  if (call) note.append(el("div", null, `${call.name || "unreadable call"} ended ${call.status}`), callFacts(call, [], SHOWN_ANSWER));
  return note;
}

function callNote(call) {
  return el("details", { class: "why of-call" }, el("summary", null, `${call.name || "unreadable call"} ended ${call.status}`),
    callFacts(call, [], SHOWN_ANSWER));
}
