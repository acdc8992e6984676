// The episode: its messages under the overlay, one token's ledger beside them.

import { byId } from "./dom.js";
import { buildMessages } from "./messages.js";
import { filteredRows } from "./side.js";
import { reader } from "./reader.js";
import { app } from "./state.js";

export const episodeView = {
  title: "Episode",
  panel: true,

  show({ range }) {
    const built = buildMessages(app.episode, (first, last, call) => reader.range(first, last, call));
    reader.show(app.episode, built);
    byId("messages").replaceChildren(...built.blocks);
    scrollTo(0, 0);
    reader.recolour(() => app.overlay);
    this.move({ range });
  },

  // Another token of the same episode.
  move({ range }) {
    const token = app.token !== null && app.token >= 0 && app.token < app.episode.length ? app.token : null;
    if (range) reader.range(...range);
    else reader.look(token);
  },

  recolour() {
    reader.recolour();
  },

  keys: {
    j: () => reader.stepMessage(1), k: () => reader.stepMessage(-1),
    n: () => reader.stepCredited(1), p: () => reader.stepCredited(-1),
    ".": () => reader.stepToken(1), ",": () => reader.stepToken(-1),
    ">": () => reader.stepTurn(1), "<": () => reader.stepTurn(-1),
    e: () => nextFailed(1), E: () => nextFailed(-1),
    " ": () => app.go({ view: "replay" }, true),
  },
};

// The next failed call, in this rollout or in the next one that has some.
export async function nextFailed(by) {
  if (reader.stepFailed(by)) return;
  const rows = filteredRows();
  let at = rows.indexOf(app.row);
  for (at += by; at >= 0 && at < rows.length; at += by) {
    const errors = app.listing.text("errors", rows[at]);
    if (errors === undefined ? app.listing.number("charges", rows[at]) === 0 : errors.length === 0) continue;
    await app.go({ row: rows[at], token: null }, true);
    if (by < 0) reader.call = app.episode.header.calls.length;
    if (reader.stepFailed(by)) return;
  }
}
