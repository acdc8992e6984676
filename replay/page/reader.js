// The text under the reader's hand: which token is pointed at or kept, what is marked, and the steps between tokens.
//
// The views that show text (episode, replay, compare) hand their chunks over with `show`; there is one reader, because
// there is one registry of CSS highlights.

import { startOf, tokenAt } from "./episode.js";
import { byId } from "./dom.js";
import { renderLedger } from "./ledger.js";
import { renderLivedToken } from "./lived.js";
import { bucketer, jumpName, scaleOf } from "./overlay.js";
import { Painter, liveRange, offsetAt } from "./paint.js";
import { app, livedNow, saveAddress } from "./state.js";

const NARROW = "(max-width: 760px)";

// The part of the window that the head and, on a narrow screen, the panel leave free: [top, bottom] in pixels.
export function freeHeight() {
  return [byId("top").getBoundingClientRect().bottom, innerHeight - (matchMedia(NARROW).matches ? byId("panel").offsetHeight : 0)];
}

class Reader {
  constructor() {
    this.painter = new Painter(new URLSearchParams(location.search).has("spans") ? false : undefined);
    this.clear();
    this.frame = 0;
  }

  clear() {
    this.painter.reset();
    Object.assign(this, { built: null, episode: null, call: -1, message: -1, colour: null, onKeep: null });
  }

  // Takes over what a view built: chunks, messages and calls of `episode`. `onKeep(token)` hears of a kept token.
  show(episode, built, onKeep = null) {
    this.clear();
    Object.assign(this, { episode, built, onKeep });
  }

  // Colours all chunks; `names(chunk)` gives the overlay of a chunk, by default the chosen one.
  recolour(names = null) {
    if (names) this.colour = names;
    const found = new Map();
    this.painter.colour((chunk) => {
      const name = this.colour?.(chunk) ?? app.overlay;
      if (livedNow()) return () => null;
      const key = `${chunk.column ?? 0} ${name}`;
      if (!found.has(key)) found.set(key, bucketer(chunk.episode, name, this.scale?.(name) ?? scaleOf(chunk.episode, name, app.presses)));
      return found.get(key);
    }, app.tokens);
    for (const chunk of this.built.chunks) if (!this.painter.chunkOf.has(chunk.element)) this.painter.add(chunk);
  }

  chunksOf(episode) {
    return this.built.chunks.filter((chunk) => chunk.episode === episode);
  }

  // Keeps a token: marks it, shows its ledger, and puts it in the address. null lets go.
  look(token, scroll = true) {
    app.token = token;
    const run = token === null ? [null, null] : this.episode.runOf(token);
    this.painter.mark("caret", this.chunksOf(this.episode), ...run);
    if (token === null) this.painter.mark("range", [], null, null);
    this.ledger(token, token !== null);
    if (token !== null && scroll) this.reveal(...run);
    this.onKeep?.(token);
    saveAddress();
  }

  ledger(token, kept, episode = this.episode) {
    if (livedNow()) renderLivedToken(byId("ledger"), episode, token);
    else renderLedger(byId("ledger"), episode, token, kept);
  }

  hover(token, episode = this.episode) {
    if (app.token !== null && app.view !== "replay") return;
    this.painter.mark("hover", this.chunksOf(episode), ...(token === null ? [null, null] : episode.runOf(token)));
    this.ledger(token ?? app.token, token === null && app.token !== null, episode);
  }

  range(first, last, call = null) {
    this.look(first);
    this.painter.mark("range", this.chunksOf(this.episode), first, last);
    if (call !== null) this.call = call;
  }

  chunkAt(token) {
    return this.built.chunks.find((chunk) => chunk.episode === this.episode && chunk.first <= token && token < chunk.last);
  }

  reveal(first, last) {
    const chunk = this.chunkAt(first);
    if (!chunk || (chunk.shown ?? chunk.last) <= first) return;
    const fold = chunk.element.closest("details");
    if (fold) fold.open = true;
    if (!chunk.element.offsetParent && chunk.span.kind === "scaffold") setTokens(true);
    const from = startOf(chunk.span, first) - chunk.start;
    const to = Math.min(chunk.text.length, chunk.span.ends[last - 1 - chunk.span.start] - chunk.start);
    this.message = this.built.messages.findIndex(({ spans }) => spans.includes(chunk.span));
    // Text that was never laid out has only an estimated place: the first scroll brings it near, the second exact.
    const bring = () => {
      const box = liveRange(chunk, from, to).getBoundingClientRect();
      const [top, bottom] = [freeHeight()[0] + 8, freeHeight()[1] - 8];
      if (box.top < top || box.bottom > bottom) scrollBy(0, box.top - top - (bottom - top) / 3);
    };
    const near = chunk.element.getBoundingClientRect();
    if (near.bottom < 0 || near.top > innerHeight) chunk.element.scrollIntoView({ block: "nearest" });
    bring();
    requestAnimationFrame(bring);
  }

  stepMessage(by) {
    const { messages } = this.built;
    const shown = messages.filter(({ element }) => !element.hidden);
    const at = shown.indexOf(messages[this.message]);
    const next = shown[Math.max(0, Math.min(shown.length - 1, at + by))];
    if (!next) return;
    this.message = messages.indexOf(next);
    const target = next.element.querySelector(":scope > summary") ?? next.element;
    target.focus({ preventScroll: true });
    next.element.scrollIntoView({ block: "start" });
  }

