// The filter language, that of `--where` (credit/traces/where.py says what it means), over the listing; what is no
// condition is searched in the text of the group: words, "a phrase", /a regular expression/.
//
// The listing has the extremes of credit alone, and nothing of advantage: there `credit=x` and `advantage<x` have no
// answer, and nothing fits. Its figures are float32: a bound is rounded as they are.

// Of each field the column of the listing; null where there is none.
const NUMBERS = { step: "step", reward: "reward", turns: "turns", tokens: "tokens", charges: "charges", charged: "charged", credit: null, advantage: null };
const TEXTS = { id: "id", split: "split", group: "group", env: "env", task: "task", stop: "stop" };
const LISTS = { tool: "tools", error: "errors" };
const FIELDS = { ...NUMBERS, ...TEXTS, ...LISTS };
const COMPARE = { "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b, "=": (a, b) => a === b, "!=": (a, b) => a !== b };
const CONDITION = /(not(?![A-Za-z_])\s*|!(?!=)\s*)?(?:(unscored)(?!\S)|([A-Za-z_]+)\s*(<=|>=|==|!=|[<>=:])\s*(?:"([^"]*)"|([^\s"]+))?)/y;
const JOINED = /(and|or)(?![A-Za-z_])\s*/y;
const SEARCHED = /"([^"]*)"|\/((?:[^/\\]|\\.)+)\/(i?)(?!\S)|(\S+)/y;
const DIGITS = "[0-9](?:_?[0-9])*";
const NUMBER = new RegExp(`^[+-]?(?:(?:${DIGITS}\\.?(?:${DIGITS})?|\\.${DIGITS})(?:e[+-]?${DIGITS})?|inf)$`, "i");

// Returns {conditions: [{name, column, test}], pattern: RegExp | null, problems: [text]}. `column` null: no listing has
// an answer; `test(listing)` gives (row) => boolean.
export function parseQuery(query) {
  const conditions = [], words = [], problems = [];
  let pattern = null, at = 0, after = false; // whether a condition stands before
  const read = (expression) => {
    expression.lastIndex = at;
    return expression.exec(query);
  };
  while ((at += /^\s*/.exec(query.slice(at))[0].length) < query.length) {
    const joined = after ? read(JOINED) : null;
    if (joined) {
      const word = at;
      at = JOINED.lastIndex;
      if (isCondition(read(CONDITION))) {
        if (joined[1] === "or") problems.push("expected a field: conditions are joined by 'and' only, found 'or'");
        continue;
      }
      at = word;
    }
    const found = read(CONDITION);
    after = isCondition(found);
    if (after) {
      at = CONDITION.lastIndex;
      const condition = conditionOf(found, problems);
      if (condition) conditions.push(condition);
      continue;
    }
    const [, phrase, expression, flag, word] = read(SEARCHED);
    at = SEARCHED.lastIndex;
    if (phrase !== undefined) words.push(phrase);
    else if (expression !== undefined) {
      try {
        pattern = new RegExp(expression, `gu${flag}`);
      } catch (error) {
        problems.push(error.message);
      }
    } else {
      words.push(word);
      if (/^(not)?!?[A-Za-z_]+(<=|>=|==|!=|[<>=:])/.test(word)) problems.push(`${word} is searched in the text: its field is none of ${Object.keys(FIELDS).join(" ")}`);
    }
  }
  if (words.length && !pattern) pattern = new RegExp(words.join(" ").replace(/[.*+?^${}()|[\]\\\/]/g, "\\$&"), "giu");
  return { conditions, pattern, problems };
}

function isCondition(found) {
  return Boolean(found && (found[2] || Object.hasOwn(FIELDS, found[3])));
}

function conditionOf([, not, unscored, name, written, quoted, bare], problems) {
  const turned = (condition) => (not ? { ...condition, test: (listing) => { const holds = condition.test(listing); return (row) => !holds(row); } } : condition);
  if (unscored) return turned(numberTest("reward", "=", null));
  const value = quoted ?? bare;
  const refused = (expected, found) => (problems.push(`expected ${expected}, found ${found}`), null);
  if (name in NUMBERS) {
    const sign = written === "==" || written === ":" ? "=" : written;
    const none = name === "reward" && /^(none|unscored)$/i.test(value ?? "");
    if (none && "<>".includes(sign[0])) return refused("a number to compare with: an unscored episode has no place in the order", `'${value}'`);
    if (!none && !NUMBER.test(value ?? "")) return refused(`a number after '${name}${written}'`, value === undefined ? "its end" : `'${value}'`);
    return turned(numberTest(name, sign, none ? null : Number(value.replaceAll("_", "").replace(/inf/i, "Infinity"))));
  }
  if ("<>".includes(written[0])) return refused(`'=', '!=' or ':' after '${name}', which is a text`, `'${written}'`);
  if (value === undefined) return refused(`a text after '${name}${written}'`, "its end");
  return turned(textTest(name, written === "==" ? "=" : written, value));
}

// `value` null: unscored, which no other value is like or unlike.
function numberTest(name, sign, value) {
  const column = name === "credit" && "<>".includes(sign[0]) ? (sign[0] === "<" ? "credit_low" : "credit_high") : NUMBERS[name];
  return { name: column ? name : `${name}${name === "credit" ? sign : ""}`, column, test: (listing) => {
    const values = listing.columns.get(column);
    if (value === null) return (row) => Number.isNaN(values[row]) === (sign === "=");
    const bound = values instanceof Float32Array ? Math.fround(value) : value;
    return (row) => !Number.isNaN(values[row]) && COMPARE[sign](values[row], bound);
  } };
}

function textTest(name, sign, value) {
  const part = value.toLowerCase();
  const fits = sign === ":" ? (text) => text.toLowerCase().includes(part) : (text) => text === value;
  const holds = (found) => (Array.isArray(found) ? found.some(fits) : fits(found)) !== (sign === "!=");
  const column = FIELDS[name];
  return { name, column, test: (listing) => {
    if (column === "id") return (row) => holds(listing.id(row));
    const codes = listing.columns.get(column), told = listing.tables.get(column).values.map(holds);
    return (row) => told[codes[row]];
  } };
}

// The fields that some conditions ask for and the listing lacks: they cannot be answered.
export function unanswered(conditions, listing) {
  return conditions.filter(({ column }) => !column || (column !== "id" && listing.rows > 0 && !listing.columns.has(column))).map(({ name }) => name);
}

// Returns the rows that pass all conditions, in the listing's order; none where one cannot be answered.
export function filterRows(listing, conditions) {
  if (!listing.rows || unanswered(conditions, listing).length) return new Int32Array(0);
  const tests = conditions.map((condition) => condition.test(listing));
  const found = new Int32Array(listing.rows);
  let kept = 0;
  for (let row = 0; row < listing.rows; row++) {
    if (listing.dead.size && listing.dead.has(row)) continue;
    let holds = true;
    for (const test of tests) {
      if (!test(row)) {
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
