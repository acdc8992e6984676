// The page: one episode at a time, its overlay, the token looked at, the keys, and the address that holds them.

import { openSource } from "./data.js";
import { startOf, tokenAt } from "./episode.js";
import { renderHeading, renderHelp, renderLegend, renderList, renderNotice, renderOverlays } from "./frame.js";
import { renderLedger } from "./ledger.js";
import { buildMessages } from "./messages.js";
import { bucketer, jumpName, overlaysOf } from "./overlay.js";
import { Painter, liveRange, offsetAt } from "./paint.js";

const source = await openSource();
const run = { ...source.run, episodes: Array.from({ length: source.listing.rows }, (_, row) => source.listing.entry(row)) };
const main = document.getElementById("messages");
const panel = document.getElementById("ledger");
const select = document.getElementById("overlay");
const help = document.getElementById("help");
const painter = new Painter(new URLSearchParams(location.search).has("spans") ? false : undefined);
const state = { index: -1, episode: null, built: null, overlay: null, token: null, message: -1, call: -1, before: null };

async function open(index, token = null) {
  const entry = run.episodes[index];
  const episode = await source.episode(index);
  painter.reset();
  Object.assign(state, { index, episode, token: null, message: -1, call: -1 });
  const names = overlaysOf(episode).map((overlay) => overlay.name);
  if (!names.includes(state.overlay)) state.overlay = names[0];
  state.built = buildMessages(episode, (first, last, call) => showRange(first, last, call));
  renderHeading(entry);
  renderList(run, index, (chosen) => open(chosen));
  renderOverlays(episode, state.overlay);
  main.replaceChildren(...state.built.blocks);
  document.title = `${entry.task || entry.id} · ${run.title}`;
  scrollTo(0, 0);
  recolour();
  for (const chunk of state.built.chunks) painter.add(chunk);
  look(Number.isInteger(token) && token >= 0 && token < episode.length ? token : null);
  document.documentElement.dataset.ready = String(index);
}

function recolour(name = state.overlay) {
  state.overlay = name;
  select.value = name;
  painter.colour(bucketer(state.episode, name), (token) => state.episode.isSpecial(token));
  renderLegend(state.episode, name);
}

// Keeps a token: marks it, shows its ledger, and puts it in the address. null lets go.
function look(token, scroll = true) {
  state.token = token;
  const run = token === null ? [null, null] : state.episode.runOf(token);
  painter.mark("caret", state.built.chunks, ...run);
  if (token === null) painter.mark("range", state.built.chunks, null, null);
  renderLedger(panel, state.episode, token, token !== null);
  if (token !== null && scroll) reveal(...run);
  saveAddress();
}

function hover(token) {
  if (state.token !== null) return;
  painter.mark("hover", state.built.chunks, ...(token === null ? [null, null] : state.episode.runOf(token)));
  renderLedger(panel, state.episode, token, false);
}

function showRange(first, last, call = null) {
  look(first);
  painter.mark("range", state.built.chunks, first, last);
  if (call !== null) state.call = call;
}

function reveal(first, last) {
  const chunk = state.built.chunks.find((found) => found.first <= first && first < found.last);
  if (!chunk) return;
  const fold = chunk.element.closest("details");
  if (fold) fold.open = true;
  const from = startOf(chunk.span, first) - chunk.start;
  const to = Math.min(chunk.text.length, chunk.span.ends[last - 1 - chunk.span.start] - chunk.start);
  state.message = state.built.messages.findIndex(({ spans }) => spans.includes(chunk.span));
  // Text that was never laid out has only an estimated place: the first scroll brings it near, the second exact.
  const bring = () => {
    const box = liveRange(chunk, from, to).getBoundingClientRect();
    const top = document.getElementById("top").getBoundingClientRect().bottom + 8;
    const bottom = innerHeight - (matchMedia("(max-width: 760px)").matches ? panel.offsetHeight : 0) - 8;
    if (box.top < top || box.bottom > bottom) scrollBy(0, box.top - top - (bottom - top) / 3);
  };
  const near = chunk.element.getBoundingClientRect();
  if (near.bottom < 0 || near.top > innerHeight) chunk.element.scrollIntoView({ block: "nearest" });
  bring();
  requestAnimationFrame(bring);
}

function stepMessage(by) {
  const { messages } = state.built;
  state.message = Math.max(0, Math.min(messages.length - 1, state.message + by));
  const { element } = messages[state.message];
  const target = element.querySelector(":scope > summary") ?? element;
  target.focus({ preventScroll: true });
  element.scrollIntoView({ block: "start" });
}

// Jumps to the next stretch of decision tokens of one value that is not 0.
function stepCredited(by) {
  const values = state.episode.signal(jumpName(state.overlay));
  if (!values) return;
  const { spans, length } = state.episode;
  const credited = (t) => t >= 0 && t < length && values[t] !== 0 && state.episode.spanOf(t).trained;
  const starts = (t) => credited(t) && !(t > 0 && values[t - 1] === values[t] && state.episode.spanOf(t).start < t);
  let t = state.token ?? (by > 0 ? visibleToken() - 1 : length);
  for (t += by; t >= 0 && t < length; t += by) {
    if (!starts(t)) continue;
    let end = t + 1;
    while (credited(end) && values[end] === values[t] && end < state.episode.spanOf(t).end) end++;
    showRange(t, end);
    return;
  }
}

