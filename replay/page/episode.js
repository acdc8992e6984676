// One episode with its columns, and the questions that the views ask of its tokens.

import { decodeTokens } from "./utf8.js";

export class Episode {
  constructor({ header, columns }) {
    this.header = header;
    this.columns = columns;
    this.id = header.episode_id;
    this.step = header.step;
    this.entries = columns.get("entry");
    const ids = columns.get("vocab_id");
    this.ids = new Int32Array(this.entries.length);
    for (let t = 0; t < this.ids.length; t++) this.ids[t] = ids[this.entries[t]];
    this.logprobs = columns.get("logprob");
    this.length = this.ids.length;
    this.functions = new Map(header.functions.map((about) => [about.label, about]));
    this.spans = header.spans.map(([start, end, kind, turn], index) => new SpanText(this, index, start, end, kind, turn));
    this.signals = new Map();
  }

  // The bytes of all tokens: joined, the length of each, and where each starts. Made when text is first asked for.
  get spelled() {
    return (this.found ??= spell(this.entries, this.columns.get("vocab_length"), this.columns.get("vocab_bytes")));
  }
  get bytes() { return this.spelled.bytes; }
  get byteLengths() { return this.spelled.lengths; }
  get byteStarts() { return this.spelled.starts; }

  get reward() {
    const { outcome, turn_rewards: rewards } = this.header;
    return outcome === null ? null : outcome + rewards.reduce((sum, reward) => sum + reward, 0);
  }

  // Names and values of the ledger terms of `quantity` under a credit function ("" is the stored one), or null.
  terms(quantity, label = "") {
    const about = this.functions.get(label);
    if (!about) return null;
    const prefix = label ? `${label}/` : "";
    return about[`${quantity}_terms`].map((name) => ({ name, values: this.columns.get(`${prefix}${quantity}:${name}`) }));
  }

  // The values of an overlay: "credit", "advantage", "credit:outcome", "rloo/credit", "logprob", "gap", "entropy"; null
  // where this episode has none.
  signal(name) {
    if (!this.signals.has(name)) this.signals.set(name, this.computed(name));
    return this.signals.get(name);
  }

  computed(name) {
    if (name === "logprob") return this.logprobs;
    if (name === "entropy") return this.columns.get("entropy") ?? null;
    if (name === "gap") {
      const trainer = this.columns.get("trainer_logprob");
      return trainer ? trainer.map((value, t) => value - this.logprobs[t]) : null;
    }
    const { label, quantity, term } = partsOf(name);
    const terms = this.terms(quantity, label);
    if (!terms) return null;
    if (term !== null) return terms.find((found) => found.name === term)?.values ?? null;
    const total = new Float64Array(this.length);
    for (const { values } of terms) for (let t = 0; t < total.length; t++) total[t] += values[t];
    return total;
  }

  sum(name, start, end) {
    const values = this.signal(name);
    if (!values) return null;
    let total = 0;
    for (let t = start; t < end; t++) total += values[t];
    return total;
  }

