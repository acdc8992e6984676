// The listing: one row an episode, as columns. It grows at its end; a row written again replaces the earlier one.

const CODES = ["split", "group", "env", "task", "stop", "tools", "errors"];

export class Listing {
  constructor() {
    this.rows = 0;
    this.next = 0;
    this.generation = "";
    this.columns = new Map();
    this.tables = new Map(CODES.map((name) => [name, { values: [], codes: new Map() }]));
    this.idStarts = new Uint32Array(1);
    this.idBytes = new Uint8Array(0);
    this.dead = new Set();
    this.decoder = new TextDecoder();
    this.groups = null;
  }

  // Appends a block (listing.py). Codes are translated to the tables that all blocks share.
  add({ header, columns }) {
    const before = this.rows;
    this.next = header.next;
    this.generation = header.generation ?? "";
    if (!header.rows) return;
    this.rows += header.rows;
    this.idStarts = grown(this.idStarts, before + 1, this.rows + 1);
    const lengths = columns.get("id_length");
    for (let i = 0; i < header.rows; i++) this.idStarts[before + i + 1] = this.idStarts[before + i] + lengths[i];
    this.idBytes = joined(this.idBytes, columns.get("id"));
    for (const [name, column] of columns) {
      if (name === "id" || name === "id_length") continue;
      const old = this.columns.get(name);
      if (!old && before > 0) continue; // a column that earlier rows lack is not known for the listing
      this.columns.set(name, joined(old ?? new column.constructor(0), header.tables[name] ? this.translated(name, column, header.tables[name]) : column));
    }
    for (const name of [...this.columns.keys()]) if (!columns.has(name)) this.columns.delete(name);
    this.groups = null;
    if (before > 0) this.replace(before);
  }

  translated(name, column, table) {
    const shared = this.tables.get(name);
    const codes = table.map((value) => {
      const key = JSON.stringify(value);
      if (!shared.codes.has(key)) {
        shared.codes.set(key, shared.values.length);
        shared.values.push(value);
      }
      return shared.codes.get(key);
    });
    return column.map((code) => codes[code]);
  }

  // Drops the rows before `from` that a row from there on stands for.
  replace(from) {
    const steps = this.columns.get("step");
    const fresh = new Set();
    const again = new Set();
    for (let row = from; row < this.rows; row++) {
      fresh.add(`${steps[row]} ${this.id(row)}`);
      again.add(steps[row]);
    }
    for (let row = 0; row < from; row++) if (again.has(steps[row]) && fresh.has(`${steps[row]} ${this.id(row)}`)) this.dead.add(row);
  }

  id(row) {
    return this.decoder.decode(this.idBytes.subarray(this.idStarts[row], this.idStarts[row + 1]));
  }

  number(name, row) {
    return this.columns.get(name)?.[row];
  }

  text(name, row) {
    const column = this.columns.get(name);
    return column ? this.tables.get(name).values[column[row]] : undefined;
  }

  // One row as an object; `reward` is null where unscored, what the listing does not hold is undefined.
  entry(row) {
    const reward = this.number("reward", row);
    const found = { row, id: this.id(row), reward: Number.isNaN(reward) ? null : reward };
    for (const name of ["step", "turns", "tokens", "charges", "charged", "trained"]) found[name] = this.number(name, row);
    for (const name of CODES) found[name] = this.text(name, row);
    return found;
  }

  // The row of an id; of several steps the last, unless `step` is given. -1 where there is none.
  find(id, step = null) {
    const wanted = new TextEncoder().encode(id);
    for (let row = this.rows - 1; row >= 0; row--) {
      if (this.idStarts[row + 1] - this.idStarts[row] !== wanted.length || this.dead.has(row)) continue;
      if (step !== null && this.number("step", row) !== step) continue;
      const start = this.idStarts[row];
      let same = 0;
      while (same < wanted.length && this.idBytes[start + same] === wanted[same]) same++;
      if (same === wanted.length) return row;
    }
    return -1;
  }

  // All rows of the group of `row`, itself included. A row without a group is alone.
  members(row) {
    const groups = this.columns.get("group"), steps = this.columns.get("step"), splits = this.columns.get("split");
    if (!this.text("group", row)) return [row];
    const found = [];
    for (let other = 0; other < this.rows; other++) {
      if (groups[other] === groups[row] && steps[other] === steps[row] && splits[other] === splits[row] && !this.dead.has(other)) found.push(other);
    }
    return found;
  }

  sameGroup(a, b) {
    return ["group", "step", "split"].every((name) => this.number(name, a) === this.number(name, b)) && Boolean(this.text("group", a));
  }
}

function grown(array, kept, length) {
  const larger = new array.constructor(length);
  larger.set(array.subarray(0, kept));
  return larger;
}

function joined(first, second) {
  if (!first.length) return second;
  const both = grown(first, first.length, first.length + second.length);
  both.set(second, first.length);
  return both;
}
