// What the colours mean: which overlays an episode has, and the bucket of a value.
//
// Signed overlays have four buckets a sign and one for exactly 0; log-probability and entropy have four of one hue. What
// the update computed has one more, for decisions that it did not look at. A bucket is the name of a highlight in
// marks.css, null draws nothing.

import { partsOf } from "./episode.js";

const LEVELS = 4;
export const HIGHLIGHTS = ["zero", "absent", "trained", "special", "even"];
for (let level = 1; level <= LEVELS; level++) HIGHLIGHTS.push(`pos-${level}`, `neg-${level}`, `low-${level}`);

const NATS = 4; // log-probability at which the strongest colour begins its last quarter
const STEPS = 2; // presses of `[` or `]` that halve or double a scale

export function overlaysOf(episode) {
  const totals = [], terms = [];
  for (const { label } of episode.header.functions) {
    for (const quantity of ["credit", "advantage"]) {
      const prefix = label ? `${label}/` : "";
      const name = prefix + quantity;
      totals.push({ name, label: label ? `${quantity} · ${label}` : quantity, group: "Totals" });
      const group = `Terms of ${quantity}${label ? ` · ${label}` : ""}`;
      for (const term of episode.terms(quantity, label)) terms.push({ name: `${name}:${term.name}`, label: term.name, group });
    }
  }
  const policy = [{ name: "logprob", label: "log-probability" }];
  if (episode.columns.has("trainer_logprob")) policy.push({ name: "gap", label: "trainer–sampler gap" });
  if (episode.columns.has("entropy")) policy.push({ name: "entropy", label: "entropy" });
  policy.push({ name: "mask", label: "mask" });
  return [...totals, ...terms, ...policy.map((overlay) => ({ ...overlay, group: "Policy" }))];
}

// What the strongest colour of an overlay stands for, `presses` of `[` (< 0) or `]` (> 0) away from its own scale.
export function scaleOf(episode, name, presses = 0) {
  const own = name === "logprob" ? NATS : (episode.header.scales[name] ?? 1);
  return own * 2 ** (presses / STEPS);
}

// The level of a value, 0 for one that is 0 or far below the scale's first quarter in a one-hued overlay.
function levelOf(value, scale) {
  return Math.min(LEVELS, Math.ceil((Math.abs(value) / scale) * LEVELS - 1e-6)) || 1;
}

export function isSigned(name) {
  return name === "gap" || partsOf(name).quantity === "credit" || partsOf(name).quantity === "advantage";
}

// Whether an overlay shows what the update computed, which a decision that it left out lacks.
function ofUpdate(name) {
  return name === "gap" || name === "entropy";
}

// Returns (token, span) -> bucket.
export function bucketer(episode, name, scale = scaleOf(episode, name)) {
  if (name === "mask") return (token, span) => (span.trained ? "trained" : null);
  const values = episode.signal(name);
  if (!values) return () => null;
  const absent = (span) => (span.trained && ofUpdate(name) ? "absent" : null);
  if (!isSigned(name)) {
    return (token, span) => {
      if (!span.trained || Number.isNaN(values[token])) return absent(span);
      const level = Math.min(LEVELS, Math.floor((Math.abs(values[token]) / scale) * LEVELS));
      return level < 1 ? null : `low-${level}`;
    };
  }
  return (token, span) => {
    const value = values[token];
    if (Number.isNaN(value)) return absent(span);
    if (value === 0) return span.trained ? "zero" : null;
    return `${value > 0 ? "pos" : "neg"}-${levelOf(value, scale)}`;
  };
}

// The name of the values between which `n` and `p` jump: the overlay's own, or the credit where it has no sign.
export function jumpName(name) {
  return isSigned(name) && name !== "gap" ? name : "credit";
}

export function titleOf(name) {
  const { label, quantity, term } = partsOf(name);
  const plainName = { logprob: "log-probability", gap: "trainer–sampler gap" }[quantity] ?? quantity;
  return [term === null ? plainName : `${quantity}, term ${term}`, label].filter(Boolean).join(" · ");
}

export function unitOf(name) {
  return ["logprob", "gap", "entropy"].includes(name) ? "nats" : name === "mask" ? "" : "reward";
}

// `shared`: {scale, words} in place of the episode's own scale.
export function legendOf(episode, name, presses, shared = null) {
  if (name === "mask") {
    return { title: "mask", unit: "", swatches: [{ bucket: "trained", text: "trained" }, { bucket: "masked", text: "masked: no gradient" }] };
  }
  const scale = shared?.scale ?? scaleOf(episode, name, presses);
  const swatches = [];
  const rest = [ofUpdate(name) ? { bucket: "absent", text: "left out of the update" } : null, { bucket: "masked", text: "masked" }].filter(Boolean);
  if (!isSigned(name)) {
    const sign = name === "logprob" ? "−" : "";
    swatches.push({ bucket: "plain", text: `${name === "logprob" ? "above" : "below"} ${sign}${short(scale / LEVELS)}` });
    for (let level = 1; level <= LEVELS; level++) swatches.push({ bucket: `low-${level}`, text: `${sign}${short((level * scale) / LEVELS)}` });
    swatches.at(-1).text += name === "logprob" ? " and below" : " and above";
    return { title: titleOf(name), unit: "nats", swatches: [...swatches, ...rest] };
  }
  for (let level = LEVELS; level >= 1; level--) swatches.push({ bucket: `neg-${level}`, text: level === LEVELS ? `−${short(scale)}` : "" });
  swatches.push({ bucket: "zero", text: "0" });
  for (let level = 1; level <= LEVELS; level++) swatches.push({ bucket: `pos-${level}`, text: level === LEVELS ? `+${short(scale)}` : "" });
  const whose = shared?.words ?? (episode.header.group ? "one scale for the group" : "scale of this episode");
  const factor = presses ? ` × ${short(2 ** (presses / STEPS))})` : ")";
  const floor = name === "gap" ? ", at least 0.01" : "";
  return { title: titleOf(name), unit: `in ${unitOf(name)}, ${whose} (99th percentile${floor}${factor}`, swatches: [...swatches, ...rest] };
}

export function short(value) {
  return value === 0 || (Math.abs(value) >= 0.001 && Math.abs(value) < 1000) ? String(Number(value.toPrecision(2))) : value.toExponential(1);
}
