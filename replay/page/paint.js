// Draws overlays on text without an element a token: CSS highlights over the text nodes of chunks.
//
// A chunk is one block of text with one text node. Only chunks near the window are painted; the rest is painted as it
// comes near. Without CSS highlights a chunk near the window is filled with one span a run instead.

import { startOf } from "./episode.js";
import { HIGHLIGHTS } from "./overlay.js";

const MARKS = ["hover", "caret", "range"];

export class Painter {
  constructor(useHighlights = Boolean(globalThis.CSS?.highlights && globalThis.Highlight)) {
    this.useHighlights = useHighlights;
    this.near = new Set();
    this.painted = new Set();
    this.chunkOf = new WeakMap();
    this.bucketOf = () => () => null;
    this.borders = false;
    this.highlights = new Map();
    if (useHighlights) {
      for (const name of [...HIGHLIGHTS, ...MARKS]) {
        const highlight = new Highlight();
        highlight.priority = { even: -1, special: 1 }[name] ?? (MARKS.includes(name) ? 2 + MARKS.indexOf(name) : 0);
        this.highlights.set(name, highlight);
        CSS.highlights.set(name, highlight);
      }
    }
    this.marks = new Map(MARKS.map((name) => [name, null]));
    this.observer = new IntersectionObserver((entries) => this.moved(entries), { rootMargin: "600px 0px" });
  }

  // Forgets all chunks: another view comes.
  reset() {
    this.observer.disconnect();
    for (const highlight of this.highlights.values()) highlight.clear();
    this.near.clear();
    this.painted.clear();
    for (const name of MARKS) this.marks.set(name, null);
  }

  add(chunk) {
    this.chunkOf.set(chunk.element, chunk);
    this.observer.observe(chunk.element);
  }

  // Sets what is drawn: `bucketOf(chunk)` gives (token, span) -> the name of a highlight or null; `borders`: whether every
  // second token is shaded, so that each can be told from its neighbours.
  colour(bucketOf, borders = false) {
    this.bucketOf = bucketOf;
    this.borders = borders;
    for (const [name, highlight] of this.highlights) if (!MARKS.includes(name)) highlight.clear();
    this.painted.clear();
    for (const chunk of this.near) this.paint(chunk);
  }

  moved(entries) {
    for (const entry of entries) {
      const chunk = this.chunkOf.get(entry.target);
      if (!entry.isIntersecting) this.near.delete(chunk);
      else {
        this.near.add(chunk);
        this.paint(chunk);
      }
    }
  }

  paintAll(chunks) {
    for (const chunk of chunks) this.paint(chunk);
  }

  // Paints what a chunk shows: all of it, or its tokens up to `chunk.shown` while a replay writes it.
  paint(chunk) {
    if (this.painted.has(chunk)) return;
    this.painted.add(chunk);
    if (this.useHighlights) this.paintTokens(chunk, chunk.first, chunk.shown ?? chunk.last);
    else this.fill(chunk);
  }

  // A replay wrote the tokens [from, to) of a chunk: only they are painted.
  extend(chunk, from, to) {
    if (!this.painted.has(chunk)) return;
    if (this.useHighlights) this.paintTokens(chunk, from, to);
    else this.fill(chunk);
  }

  paintTokens(chunk, from, to) {
    for (const [name, start, end] of this.runs(chunk, from, to)) if (name) this.highlights.get(name).add(rangeIn(chunk, start, end));
    for (let t = from; t < to; t++) {
      const special = chunk.episode.isSpecial(t);
      if (!special && !(this.borders && t % 2 === 0)) continue;
      const start = startOf(chunk.span, t) - chunk.start, end = chunk.span.ends[t - chunk.span.start] - chunk.start;
      if (special) this.highlights.get("special").add(rangeIn(chunk, start, end));
      if (this.borders && t % 2 === 0) this.highlights.get("even").add(rangeIn(chunk, start, end));
    }
  }

  // Without CSS highlights: one span a run.
  fill(chunk) {
    const pieces = this.runs(chunk, chunk.first, chunk.shown ?? chunk.last).map(([name, start, end]) => {
      const piece = document.createElement("span");
      if (name) piece.className = `h-${name}`;
      piece.append(document.createTextNode(chunk.text.slice(start, end)));
      return piece;
    });
    chunk.element.replaceChildren(...pieces);
  }

