// What the page shows, and the address that holds it. `go` (main.js) changes it; the views read it.

export const app = {
  source: null,
  listing: null,
  view: "episode",
  row: 0, // of the listing: the rollout at hand
  episode: null, // the Episode of `row`
  token: null, // the token looked at, or where the replay stands
  overlay: "credit",
  presses: 0, // of `[` (< 0) and `]` (> 0): halves and doubles the scale
  query: "",
  compare: [], // {row, label}: rollouts side by side, each under a credit function
  tokens: false, // "tokens" mode: template shown, borders of tokens visible, copying gives ids
  lived: false, // replay without credit, as the policy lived it
  unit: matchMedia("(prefers-reduced-motion: reduce)").matches ? "turn" : "token", // what a step of the replay is
  go: null, // (change, push) => Promise
};

// Whether the replay runs as the policy lived it: nothing on the page then tells what the policy did not know.
export function livedNow() {
  return app.lived && app.view === "replay";
}

export const VIEW_NAMES = ["run", "group", "episode", "replay", "compare", "checks"];

export function readAddress() {
  const hash = new URLSearchParams(location.hash.slice(1));
  const { listing } = app;
  const number = (name) => (/^-?\d+$/.test(hash.get(name) ?? "") ? Number(hash.get(name)) : null);
  const found = hash.get("episode") === null ? firstRow(number("step")) : listing.find(hash.get("episode"), number("step"));
  const view = VIEW_NAMES.includes(hash.get("view")) ? hash.get("view") : "episode";
  const lived = hash.get("lived") === "1", untold = lived && view === "replay"; // such an address has no filter and scale
  return {
    view,
    row: Math.max(0, found),
    token: number("token"),
    overlay: hash.get("overlay") ?? app.overlay,
    presses: Math.max(-16, Math.min(16, number("scale") ?? (untold ? app.presses : 0))),
    query: hash.get("find") ?? (untold ? app.query : ""),
    compare: hash.getAll("with").map(readItem).filter((item) => item.row >= 0),
    tokens: hash.get("mode") === "tokens",
    lived,
    unit: ["token", "call", "turn", "clock"].includes(hash.get("by")) ? hash.get("by") : app.unit,
    missing: hash.get("episode") !== null && found < 0 ? hash.get("episode") : null,
  };
}

const SAVE_MS = 200; // browsers allow some 200 changes of the address in 30 s
let saved = 0, waitingSave = 0;

// Puts the state into the address: a step of the history with `push`, else in place and not too often.
export function saveAddress(push = false) {
  document.documentElement.dataset.token = app.token === null ? "" : String(app.token);
  clearTimeout(waitingSave);
  const wait = saved + SAVE_MS - performance.now();
  if (push || wait <= 0) writeAddress(push);
  else waitingSave = setTimeout(() => writeAddress(false), wait);
}

function writeAddress(push) {
  saved = performance.now();
  const { listing } = app;
  const hash = new URLSearchParams({ view: app.view, episode: listing.id(app.row), step: String(listing.number("step", app.row)) });
  if (app.token !== null) hash.set("token", String(app.token));
  if (!livedNow()) {
    hash.set("overlay", app.overlay);
    if (app.presses) hash.set("scale", String(app.presses));
    if (app.query) hash.set("find", app.query);
  }
  if (app.tokens) hash.set("mode", "tokens");
  if (app.view === "replay") hash.set("by", app.unit);
  if (app.lived) hash.set("lived", "1");
  if (app.view === "compare") for (const item of app.compare) hash.append("with", writtenItem(item));
  const address = `#${hash}`;
  if (address !== location.hash) history[push ? "pushState" : "replaceState"](null, "", address);
}

function firstRow(step) {
  if (step === null) return 0;
  for (let row = 0; row < app.listing.rows; row++) if (app.listing.number("step", row) === step) return row;
  return 0;
}

// "12/ep-0" or "12/ep-0@rloo": the step, the id and the credit function; ids may hold any character.
function readItem(text) {
  const [, step, id, label] = /^(\d+)\/(.*?)(?:@([^@]*))?$/s.exec(text) ?? [null, "", "", ""];
  return { row: app.listing.find(decodeURIComponent(id), Number(step)), label: label ?? "" };
}

function writtenItem({ row, label }) {
  const id = encodeURIComponent(app.listing.id(row));
  return `${app.listing.number("step", row)}/${id}${label ? `@${label}` : ""}`;
}
