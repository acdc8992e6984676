// The side panel: everything that is known of one token, and the sums that make its credit and its advantage.

import { count, el, plain, signed, visible } from "./dom.js";

const MASK_REASONS = {
  prompt: "masked: prompt, not sampled",
  decision: "trained: sampled by the policy",
  feedback: "masked: written by the environment",
  scaffold: "masked: template, nobody sampled it",
};

export function renderLedger(panel, episode, token, pinned) {
  if (token === null) {
    panel.replaceChildren(el("h2", null, "Ledger"), el("p", { class: "about" }, "Point at a token to see what it was paid, and why. Click to keep it."));
    panel.classList.remove("open");
    return;
  }
  const span = episode.spanOf(token);
  const [first, last] = episode.runOf(token);
  const logprob = episode.logprobs[token];
  const facts = [
    ["id", String(episode.ids[token])],
    ["position", `${token.toLocaleString("en")} of ${episode.length.toLocaleString("en")}`],
    ["turn", span.turn < 0 ? "before the first" : `${span.turn} (policy ${episode.header.policy_versions[span.turn]})`],
  ];
  if (!Number.isNaN(logprob)) facts.push(["log-prob", `${plain(logprob, 4)} nats (p ${plain(Math.exp(logprob), 3)})`]);
  facts.push(["mask", MASK_REASONS[span.kind]]);
  if (last - first > 1) facts.push(["shares", `a character with ids ${Array.from(episode.ids.subarray(first, last)).join(" ")}`]);
  if (last - first > 1 || episode.tokenText(token).includes("\ufffd")) {
    const hex = Array.from(episode.tokenBytes(token).subarray(0, 24), (byte) => byte.toString(16).padStart(2, "0"));
    facts.push(["bytes", hex.join(" ") + (episode.byteLengths[token] > 24 ? " …" : "")]);
  }
  if (episode.header.straddles.includes(token)) facts.push(["straddles", "its bytes belong to two spans or calls"]);
  const shown = visible(episode.tokenText(token));
  const parts = [
    el("h2", null, pinned ? "Ledger · kept" : "Ledger"),
    el("div", { class: "token", dir: "auto" }, shown.length > 200 ? shown.slice(0, 200) + "…" : shown || "(no text)"),
    el("dl", null, ...facts.flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)])),
  ];
  for (const quantity of ["credit", "advantage"]) parts.push(sumTable(episode, quantity, token));
  for (const charge of episode.chargesAt(token)) parts.push(chargeNote(episode, charge));
  panel.replaceChildren(...parts);
  panel.classList.add("open");
}

function sumTable(episode, quantity, token) {
  const terms = episode.terms(quantity);
  if (!terms) return quantity === "credit" ? el("p", { class: "about" }, "No credit was stored with this episode.") : null;
  const rows = terms.map(({ name, values }) => row(name, values[token], ""));
  return el("table", { class: "sum", "data-quantity": quantity }, el("tbody", null, ...rows), el("tfoot", null, row(quantity, episode.signal(quantity)[token], "total")));
}

function row(name, value, kind) {
  const sign = value > 0 ? "positive" : value < 0 ? "negative" : "none";
  return el("tr", { class: kind }, el("th", { scope: "row" }, name), el("td", { class: sign }, signed(value)));
}

function chargeNote(episode, charge) {
  const call = charge.call === null ? null : episode.header.calls[charge.call];
  const note = el("div", { class: "why" },
    el("b", null, `−${plain(charge.amount, 2)} ${charge.reason}`),
    el("span", { class: "about" }, ` on ${count(charge.end - charge.start, "token")}`));
  if (call) {
    const answer = call.result.length > 600 ? call.result.slice(0, 600) + "…" : call.result;
    note.append(el("div", null, `${call.name || "unreadable call"} ended ${call.status}`), el("pre", null, answer));
  }
  return note;
}
