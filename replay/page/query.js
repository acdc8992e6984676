// The filter language: a few words over the listing, and what is left over is searched in the text.
//
//   reward<0  credit<-0.5  turns>8  tokens>=1000  charges>0  charged>0.2  step>10  error:timeout  tool:python  stop:done
//   split:heldout  group:..  task:..  env:..  id:..  unscored  !word (not)  "a phrase"  /a regular expression/
//
// `credit<x` holds where some trained token's credit is below x, `credit>x` where some is above. `:` finds a part of a
// text, `=` the whole. All words must hold.

const NUMBERS = ["reward", "turns", "tokens", "charges", "charged", "step"];
const TEXTS = ["stop", "split", "group", "task", "env"];
const SETS = { error: "errors", tool: "tools" };
const OPERATORS = { "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b, "=": (a, b) => a === b, ":": (a, b) => a === b };
const WORD = /"([^"]*)"|\/((?:[^/\\]|\\.)+)\/(i?)|(\S+)/g;
const FILTER = /^(!?)([a-z]+)(<=|>=|<|>|=|:)(.*)$/s;

// Returns {tests: [(listing, row) => boolean], pattern: RegExp | null, problems: [text]}.
export function parseQuery(query) {
  const tests = [], words = [], problems = [];
  let pattern = null;
  for (const [, phrase, expression, flag, word] of query.matchAll(WORD)) {
    if (phrase !== undefined) words.push(phrase);
    else if (expression !== undefined) {
      try {
        pattern = new RegExp(expression, `gu${flag}`);
      } catch (error) {
        problems.push(error.message);
      }
    } else if (/^!?unscored$/.test(word)) tests.push(negated(word.startsWith("!"), (listing, row) => Number.isNaN(listing.number("reward", row))));
    else {
      const found = FILTER.exec(word);
      const test = found && testOf(found[2], found[3], found[4], problems);
      if (test) tests.push(negated(Boolean(found[1]), test));
      else if (!found || !known(found[2])) words.push(word);
    }
  }
  if (words.length && !pattern) pattern = new RegExp(words.join(" ").replace(/[.*+?^${}()|[\]\\\/]/g, "\\$&"), "giu");
  return { tests, pattern, problems };
}

function known(name) {
  return NUMBERS.includes(name) || TEXTS.includes(name) || name in SETS || name === "credit" || name === "id";
}

function negated(not, test) {
  return not ? (listing, row) => !test(listing, row) : test;
}

function testOf(name, sign, value, problems) {
  if (!known(name)) return null;
  if (NUMBERS.includes(name) || name === "credit") {
    const bound = Number(value);
    if (value === "" || Number.isNaN(bound)) {
      problems.push(`${name}${sign}: expected a number${value ? `, found ${value}` : ""}`);
      return null;
    }
    const holds = OPERATORS[sign];
    if (name !== "credit") return (listing, row) => holds(listing.number(name, row), bound);
    const column = sign.startsWith("<") ? "credit_low" : "credit_high";
    return (listing, row) => holds(listing.number(column, row), bound);
  }
  if (sign !== ":" && sign !== "=") {
    problems.push(`${name} is a text: expected ${name}:${value} or ${name}=${value}`);
    return null;
  }
  const wanted = value.toLowerCase();
  const fits = (text) => (sign === "=" ? text.toLowerCase() === wanted : text.toLowerCase().includes(wanted));
  if (name === "id") return (listing, row) => fits(listing.id(row));
  if (name in SETS) return (listing, row) => (listing.text(SETS[name], row) ?? []).some((text) => fits(text));
  return (listing, row) => fits(listing.text(name, row));
}

// The columns that a query asks for and the listing lacks: that part cannot be answered.
export function unanswered(query, listing) {
  const needs = { credit: "credit_low", error: "errors", tool: "tools", charged: "charged" };
  return Object.keys(needs).filter((name) => new RegExp(`(^|\\s)!?${name}(<=|>=|<|>|=|:)`).test(query) && !listing.columns.has(needs[name]));
}

// Returns the rows that pass all tests, in the listing's order.
export function filterRows(listing, tests) {
  const found = new Int32Array(listing.rows);
  let kept = 0;
  for (let row = 0; row < listing.rows; row++) {
    if (listing.dead.size && listing.dead.has(row)) continue;
    let holds = true;
    for (const test of tests) {
      if (!test(listing, row)) {
        holds = false;
        break;
      }
    }
    if (holds) found[kept++] = row;
  }
  return found.subarray(0, kept);
}

// Finds `pattern` in the text of an episode: [{first, last, before, match, after}], token ranges half-open, `most` hits.
export function searchText(episode, pattern, most, tokenAt) {
  const hits = [];
  for (const span of episode.spans) {
    for (const found of span.text.matchAll(pattern)) {
      if (!found[0]) continue;
      const end = found.index + found[0].length;
      hits.push({
        first: tokenAt(span, found.index),
        last: episode.runOf(tokenAt(span, end - 1))[1],
        before: span.text.slice(Math.max(0, found.index - 24), found.index),
        match: found[0].slice(0, 60),
        after: span.text.slice(end, end + 40),
      });
      if (hits.length >= most) return hits;
    }
  }
  return hits;
}
