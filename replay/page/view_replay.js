// The replay: the episode is written token by token, as the policy lived it or with its credit in hindsight. Text is
// only appended as it plays: what is past is not drawn again. As lived, nothing tells what lies behind the position: no
// length, no strip, no way to what failed or was paid; the slider reaches as far as was seen.

import { above, secondsOf, stopsOf } from "./clock.js";
import { byId, el, plain } from "./dom.js";
import { buildMessages } from "./messages.js";
import { jumpName, scaleOf } from "./overlay.js";
import { liveRange } from "./paint.js";
import { freeHeight, reader } from "./reader.js";
import { app, saveAddress } from "./state.js";
import { STRIP_PX, drawStrip, paletteOf } from "./strip.js";
import { renderToolPane } from "./tool_pane.js";

const UNITS = { token: "token", call: "call", turn: "turn", clock: "wall clock" };
const BASE = { token: 30, call: 1, turn: 1, clock: 1 }; // stops a second at speed 1; of the clock, seconds a second
const SPEEDS = [0.25, 1, 4, 16, 64, 256];

const film = { seen: 0, reached: 0, lived: false, begin: 0, stops: null, seconds: null, playing: false, speed: 1, last: 0, due: 0, strip: null, needle: null };

export const replayView = {
  title: "Replay",
  panel: true,
  anewOn: ["unit"],

  show() {
    const { episode } = app;
    const built = buildMessages(episode, (first, last) => seek(last, true));
    reader.show(episode, built);
    film.seconds = secondsOf(episode);
    if (app.unit === "clock" && !film.seconds) app.unit = "token";
    film.stops = stopsOf(episode, app.unit === "clock" ? "token" : app.unit);
    film.begin = film.stops[0];
    Object.assign(film, { playing: false, seen: 0, reached: 0, lived: app.lived });
    for (const chunk of built.chunks) {
      chunk.shown = chunk.first;
      chunk.element.firstChild.data = "";
      chunk.element.hidden = true;
    }
    for (const { element } of built.timed) element.hidden = true;
    film.strip = el("canvas", { class: "strip", onclick: (event) => seek(tokenOf(event), true), role: "img", "aria-label": "credit strip of the episode" });
    film.strip.style.height = `${STRIP_PX}px`;
    film.needle = el("i", { class: "needle" });
    byId("messages").replaceChildren(controls(), ...built.blocks);
    byId("tool").hidden = false;
    scrollTo(0, 0);
    reader.recolour(() => app.overlay);
    drawFilm();
    seek(app.token === null ? film.begin : app.token + 1, true);
  },

  // Another token of the same episode, from outside.
  move() {
    const wanted = app.token === null ? film.begin : app.token + 1;
    if (wanted !== film.seen) seek(wanted, true);
  },

  hide() {
    pause();
    byId("tool").hidden = true;
    document.documentElement.classList.remove("lived");
  },

  recolour() {
    if (film.lived !== app.lived) Object.assign(film, { lived: app.lived, reached: film.seen });
    reader.recolour();
    settle();
    drawFilm();
  },

  keys: {
    " ": () => (film.playing ? pause() : play()),
    ".": () => byStep(1), ",": () => byStep(-1),
    ">": () => toTurn(1), "<": () => toTurn(-1),
    j: () => toBorder(1), k: () => toBorder(-1),
    n: () => app.lived || toCredited(1), p: () => app.lived || toCredited(-1),
    e: () => app.lived || toFailedCall(1), E: () => app.lived || toFailedCall(-1),
    g: () => seek(film.begin, true), G: () => seek(app.episode.length, true),
    v: () => app.go({ lived: !app.lived }),
    b: () => app.go({ unit: nextUnit() }),
  },
};

function nextUnit() {
  const units = Object.keys(UNITS).filter((unit) => unit !== "clock" || film.seconds);
  return units[(units.indexOf(app.unit) + 1) % units.length];
}

