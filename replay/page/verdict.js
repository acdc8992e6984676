// What is known of a tool call: how it ended, what it was given, what it answered, and what the sandbox saw.

import { isFailed } from "./episode.js";
import { count, el, plain, seconds } from "./dom.js";

const SHOWN_CHARACTERS = 20000;
// Keys of a call's detail that have a place of their own; environments name the exit status either way.
const PLACED = ["exit_code", "exit_status", "signal", "stdout", "stderr", "wall_s", "cpu_s", "peak_memory_mb", "isolation", "sandbox_status", "blame"];

export function shortened(text, most = SHOWN_CHARACTERS) {
  if (text.length <= most) return text;
  const sizes = `${most.toLocaleString("en")} of ${text.length.toLocaleString("en")} characters`;
  return `${text.slice(0, most)}\n[shown: the first ${sizes}; what the policy saw of it is in the feedback]`;
}

export function chargeButton(charge, onCharge) {
  const length = charge.end - charge.start;
  return el("button", { type: "button", class: "charge", onclick: () => onCharge(charge.start, charge.end, charge.call), title: "Show the charged tokens" },
    el("b", null, `−${plain(charge.amount, 2)}`), ` charged for ${charge.reason} `, el("span", { class: "about" }, `on ${count(length, "token")}`));
}

// What a call was given, as it is shown; null where that could not be read.
export function argumentsOf(call) {
  return call.arguments === null ? null : JSON.stringify(call.arguments, null, 1);
}

// The facts of a call as a list, with the `charges` to name there; `most` cuts long texts.
export function callFacts(call, charges = [], most = SHOWN_CHARACTERS) {
  const detail = call.detail ?? {};
  const facts = [["status", el("b", { class: isFailed(call) ? "failed-word" : null }, call.status)]];
  const verdict = [detail.sandbox_status, detail.blame && detail.blame !== "nobody" ? `blame: ${detail.blame}` : null].filter(Boolean).join(", ");
  if (verdict) facts.push(["sandbox", verdict]);
  const exit = detail.exit_code ?? detail.exit_status;
  if (exit !== undefined && exit !== null) facts.push(["exit status", String(exit)]);
  if (detail.signal !== undefined && detail.signal !== null) facts.push(["signal", String(detail.signal)]);
  const times = [seconds(call.duration_s ?? detail.wall_s), detail.cpu_s === undefined || detail.cpu_s === null ? null : `${seconds(detail.cpu_s)} of CPU`];
  if (times.some(Boolean)) facts.push(["time", times.filter(Boolean).join(", ")]);
  if (detail.peak_memory_mb) facts.push(["memory", `${plain(detail.peak_memory_mb, 1)} MB at most`]);
  if (detail.isolation) facts.push(["isolation", String(detail.isolation)]);
  for (const charge of charges) facts.push(["charged", el("b", { class: "failed-word" }, `−${plain(charge.amount, 2)} ${charge.reason}`)]);
  const texts = [["arguments", argumentsOf(call) ?? "unreadable"]];
  if (detail.stdout !== undefined) texts.push(["stdout", String(detail.stdout)]);
  if (detail.stderr !== undefined) texts.push(["stderr", String(detail.stderr)]);
  texts.push([call.truncated ? "answered (cut)" : "answered", call.result]);
  const rest = Object.fromEntries(Object.entries(detail).filter(([name]) => !PLACED.includes(name)));
  if (Object.keys(rest).length) texts.push(["reported", JSON.stringify(rest, null, 1)]);
  return el("div", { class: "facts" },
    el("dl", null, ...facts.flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)])),
    ...texts.map(([name, text]) => textFact(name, text, most)));
}

export function textFact(name, text, most) {
  const body = text === "" ? el("span", { class: "about" }, "(empty)") : el("pre", { tabindex: "0", "aria-label": name }, shortened(text, most));
  return el("div", { class: "fact-text" }, el("span", { class: "about" }, name), body);
}