  // Jumps to the next stretch of decision tokens of one value that is not 0.
  stepCredited(by) {
    const values = this.episode.signal(jumpName(app.overlay));
    if (!values) return;
    const { length } = this.episode;
    const credited = (t) => t >= 0 && t < length && values[t] !== 0 && this.episode.spanOf(t).trained;
    const starts = (t) => credited(t) && !(t > 0 && values[t - 1] === values[t] && this.episode.spanOf(t).start < t);
    for (let t = (app.token ?? (by > 0 ? this.visibleToken() - 1 : length)) + by; t >= 0 && t < length; t += by) {
      if (!starts(t)) continue;
      let end = t + 1;
      while (credited(end) && values[end] === values[t] && end < this.episode.spanOf(t).end) end++;
      this.range(t, end);
      return;
    }
  }

  visibleToken() {
    const top = byId("top").getBoundingClientRect().bottom;
    return this.chunksOf(this.episode).find(({ element }) => element.getBoundingClientRect().bottom > top && element.offsetParent)?.first ?? 0;
  }

  // Goes to the next failed call of this episode; returns whether there was one.
  stepFailed(by) {
    const failed = this.episode.failedCalls();
    const found = by > 0 ? failed.find(({ index }) => index > this.call) : failed.findLast(({ index }) => index < this.call);
    if (!found) return false;
    const charge = this.episode.header.charges.find(({ call }) => call === found.index);
    this.range(charge?.start ?? found.call.start, charge?.end ?? found.call.end, found.index);
    this.built.calls.get(found.index)?.querySelector("button").focus({ preventScroll: true });
    return true;
  }

  stepToken(by) {
    if (app.token === null) return this.look(this.visibleToken());
    const [first, last] = this.episode.runOf(app.token);
    const next = by > 0 ? last : first - 1;
    return next >= 0 && next < this.episode.length ? this.look(next) : null;
  }

  stepTurn(by) {
    const starts = this.episode.turnStarts().filter((start) => start !== undefined);
    const at = app.token ?? -1;
    const next = by > 0 ? starts.find((start) => start > at) : starts.findLast((start) => start < at);
    if (next !== undefined) this.look(next);
  }

  under(event) {
    const found = offsetAt(event.clientX, event.clientY, this.painter.chunkOf);
    return found ? { chunk: found.chunk, token: tokenAt(found.chunk.span, found.chunk.start + found.offset) } : null;
  }
}

export const reader = new Reader();

// Turns "tokens" mode on or off: the template is shown, every second token is shaded, copying gives ids.
export function setTokens(on) {
  app.tokens = on;
  document.documentElement.classList.toggle("token-mode", on);
  byId("mode")?.setAttribute("aria-pressed", String(on));
}

export function startReader() {
  const main = byId("messages");
  main.addEventListener("pointermove", (event) => {
    if (reader.frame || event.pointerType === "touch" || !reader.built) return;
    reader.frame = requestAnimationFrame(() => {
      reader.frame = 0;
      if (!reader.built) return;
      const found = reader.under(event);
      reader.hover(found?.token ?? null, found?.chunk.episode);
    });
  });
  main.addEventListener("pointerleave", () => reader.built && reader.hover(null));
  main.addEventListener("click", (event) => {
    if (!reader.built || event.target.closest("button, summary, pre, select, input, label") || !getSelection().isCollapsed) return;
    const found = reader.under(event);
    if (!found && app.view === "replay") return;
    reader.hover(null);
    if (found && found.chunk.episode !== reader.episode) Object.assign(reader, { episode: found.chunk.episode }) && (app.token = null);
    reader.look(found && found.token !== app.token ? found.token : null, false);
  });
  main.addEventListener("focusin", (event) => {
    const index = reader.built?.messages.findIndex(({ element }) => element.contains(event.target)) ?? -1;
    if (index >= 0) reader.message = index;
  });
  document.addEventListener("copy", (event) => {
    const ids = app.tokens ? selectedIds() : null;
    if (!ids) return;
    event.clipboardData.setData("text/plain", ids.join(" "));
    event.preventDefault();
  });
  addEventListener("beforeprint", () => reader.built && reader.painter.paintAll(reader.built.chunks));
}

// How much of a chunk's text is on the page: all of it, or what a replay has written, in UTF-16 units.
function lengthOf({ shown, first, span, start, text }) {
  if (shown === undefined) return text.length;
  return shown === first ? 0 : span.ends[shown - 1 - span.start] - start;
}

// The ids of the tokens that the selection touches, or null.
function selectedIds() {
  const selection = getSelection();
  if (!reader.built || selection.isCollapsed) return null;
  const range = selection.getRangeAt(0);
  const ids = [];
  for (const chunk of reader.built.chunks) {
    const written = lengthOf(chunk);
    if (!written || !range.intersectsNode(chunk.element)) continue;
    const whole = liveRange(chunk, 0, written);
    const before = (node, offset) => {
      const part = document.createRange();
      part.setStart(whole.startContainer, whole.startOffset);
      part.setEnd(node, offset);
      return part.toString().length;
    };
    const from = chunk.element.contains(range.startContainer) ? before(range.startContainer, range.startOffset) : 0;
    const to = chunk.element.contains(range.endContainer) ? before(range.endContainer, range.endOffset) : written;
    if (to <= from) continue;
    const first = tokenAt(chunk.span, chunk.start + from), last = tokenAt(chunk.span, chunk.start + to - 1);
    ids.push(...chunk.episode.ids.subarray(first, chunk.episode.runOf(last)[1]));
  }
  return ids.length ? ids : null;
}
