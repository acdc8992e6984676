// Where the page's data comes from: the blocks of a file that holds them, or a server that sends the same blocks.
//
// A block is a deflated JSON header with typed columns (pack.py, listing.py). Routes of a server, all GET, relative to
// the page, which is served as its own files (index.html, style.css, the modules) beside them:
//
//   api/run                            JSON: {title, notice, live, metrics, functions, events_from}. `live`: episodes may still come.
//                                      `metrics`: the lines of metrics.jsonl, oldest first, [] where there are none.
//                                      `functions`: labels that api/bundle accepts as `credit`, beside the stored credit.
//   api/listing?from=CURSOR&generation=G   a listing block (listing.listing_block): the rows written after CURSOR (0: all), in
//                                      the order written. Its header's `next` and `generation` are those to ask with later.
//                                      A row of the same step and id as an earlier one replaces it. `anew`: rows were taken
//                                      back (a run that goes on from a checkpoint), and these are all that there are.
//   api/bundle?episode=STEP/ID&...     for each `episode`, in the order asked: uint32 length (little-endian), then its
//                                      block (pack.episode_block). `scales` are those of its whole group, also where only
//                                      one rollout is asked for. Further parameters `credit=LABEL` add credit functions.
//                                      An unknown episode or label: status 404 with a line of text.
//   api/events?from=EVENTS_FROM        server-sent events while the run is written: `listing` (data: {"next": CURSOR}) when
//                                      there are new rows or others, `metrics` (data: one line of metrics.jsonl) as they come,
//                                      `metrics_anew` (data: an array of all lines) when what was told does not hold any more.
//                                      Those of metrics carry an `id`, which a browser sends back when it connects again: so
//                                      every line comes once.
//
// A failed request is shown in the notice with the server's line of text; nothing is retried in silence.
//
// In a file: script elements #run (the JSON of api/run), #listing and #episode-0, #episode-1, ... (blocks in base64, in
// the order of the listing).

import { fromBase64, readBlock } from "./blocks.js";
import { Episode } from "./episode.js";
import { Listing } from "./listing.js";

const KEPT_TOKENS = 4_000_000; // episodes are kept until they hold more tokens than this together

export async function openSource() {
  const embedded = document.getElementById("run");
  const source = embedded ? new FileSource(JSON.parse(embedded.textContent)) : new ServerSource(await json("api/run"));
  await source.extend();
  return source;
}

class Source {
  constructor(run) {
    this.run = run;
    this.listing = new Listing();
    this.kept = new Map();
  }

  // Returns the episodes of some rows, each read at most once while it is kept.
  async episodes(rows) {
    const missing = rows.filter((row) => !this.kept.has(row));
    if (missing.length) {
      const reading = this.read(missing);
      missing.forEach((row, at) => this.kept.set(row, reading.then((found) => found[at])));
      reading.catch(() => missing.forEach((row) => this.kept.delete(row)));
    }
    const found = await Promise.all(rows.map((row) => this.kept.get(row)));
    this.forget(rows);
    return found;
  }

  async episode(row) {
    return (await this.episodes([row]))[0];
  }

  forget(rows) {
    let held = 0;
    for (const row of [...this.kept.keys()].reverse()) {
      held += this.listing.number("tokens", row);
      if (held > KEPT_TOKENS && !rows.includes(row)) this.kept.delete(row);
    }
  }
}

class FileSource extends Source {
  async extend() {
    this.listing.add(await readBlock(fromBase64(document.getElementById("listing").textContent)));
  }

  read(rows) {
    return Promise.all(rows.map(async (row) => new Episode(await readBlock(fromBase64(document.getElementById(`episode-${row}`).textContent)))));
  }

  follow() {}

  useFunctions() {}
}

class ServerSource extends Source {
  chosen = new Set();

  // From here on episodes come with their credit under these functions too.
  useFunctions(labels) {
    if (labels.every((label) => this.chosen.has(label))) return;
    for (const label of labels) this.chosen.add(label);
    this.kept.clear();
  }

  async extend() {
    const answer = await ask(`api/listing?from=${this.listing.next}&generation=${this.listing.generation}`);
    const block = await readBlock(await answer.arrayBuffer());
    if (block.header.anew) {
      this.listing = new Listing(); // rows have other numbers in it
      this.kept.clear();
    }
    this.listing.add(block);
  }

  async read(rows) {
    const asked = new URLSearchParams();
    for (const row of rows) asked.append("episode", `${this.listing.number("step", row)}/${this.listing.id(row)}`);
    for (const label of this.chosen) asked.append("credit", label);
    const raw = await (await ask(`api/bundle?${asked}`)).arrayBuffer();
    const found = [];
    for (let at = 0; at < raw.byteLength; ) {
      const size = new DataView(raw).getUint32(at, true);
      found.push(new Episode(await readBlock(new Uint8Array(raw, at + 4, size))));
      at += 4 + size;
    }
    return found;
  }

  // Calls `onChange` after new rows or new metrics came, `onTrouble(words)` when the server cannot be reached and again,
  // without words, when it can.
  follow(onChange, onTrouble) {
    if (!this.run.live) return;
    const events = new EventSource(`api/events?from=${this.run.events_from}`);
    let extending = Promise.resolve();
    const changed = () => {
      extending = extending.then(() => this.extend()).then(onChange, (error) => onTrouble(`new episodes could not be read: ${error.message}`));
    };
    events.addEventListener("listing", changed);
    events.addEventListener("metrics", (event) => {
      this.run.metrics.push(JSON.parse(event.data));
      onChange();
    });
    events.addEventListener("metrics_anew", (event) => {
      this.run.metrics = JSON.parse(event.data);
      onChange();
    });
    events.addEventListener("error", () => onTrouble("the server does not answer: what was loaded stays, new episodes are not seen"));
    // A connection that was lost may have missed rows.
    events.addEventListener("open", () => (onTrouble(""), changed()));
  }
}

async function ask(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${answer.status}: ${await answer.text()}`);
  return answer;
}

async function json(path) {
  return (await ask(path)).json();
}
