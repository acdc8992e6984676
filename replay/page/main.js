// Starts the page and moves between its views: what changed is shown, and the address follows.

import { openSource } from "./data.js";
import { byId, el } from "./dom.js";
import { renderHeading, renderHelp, renderLegend, renderNotice, renderOverlays, renderTabs, showNotice } from "./frame.js";
import { bindKeys } from "./keys.js";
import { overlaysOf } from "./overlay.js";
import { reader, setTokens, startReader } from "./reader.js";
import { renderSide, startSide } from "./side.js";
import { app, readAddress, saveAddress } from "./state.js";
import { VIEWS } from "./views.js";

let turn = 0; // of the newest change: an older one that still waits for data gives up
let drawn = { view: null, row: -1 };
let begun = false, emptied = false;
const noEpisodes = () => [app.source.run.notice, "no episodes yet: they appear here as they come"].filter(Boolean).join(" · ");

// Shows a change of `app`. `push` makes it a step of the browser's history. `range` marks a token range on the way.
async function go(change = {}, push = false) {
  if (!app.listing.rows) return;
  const mine = ++turn;
  const { range, ...changed } = change;
  const queryOnly = Object.keys(changed).join() === "query";
  Object.assign(app, changed);
  try {
    const episode = await app.source.episode(app.row);
    if (mine !== turn) return;
    app.episode = episode;
    const names = overlaysOf(episode).map((overlay) => overlay.name);
    if (!names.includes(app.overlay)) app.overlay = names[0];
    saveAddress(push);
    setTokens(app.tokens);
    const view = VIEWS[app.view];
    const anew = drawn.view !== app.view || drawn.row !== app.row || Object.keys(changed).some((name) => view.anewOn?.includes(name));
    if (!queryOnly || anew) {
      if (drawn.view && drawn.view !== app.view) VIEWS[drawn.view].hide?.();
      frame(view);
      if (anew) {
        reader.clear();
        byId("messages").className = `view-${app.view}`;
        byId("ledger").replaceChildren();
        byId("ledger").classList.remove("open");
        byId("tool").hidden = true;
        const shown = { view: app.view, row: app.row };
        drawn = { view: app.view, row: -1 }; // until it is there: a change in between shows it anew
        await view.show({ range, push });
        if (mine === turn) drawn = shown;
      } else {
        view.recolour?.();
        view.move?.({ range });
      }
      if (mine !== turn) return;
    }
    await renderSide();
    document.documentElement.dataset.view = app.view;
    document.documentElement.dataset.ready = String(app.row);
  } catch (error) {
    renderNotice(`this could not be shown: ${error.message}`);
    throw error;
  }
}

function frame(view) {
  const { episode } = app;
  renderTabs(VIEWS, app.view);
  showNotice();
  renderHeading(app, view);
  renderOverlays(episode, app.overlay);
  renderLegend(episode, app.overlay, app.presses, view.colours !== false);
  byId("body").classList.toggle("wide", !view.panel);
  byId("messages").setAttribute("aria-label", view.title);
  document.title = `${episode.header.task_id || episode.id} · ${view.title} · ${app.source.run.title}`;
}

function start() {
  const { missing, ...address } = readAddress();
  if (missing) renderNotice(`there is no episode ${missing} here: showing the first`);
  return go(address);
}

app.go = go;
try {
  app.source = await openSource();
  app.listing = app.source.listing;
  renderNotice(app.source.run.notice);
  app.source.follow(changed, (words) => renderNotice(words || app.source.run.notice));
  if (app.listing.rows) await begin();
  else if (app.source.run.live) renderNotice(noEpisodes());
  else throw new Error("the run holds no episodes");
} catch (error) {
  renderNotice(error.message);
  byId("messages").replaceChildren(el("p", { class: "note" }, "Nothing to show."));
  document.documentElement.dataset.ready = "none";
}

// New episodes or metrics of a run that is being written: the list grows, the run is drawn anew, the rest stays.
function changed() {
  if (app.listing !== app.source.listing && begun) return takeOver(app.source.listing);
  app.listing = app.source.listing;
  if (!app.listing.rows) return null;
  if (!begun) return begin();
  if (emptied) {
    emptied = false;
    renderNotice(app.source.run.notice);
    return go({ row: 0, token: null, compare: [] });
  }
  if (!app.episode) return null;
  if (app.view === "run") VIEWS.run.show();
  return renderSide();
}

// Rows were taken back, and what is left has other numbers: the episodes in sight are found again in the new listing.
async function takeOver(listing) {
  const before = app.listing;
  const found = (row) => (before.rows ? listing.find(before.id(row), before.number("step", row)) : -1);
  const row = found(app.row);
  const compare = app.compare.map((item) => ({ ...item, row: found(item.row) })).filter((item) => item.row >= 0);
  const gone = before.rows && row < 0 ? `${before.id(app.row)} of step ${before.number("step", app.row)} is not in the run any more: it went back to a checkpoint` : "";
  app.listing = listing;
  drawn.row = -1;
  if (!listing.rows) return empty(gone);
  emptied = false;
  await go({ row: Math.max(0, row), compare, ...(row < 0 ? { token: null } : {}) });
  return renderNotice(gone || app.source.run.notice);
}

// The run has no episodes any more.
function empty(words) {
  turn++;
  emptied = true;
  app.episode = null;
  reader.clear();
  for (const id of ["heading", "ledger", "tool"]) byId(id).replaceChildren();
  byId("messages").replaceChildren(el("p", { class: "note" }, "Nothing to show."));
  renderNotice([words, noEpisodes()].filter(Boolean).join(" · "));
  return renderSide();
}

async function begin() {
  begun = true;
  renderNotice(app.source.run.notice);
  startSide();
  startReader();
  bindKeys(VIEWS);
  renderHelp();
  byId("overlay").addEventListener("change", ({ target }) => go({ overlay: target.value }));
  byId("skip").addEventListener("click", () => byId("messages").focus());
  addEventListener("popstate", start);
  new ResizeObserver(([{ target }]) => document.documentElement.style.setProperty("--head", `${target.offsetHeight}px`)).observe(byId("top"));
  await start();
}
