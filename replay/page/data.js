// Reads packed episodes (see pack.py for the layout) and answers questions about their tokens.

import { decodeTokens } from "./utf8.js";

const DTYPES = { i4: Int32Array, u4: Uint32Array, u1: Uint8Array, f4: Float32Array };

export function readRun() {
  return JSON.parse(document.getElementById("run").textContent);
}

export async function readEpisode(index, entry) {
  const text = document.getElementById(`episode-${index}`).textContent;
  const stream = new Blob([fromBase64(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const raw = await new Response(stream).arrayBuffer();
  const size = new DataView(raw).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(raw, 4, size)));
  const columns = new Map();
  for (const [name, dtype, offset, length] of header.columns) {
    const Type = DTYPES[dtype];
    const start = 4 + size + offset;
    columns.set(name, new Type(raw.slice(start, start + length * Type.BYTES_PER_ELEMENT)));
  }
  return new Episode(header, columns, entry);
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

export class Episode {
  constructor(header, columns, entry) {
    this.header = header;
    this.entry = entry;
    this.ids = columns.get("token_id");
    this.logprobs = columns.get("logprob");
    this.length = this.ids.length;
    this.bytes = columns.get("bytes");
    this.byteLengths = columns.get("byte_length");
    this.byteStarts = new Uint32Array(this.length + 1);
    for (let t = 0; t < this.length; t++) this.byteStarts[t + 1] = this.byteStarts[t] + this.byteLengths[t];
    this.ledgers = {};
    for (const quantity of ["credit", "advantage"]) {
      const names = header[`${quantity}_terms`];
      if (names) this.ledgers[quantity] = names.map((name) => ({ name, values: columns.get(`${quantity}:${name}`) }));
    }
    this.spans = header.spans.map(([start, end, kind, turn], index) => {
      const decoded = decodeTokens(this.bytes, this.byteStarts[start], this.byteLengths, start, end);
      return { index, start, end, kind, turn, trained: kind === "decision", ...decoded };
    });
    this.totals = {};
  }

  // Float64 sum of the terms of `credit` or `advantage`, or null where no credit was stored.
  total(quantity) {
    if (!this.ledgers[quantity]) return null;
    if (!this.totals[quantity]) {
      const total = new Float64Array(this.length);
      for (const { values } of this.ledgers[quantity]) for (let t = 0; t < total.length; t++) total[t] += values[t];
      this.totals[quantity] = total;
    }
    return this.totals[quantity];
  }

  // The values of an overlay: "credit", "advantage", "credit:outcome", ..., "logprob".
  signal(name) {
    if (name === "logprob") return this.logprobs;
    const [quantity, term] = split(name);
    if (term === null) return this.total(quantity);
    return this.ledgers[quantity]?.find((found) => found.name === term)?.values ?? null;
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
}

export function isFailed(call) {
  return call.status !== "ok" && call.status !== "repaired";
}

export function split(name) {
  const colon = name.indexOf(":");
  return colon < 0 ? [name, null] : [name.slice(0, colon), name.slice(colon + 1)];
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
