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
    this.bucket = () => null;
    this.special = () => false;
    this.highlights = new Map();
    if (useHighlights) {
      for (const name of [...HIGHLIGHTS, ...MARKS]) {
        const highlight = new Highlight();
        highlight.priority = name === "special" ? 1 : MARKS.indexOf(name) >= 0 ? 2 + MARKS.indexOf(name) : 0;
        this.highlights.set(name, highlight);
        CSS.highlights.set(name, highlight);
      }
    }
    this.marks = new Map(MARKS.map((name) => [name, null]));
    this.observer = new IntersectionObserver((entries) => this.moved(entries), { rootMargin: "600px 0px" });
  }

  // Forgets all chunks: another episode comes.
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

  // Sets what is drawn: `bucket(token, span)` gives the name of a highlight or null.
  colour(bucket, special) {
    this.bucket = bucket;
    this.special = special;
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

  paint(chunk) {
    if (this.painted.has(chunk)) return;
    this.painted.add(chunk);
    const runs = this.runs(chunk);
    if (this.useHighlights) {
      for (const [name, start, end] of runs) if (name) this.highlights.get(name).add(rangeIn(chunk, start, end));
      for (let t = chunk.first; t < chunk.last; t++) {
        if (!this.special(t)) continue;
        const start = startOf(chunk.span, t);
        this.highlights.get("special").add(rangeIn(chunk, start - chunk.start, chunk.span.ends[t - chunk.span.start] - chunk.start));
      }
      return;
    }
    const pieces = runs.map(([name, start, end]) => {
      const piece = document.createElement("span");
      if (name) piece.className = `h-${name}`;
      piece.append(document.createTextNode(chunk.text.slice(start, end)));
      return piece;
    });
    chunk.element.replaceChildren(...pieces);
  }

  // The runs of one bucket in a chunk: [name, start, end] in UTF-16 units of the chunk's text.
  runs(chunk) {
    const { span } = chunk;
    const found = [];
    let at = 0, name = null;
    for (let t = chunk.first; t < chunk.last; t++) {
      const end = span.ends[t - span.start] - chunk.start;
      const next = this.bucket(t, span);
      if (next !== name) {
        const start = startOf(span, t) - chunk.start;
        if (start > at) found.push([name, at, start]);
        at = start;
        name = next;
      }
      if (t === chunk.last - 1 && end > at) found.push([name, at, end]);
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
      if (chunk.last <= first || last <= chunk.first) continue;
      const from = Math.max(first, chunk.first), to = Math.min(last, chunk.last);
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