  // The runs of one bucket in the tokens [from, to) of a chunk: [name, start, end] in UTF-16 units of the chunk's text.
  runs(chunk, from, to) {
    const { span } = chunk;
    const bucket = this.bucketOf(chunk);
    const found = [];
    let at = to > from ? startOf(span, from) - chunk.start : 0, name = null;
    for (let t = from; t < to; t++) {
      const end = span.ends[t - span.start] - chunk.start;
      const next = bucket(t, span);
      if (next !== name) {
        const start = startOf(span, t) - chunk.start;
        if (start > at) found.push([name, at, start]);
        at = start;
        name = next;
      }
      if (t === to - 1 && end > at) found.push([name, at, end]);
    }
    return found;
  }

  // Marks token ranges: "hover" a token under the pointer, "caret" the token looked at, "range" a call or a charge.
  mark(name, chunks, first, last) {
    const key = first === null ? null : `${first}-${last}`;
    if (this.marks.get(name) === key) return;
    this.marks.set(name, key);
    const highlight = this.highlights.get(name);
    highlight?.clear();
    if (first === null || (!highlight && name !== "caret")) return;
    for (const chunk of chunks) {
      const shown = chunk.shown ?? chunk.last;
      if (shown <= first || last <= chunk.first) continue;
      const from = Math.max(first, chunk.first), to = Math.min(last, shown);
      const start = startOf(chunk.span, from) - chunk.start, end = chunk.span.ends[to - 1 - chunk.span.start] - chunk.start;
      if (end <= start) continue;
      if (highlight) highlight.add(rangeIn(chunk, start, end));
      else {
        // Without highlights the selection stands in for the caret.
        getSelection().removeAllRanges();
        getSelection().addRange(liveRange(chunk, start, end));
      }
    }
  }
}

function rangeIn(chunk, start, end) {
  const node = chunk.element.firstChild;
  return new StaticRange({ startContainer: node, startOffset: start, endContainer: node, endOffset: end });
}

// A live range over part of a chunk's text, to be measured or scrolled to.
export function liveRange(chunk, start, end) {
  const range = document.createRange();
  const walker = document.createTreeWalker(chunk.element, NodeFilter.SHOW_TEXT);
  let passed = 0, begun = false;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const length = node.data.length;
    if (!begun && start <= passed + length) {
      range.setStart(node, start - passed);
      begun = true;
    }
    if (begun && end <= passed + length) {
      range.setEnd(node, end - passed);
      return range;
    }
    passed += length;
  }
  range.selectNodeContents(chunk.element);
  return range;
}

// The UTF-16 offset in a chunk's text under a point of the window, or null.
export function offsetAt(x, y, chunkOf) {
  let node, offset;
  if (document.caretPositionFromPoint) {
    const caret = document.caretPositionFromPoint(x, y);
    if (!caret) return null;
    node = caret.offsetNode;
    offset = caret.offset;
  } else {
    const caret = document.caretRangeFromPoint?.(x, y);
    if (!caret) return null;
    node = caret.startContainer;
    offset = caret.startOffset;
  }
  if (node?.nodeType !== Node.TEXT_NODE) return null;
  const element = node.parentElement?.closest(".chunk");
  const chunk = element && chunkOf.get(element);
  if (!chunk) return null;
  // A caret lies between characters: take the one that the point is in.
  const range = document.createRange();
  const holds = (start) => {
    if (start < 0 || start >= node.data.length) return false;
    range.setStart(node, start);
    range.setEnd(node, start + 1);
    return [...range.getClientRects()].some((r) => r.left <= x && x <= r.right && r.top <= y && y <= r.bottom);
  };
  const inside = holds(offset) ? offset : holds(offset - 1) ? offset - 1 : null;
  if (inside === null) return null;
  let before = 0;
  for (let child = chunk.element.firstChild; child; child = child.nextSibling) {
    if (child === node || child.contains(node)) break;
    before += child.textContent.length;
  }
  return { chunk, offset: before + inside };
}