function controls() {
  const option = (value, label, chosen) => el("option", { value, selected: chosen }, label);
  const units = Object.entries(UNITS).map(([unit, label]) => {
    const made = option(unit, label, unit === app.unit);
    made.disabled = unit === "clock" && !film.seconds;
    return made;
  });
  return el("div", { class: "player", role: "group", "aria-label": "Replay" },
    el("div", { class: "player-row" },
      el("button", { type: "button", id: "play", class: "action", onclick: () => (film.playing ? pause() : play()), title: "space" }, "Play"),
      el("label", null, "by ", el("select", { id: "unit", onchange: (event) => app.go({ unit: event.target.value }) }, ...units)),
      el("label", null, "speed ", el("select", { id: "speed", onchange: (event) => (film.speed = Number(event.target.value)) }, ...SPEEDS.map((speed) => option(speed, `${speed}×`, speed === film.speed)))),
      el("button", { type: "button", id: "lived", class: "action", onclick: () => app.go({ lived: !app.lived }), title: "v: as lived hides the credit, which the policy did not know" }, "As lived"),
      el("span", { id: "position", class: "about", role: "status", "aria-live": "off" })),
    el("input", { type: "range", id: "seek", min: 0, max: app.episode.length, step: 1, "aria-label": "Position in tokens", oninput: (event) => seek(Number(event.target.value), true) }),
    el("div", { class: "strip-box" }, film.strip, film.needle));
}

function drawFilm() {
  const scale = scaleOf(app.episode, app.overlay, app.presses);
  film.strip.parentElement.hidden = app.lived;
  if (!app.lived) drawStrip(film.strip, app.episode, { name: app.overlay, scale, to: app.episode.length, palette: paletteOf(film.strip) });
}

function tokenOf(event) {
  const box = film.strip.getBoundingClientRect();
  return Math.round(((event.clientX - box.left) / box.width) * app.episode.length);
}

// Shows the first `to` tokens. Forward it appends; backward it cuts off, and only what is near is painted anew.
function seek(to, still) {
  const { chunks, timed } = reader.built;
  const wanted = Math.max(0, Math.min(app.episode.length, to));
  if (still) pause();
  const back = wanted < film.seen;
  for (const chunk of chunks) {
    const upTo = Math.max(chunk.first, Math.min(chunk.last, wanted));
    if (upTo !== chunk.shown) write(chunk, upTo, back);
  }
  for (const { element, at } of timed) {
    const hidden = at > 0 && (at === app.episode.length ? wanted < at : at >= wanted);
    if (element.hidden !== hidden) element.hidden = hidden;
  }
  film.seen = wanted;
  film.reached = Math.max(film.reached, wanted);
  if (back) reader.recolour();
  settle();
}

function write(chunk, upTo, back) {
  const length = upTo === chunk.first ? 0 : chunk.span.ends[upTo - 1 - chunk.span.start] - chunk.start;
  const from = chunk.shown;
  chunk.shown = upTo;
  chunk.element.hidden = upTo === chunk.first;
  if (!reader.painter.useHighlights) {
    reader.painter.painted.delete(chunk);
    chunk.element.replaceChildren(document.createTextNode(chunk.text.slice(0, length)));
    reader.painter.paint(chunk);
    return;
  }
  const node = chunk.element.firstChild;
  if (back) node.deleteData(length, node.length - length);
  else {
    node.appendData(chunk.text.slice(node.length, length));
    reader.painter.extend(chunk, from, upTo);
  }
}

// What follows the position: caret, ledger, tool pane, controls, the last line in sight.
function settle() {
  const { episode } = app;
  const token = film.seen > 0 ? film.seen - 1 : null;
  app.token = token;
  const run = token === null ? [null, null] : episode.runOf(token);
  reader.painter.mark("caret", reader.built.chunks, ...run);
  reader.ledger(token, true);
  renderToolPane(byId("tool"), episode, film.seen, app.lived);
  const now = film.seconds ? ` · ${plain(film.seconds[film.seen === episode.length ? film.seen : Math.max(0, film.seen - 1)], 2)} s` : "";
  const turn = token === null ? -1 : episode.spanOf(token).turn;
  const whole = app.lived ? "" : ` of ${episode.length.toLocaleString("en")}`;
  byId("position").textContent = `token ${film.seen.toLocaleString("en")}${whole}${turn >= 0 ? ` · turn ${turn}` : ""}${now}`;
  byId("seek").max = String(app.lived ? film.reached : episode.length);
  byId("seek").value = String(film.seen);
  byId("seek").setAttribute("aria-valuetext", byId("position").textContent);
  byId("lived").textContent = app.lived ? "As lived" : "In hindsight";
  byId("lived").setAttribute("aria-pressed", String(app.lived));
  document.documentElement.classList.toggle("lived", app.lived);
  const share = `${(100 * film.seen) / episode.length}%`;
  film.needle.style.left = app.lived ? "0" : share;
  if (!film.playing) saveAddress();
  follow(token);
}

