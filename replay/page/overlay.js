// What the colours mean: which overlays an episode has, and the bucket of a value.
//
// Signed overlays have four buckets a sign and one for exactly 0; log-probability has four of one hue. A bucket is the
// name of a highlight in style.css, null draws nothing.

import { split } from "./data.js";

export const LEVELS = 4;
export const HIGHLIGHTS = ["zero", "trained", "special"];
for (let level = 1; level <= LEVELS; level++) HIGHLIGHTS.push(`pos-${level}`, `neg-${level}`, `low-${level}`);

const LOGPROB_SCALE = 4; // nats at which the strongest colour begins its last quarter

export function overlaysOf(episode) {
  const found = [];
  for (const quantity of ["credit", "advantage"]) {
    const terms = episode.ledgers[quantity];
    if (!terms) continue;
    found.push({ name: quantity, label: quantity, group: "Totals" });
    for (const { name } of terms) found.push({ name: `${quantity}:${name}`, label: name, group: `Terms of ${quantity}` });
  }
  found.push({ name: "logprob", label: "log-probability", group: "Policy" }, { name: "mask", label: "mask", group: "Policy" });
  found.sort((a, b) => Number(b.group === "Totals") - Number(a.group === "Totals"));
  return found;
}

// Returns token -> bucket.
export function bucketer(episode, name) {
  if (name === "mask") return (token, span) => (span.trained ? "trained" : null);
  const values = episode.signal(name);
  if (!values) return () => null;
  if (name === "logprob") {
    return (token, span) => {
      if (!span.trained) return null;
      const level = Math.min(LEVELS, Math.floor((-values[token] / LOGPROB_SCALE) * LEVELS));
      return level < 1 ? null : `low-${level}`;
    };
  }
  const scale = scaleOf(episode, name);
  return (token, span) => {
    const value = values[token];
    if (value === 0) return span.trained ? "zero" : null;
    const level = Math.min(LEVELS, Math.ceil((Math.abs(value) / scale) * LEVELS - 1e-6)) || 1;
    return `${value > 0 ? "pos" : "neg"}-${level}`;
  };
}

export function scaleOf(episode, name) {
  return episode.entry.scales[name] ?? 1;
}

// The values between which `n` and `p` jump: the overlay's own, or the credit where it has no sign.
export function jumpSignal(episode, name) {
  return episode.signal(name === "logprob" || name === "mask" ? "credit" : name);
}

export function legendOf(episode, name) {
  if (name === "mask") {
    return { title: "mask", unit: "", swatches: [{ bucket: "trained", text: "trained" }, { bucket: "masked", text: "masked: no gradient" }] };
  }
  if (name === "logprob") {
    const step = LOGPROB_SCALE / LEVELS;
    const swatches = [{ bucket: "plain", text: `above −${step}` }];
    for (let level = 1; level <= LEVELS; level++) swatches.push({ bucket: `low-${level}`, text: `−${level * step}` });
    swatches.at(-1).text += " and below";
    return { title: "log-probability", unit: "nats", swatches: [...swatches, { bucket: "masked", text: "masked" }] };
  }
  const scale = scaleOf(episode, name);
  const swatches = [];
  for (let level = LEVELS; level >= 1; level--) swatches.push({ bucket: `neg-${level}`, text: level === LEVELS ? `−${short(scale)}` : "" });
  swatches.push({ bucket: "zero", text: "0" });
  for (let level = 1; level <= LEVELS; level++) swatches.push({ bucket: `pos-${level}`, text: level === LEVELS ? `+${short(scale)}` : "" });
  const [quantity, term] = split(name);
  const title = term === null ? quantity : `${quantity}, term ${term}`;
  const shared = episode.entry.group ? "one scale for the group" : "scale of this episode";
  return { title, unit: `in reward, ${shared}`, swatches: [...swatches, { bucket: "masked", text: "masked" }] };
}

function short(value) {
  return value >= 0.001 && value < 1000 ? String(Number(value.toPrecision(2))) : value.toExponential(1);
}