  spanOf(token) {
    let low = 0, high = this.spans.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.spans[middle].end <= token) low = middle + 1;
      else high = middle;
    }
    return this.spans[low];
  }

  // The half-open range of tokens that share a character with `token`, itself included.
  runOf(token) {
    const span = this.spanOf(token);
    let first = token - span.start, last = first + 1;
    while (span.joined[first]) first--;
    while (last < span.joined.length && span.joined[last]) last++;
    return [span.start + first, span.start + last];
  }

  tokenText(token) {
    const span = this.spanOf(token);
    const [first, last] = this.runOf(token);
    return span.text.slice(startOf(span, first), span.ends[last - 1 - span.start]);
  }

  tokenBytes(token) {
    return this.bytes.subarray(this.byteStarts[token], this.byteStarts[token + 1]);
  }

  // One id whose whole text has the form of a control token. Text that only looks like one takes several ids.
  isSpecial(token) {
    const length = this.byteLengths[token];
    if (length < 4 || length > 40 || this.bytes[this.byteStarts[token]] !== 60) return false;
    return /^<[|/]?[\w|.\-]+\|?>$/.test(new TextDecoder().decode(this.tokenBytes(token)));
  }

  failedCalls() {
    return this.header.calls.map((call, index) => ({ call, index })).filter(({ call }) => isFailed(call));
  }

  chargesAt(token) {
    return this.header.charges.filter((charge) => charge.start <= token && token < charge.end);
  }

  // The innermost call whose tokens hold `token`, or, in feedback, the only call of its turn; null where there is none.
  callAt(token) {
    const span = this.spanOf(token);
    const calls = this.header.calls.map((call, index) => ({ call, index }));
    const inside = calls.filter(({ call }) => call.start <= token && token < call.end).at(-1);
    if (inside || span.kind !== "feedback") return inside ?? null;
    const ofTurn = calls.filter(({ call }) => call.turn === span.turn);
    const answers = this.spans.filter((other) => other.kind === "feedback" && other.turn === span.turn);
    return (answers.length === ofTurn.length ? ofTurn[answers.indexOf(span)] : ofTurn.length === 1 ? ofTurn[0] : null) ?? null;
  }

  // The first token of each turn's decision, by turn; undefined for a turn in which the policy sampled nothing.
  turnStarts() {
    const starts = [];
    for (const span of this.spans) if (span.trained && starts[span.turn] === undefined) starts[span.turn] = span.start;
    return starts;
  }

  get turns() {
    return this.header.turn_rewards.length;
  }
}

function spell(entries, vocabLengths, vocabBytes) {
  const vocabStarts = new Uint32Array(vocabLengths.length + 1);
  for (let i = 0; i < vocabLengths.length; i++) vocabStarts[i + 1] = vocabStarts[i] + vocabLengths[i];
  const lengths = new Uint32Array(entries.length), starts = new Uint32Array(entries.length + 1);
  for (let t = 0; t < entries.length; t++) starts[t + 1] = starts[t] + (lengths[t] = vocabLengths[entries[t]]);
  const bytes = new Uint8Array(starts[entries.length]);
  for (let t = 0, at = 0; t < entries.length; t++) {
    for (let from = vocabStarts[entries[t]], to = vocabStarts[entries[t] + 1]; from < to; from++) bytes[at++] = vocabBytes[from];
  }
  return { bytes, lengths, starts };
}

// A span of one kind; its text is decoded when it is first asked for.
class SpanText {
  constructor(episode, index, start, end, kind, turn) {
    Object.assign(this, { index, start, end, kind, turn, trained: kind === "decision" });
    this.decode = () => decodeTokens(episode.bytes, episode.byteStarts[start], episode.byteLengths, start, end);
    this.found = null;
  }

  get decoded() {
    return (this.found ??= this.decode());
  }
  get text() { return this.decoded.text; }
  get ends() { return this.decoded.ends; }
  get joined() { return this.decoded.joined; }
}

export function isFailed(call) {
  return call.status !== "ok" && call.status !== "repaired";
}

// An overlay's name in parts: "rloo/credit:outcome" is {label: "rloo", quantity: "credit", term: "outcome"}.
export function partsOf(name) {
  const found = /^(?:(.*)\/)?(credit|advantage)(?::(.*))?$/s.exec(name);
  return found ? { label: found[1] ?? "", quantity: found[2], term: found[3] ?? null } : { label: "", quantity: name, term: null };
}

// Where token `token` of `span` starts in the span's text.
export function startOf(span, token) {
  let i = token - span.start;
  while (i > 0 && span.joined[i]) i--;
  return i === 0 ? 0 : span.ends[i - 1];
}

// The token of `span` that owns the UTF-16 unit at `offset` of its text: the first of its run.
export function tokenAt(span, offset) {
  let low = 0, high = span.ends.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (span.ends[middle] <= offset) low = middle + 1;
    else high = middle;
  }
  return span.start + low;
}

// The number of tokens that two episodes share from their start.
export function commonPrefix(a, b) {
  const length = Math.min(a.length, b.length);
  let t = 0;
  while (t < length && a.ids[t] === b.ids[t]) t++;
  return t;
}