function visibleToken() {
  const top = document.getElementById("top").getBoundingClientRect().bottom;
  return state.built.chunks.find(({ element }) => element.getBoundingClientRect().bottom > top && element.offsetParent)?.first ?? 0;
}

function stepFailed(by) {
  const failed = state.episode.failedCalls();
  const found = by > 0 ? failed.find(({ index }) => index > state.call) : failed.findLast(({ index }) => index < state.call);
  if (!found) return;
  const charge = state.episode.header.charges.find(({ call }) => call === found.index);
  showRange(charge?.start ?? found.call.start, charge?.end ?? found.call.end, found.index);
  state.built.calls.get(found.index)?.querySelector("button").focus({ preventScroll: true });
}

function stepToken(by) {
  if (state.token === null) return look(visibleToken());
  const [first, last] = state.episode.runOf(state.token);
  const next = by > 0 ? last : first - 1;
  if (next >= 0 && next < state.episode.length) look(next);
}

function stepOverlay() {
  const names = overlaysOf(state.episode).map((overlay) => overlay.name);
  recolour(names[(names.indexOf(state.overlay) + 1) % names.length]);
  saveAddress();
}

function toggleMask() {
  const { overlay } = state;
  recolour(overlay === "mask" ? state.before ?? overlaysOf(state.episode)[0].name : "mask");
  state.before = overlay;
  saveAddress();
}

function letGo() {
  if (help.open) help.close();
  look(null);
  document.activeElement?.blur?.();
}

const KEY_ACTIONS = {
  j: () => stepMessage(1), k: () => stepMessage(-1),
  n: () => stepCredited(1), p: () => stepCredited(-1),
  e: () => stepFailed(1), E: () => stepFailed(-1),
  ".": () => stepToken(1), ",": () => stepToken(-1),
  J: () => state.index + 1 < run.episodes.length && open(state.index + 1),
  K: () => state.index > 0 && open(state.index - 1),
  c: stepOverlay, m: toggleMask,
  g: () => scrollTo(0, 0), G: () => scrollTo(0, document.documentElement.scrollHeight),
  "?": () => (help.open ? help.close() : help.showModal()), Escape: letGo,
};

function readAddress() {
  const hash = new URLSearchParams(location.hash.slice(1));
  const id = hash.get("episode"), step = hash.get("step"), token = hash.get("token"), overlay = hash.get("overlay");
  const index = run.episodes.findIndex((entry) => entry.id === id && (step === null || String(entry.step) === step));
  return { index: Math.max(0, index), token: token === null || token === "" ? null : Number(token), overlay };
}

function saveAddress() {
  const entry = run.episodes[state.index];
  const hash = new URLSearchParams({ episode: entry.id, step: String(entry.step), overlay: state.overlay });
  if (state.token !== null) hash.set("token", String(state.token));
  history.replaceState(null, "", `#${hash}`);
}

function tokenUnder(event) {
  const found = offsetAt(event.clientX, event.clientY, painter.chunkOf);
  return found ? tokenAt(found.chunk.span, found.chunk.start + found.offset) : null;
}

let frame = 0;
main.addEventListener("pointermove", (event) => {
  if (frame || event.pointerType === "touch") return;
  frame = requestAnimationFrame(() => {
    frame = 0;
    hover(tokenUnder(event));
  });
});
main.addEventListener("pointerleave", () => hover(null));
main.addEventListener("click", (event) => {
  if (event.target.closest("button, summary, pre") || !getSelection().isCollapsed) return;
  const token = tokenUnder(event);
  hover(null);
  look(token === state.token ? null : token, false);
});
main.addEventListener("focusin", (event) => {
  const index = state.built?.messages.findIndex(({ element }) => element.contains(event.target)) ?? -1;
  if (index >= 0) state.message = index;
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("select, input, textarea")) return;
  const action = KEY_ACTIONS[event.key];
  if (!action || !state.episode || (help.open && action !== KEY_ACTIONS["?"] && action !== letGo)) return;
  event.preventDefault();
  action();
});
select.addEventListener("change", () => {
  recolour(select.value);
  saveAddress();
});
document.getElementById("help-button").addEventListener("click", () => help.showModal());
addEventListener("hashchange", () => start());
addEventListener("beforeprint", () => painter.paintAll(state.built.chunks));

async function start() {
  const { index, token, overlay } = readAddress();
  if (overlay) state.overlay = overlay;
  await open(index, token);
}

new ResizeObserver(([{ target }]) => document.documentElement.style.setProperty("--head", `${target.offsetHeight}px`)).observe(document.getElementById("top"));
renderNotice(run.notice);
renderHelp();
start();