function follow(token) {
  if (token === null) return;
  const chunk = reader.built.chunks.findLast(({ first, element }) => first <= token && element.offsetParent); // of text in sight
  const fold = chunk?.element.closest("details");
  if (!chunk || (fold && !fold.open)) return;
  const end = chunk.element.textContent.length;
  const box = end ? liveRange(chunk, Math.max(0, end - 1), end).getBoundingClientRect() : chunk.element.getBoundingClientRect();
  const top = document.querySelector(".player").getBoundingClientRect().bottom + 20, bottom = freeHeight()[1] - 40;
  if (box.bottom > bottom) scrollBy(0, box.bottom - bottom + 40);
  else if (box.top < top) scrollBy(0, box.top - top - 60);
}

function play() {
  if (film.seen >= app.episode.length) seek(film.begin, false);
  film.playing = true;
  film.last = performance.now();
  film.due = 0;
  byId("play").textContent = "Pause";
  requestAnimationFrame(advance);
}

function pause() {
  if (!film.playing) return;
  film.playing = false;
  if (byId("play")) byId("play").textContent = "Play";
  saveAddress();
}

function advance(now) {
  if (!film.playing) return;
  const passed = ((now - film.last) / 1000) * film.speed * BASE[app.unit];
  film.last = now;
  film.due += passed;
  if (app.unit === "clock") {
    const time = film.seconds[Math.max(0, film.seen - 1)] + film.due;
    const next = above(film.seconds.subarray(0, app.episode.length), time);
    if (next > film.seen) {
      film.due = Math.max(0, time - film.seconds[next - 1]);
      seek(next, false);
    } else if (film.seen === app.episode.length) pause();
  } else if (film.due >= 1) {
    const at = Math.min(film.stops.length, above(film.stops, film.seen) + Math.floor(film.due) - 1);
    film.due %= 1;
    seek(film.stops[Math.min(at, film.stops.length - 1)], false);
  }
  if (film.seen >= app.episode.length) pause();
  else requestAnimationFrame(advance);
}

function byStep(by) {
  const at = above(film.stops, film.seen - (by < 0 ? 1 : 0));
  seek(film.stops[Math.max(0, Math.min(film.stops.length - 1, by > 0 ? at : at - 1))], true);
}

function toTurn(by) {
  const starts = app.episode.turnStarts().filter((start) => start !== undefined);
  const next = by > 0 ? starts.find((start) => start > film.seen) : starts.findLast((start) => start < film.seen - 1);
  seek(next ?? (by > 0 ? app.episode.length : film.begin), true);
}

function toBorder(by) {
  const ends = app.episode.spans.map((span) => span.end);
  const next = by > 0 ? ends.find((end) => end > film.seen) : ends.findLast((end) => end < film.seen);
  seek(next ?? (by > 0 ? app.episode.length : film.begin), true);
}

// To the end of the next stretch of one value that is not 0, or of the one before.
function toCredited(by) {
  const values = app.episode.signal(jumpName(app.overlay));
  if (!values) return;
  const { length } = app.episode;
  const ends = (t) => values[t] !== 0 && app.episode.spanOf(t).trained && (t + 1 === length || values[t + 1] !== values[t] || app.episode.spanOf(t).end === t + 1);
  for (let t = film.seen - 1 + by; t >= 0 && t < length; t += by) if (ends(t)) return seek(t + 1, true);
}

function toFailedCall(by) {
  const failed = app.episode.failedCalls().map(({ call }) => afterAnswer(call));
  const next = by > 0 ? failed.find((at) => at > film.seen) : failed.findLast((at) => at < film.seen);
  if (next !== undefined) seek(next, true);
}

function afterAnswer(call) {
  const answer = app.episode.spans.find((span) => span.kind === "feedback" && span.turn === call.turn);
  return (answer ?? app.episode.spanOf(call.start)).end;
}
