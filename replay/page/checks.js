// The checks: what must hold of a stored episode and of its group, worked out again from the columns.
//
// A check gives {state, words, token}: state "ok", "bad", "look" (allowed, worth a look) or "none" (nothing to check with);
// `token` is where to jump.

const ROUNDING = 1e-5; // terms are stored here as float32: relative rounding of a sum of many, generously
const MEAN_SHARE = 0.05; // of the largest outcome credit of a group: what a mean may be away from 0

export const EPISODE_CHECKS = [
  ["columns have one length", columnsHaveOneLength],
  ["spans cover every token once", spansPartition],
  ["masked tokens get no gradient", maskedGetNothing],
  ["terms add up", termsAddUp],
  ["log-probabilities where trained", logprobsWhereTrained],
  ["text encodes to the ids", textEncodes],
  ["each turn extends the one before", turnsExtend],
  ["charges lie on trained tokens", chargesOnTrained],
];

function columnsHaveOneLength(episode) {
  const { rows } = episode.header.tokens;
  let columns = 0;
  for (const [name, column] of episode.columns) {
    if (name.startsWith("vocab_")) continue;
    if (column.length !== rows) return bad(`${name} has ${column.length}, expected ${rows}`, null);
    columns++;
  }
  return ok(`${columns} columns of ${rows.toLocaleString("en")} tokens`);
}

function spansPartition(episode) {
  let end = 0;
  for (const span of episode.spans) {
    if (span.start !== end || span.end <= span.start) return bad(`a span covers [${span.start}, ${span.end}) after token ${end}`, Math.min(end, episode.length - 1));
    end = span.end;
  }
  return end === episode.length ? ok(`${episode.spans.length} spans`) : bad(`the spans end at ${end} of ${episode.length}`, episode.length - 1);
}

function maskedGetNothing(episode) {
  const paid = firstWhere(episode, (span) => !span.trained, everyAdvantage(episode));
  if (!everyAdvantage(episode).length) return none("no credit was stored");
  return paid === null ? ok("advantage 0 off the decisions") : bad(`token ${paid} is masked and has an advantage`, paid);
}

function everyAdvantage(episode) {
  return [...episode.functions.keys()].map((label) => episode.signal(label ? `${label}/advantage` : "advantage"));
}

function firstWhere(episode, wanted, columns) {
  for (const span of episode.spans) {
    if (!wanted(span)) continue;
    for (const values of columns) for (let t = span.start; t < span.end; t++) if (values[t] !== 0) return t;
  }
  return null;
}

// The sum of all terms over all tokens, against the exact sum that was worked out where the episode was read.
function termsAddUp(episode) {
  if (!episode.functions.size) return none("no credit was stored");
  let worst = 0;
  for (const [label, { sums }] of episode.functions) {
    for (const quantity of ["credit", "advantage"]) {
      let sum = 0, size = 0;
      for (const { values } of episode.terms(quantity, label)) {
        for (let t = 0; t < episode.length; t++) {
          sum += values[t];
          size += Math.abs(values[t]);
        }
      }
      const off = Math.abs(sum - sums[quantity]) / Math.max(size, 1e-6);
      if (!(off <= ROUNDING)) return bad(`${label || "stored"} ${quantity}: the terms sum to ${sum}, expected ${sums[quantity]}`, null);
      worst = Math.max(worst, off);
    }
  }
  return ok(`to within ${worst.toExponential(0)} of their size`);
}

function logprobsWhereTrained(episode) {
  for (const span of episode.spans) {
    for (let t = span.start; t < span.end; t++) {
      if (Number.isFinite(episode.logprobs[t]) !== span.trained) return bad(span.trained ? `token ${t} has none` : `token ${t} is masked and has one`, t);
      if (episode.logprobs[t] > 0) return bad(`token ${t} has a probability above 1`, t);
    }
  }
  return ok("finite there, absent elsewhere");
}

function textEncodes(episode) {
  const found = episode.header.reencoded;
  if (!found) return none("no tokenizer at hand when this was made");
  if (!found.differ.length) return ok(`${found.checked} decisions`);
  const [token, why] = found.differ[0];
  return look(`${found.differ.length} of ${found.checked} decisions: the first ${why}`, token);
}

function turnsExtend(episode) {
  const breaks = episode.header.segments.filter(([start]) => start > 0);
  if (!breaks.length) return ok("one context");
  return look(`${breaks.length + 1} contexts: ${breaks[0][1]}`, breaks[0][0]);
}

function chargesOnTrained(episode) {
  for (const charge of episode.header.charges) {
    for (let t = charge.start; t < charge.end; t++) if (!episode.spanOf(t).trained) return bad(`${charge.reason} is charged on masked token ${t}`, t);
  }
  const { length } = episode.header.charges;
  return ok(length === 1 ? "1 charge" : `${length} charges`);
}

// Of a group: the mean over its scored rollouts of the credit's outcome term is about 0.
export function outcomeMean(episodes) {
  const sums = episodes.filter((episode) => episode.reward !== null && episode.terms("credit")).map((episode) => {
    const values = episode.signal("credit:outcome");
    return values ? values.reduce((sum, value) => sum + value, 0) : null;
  }).filter((sum) => sum !== null);
  if (sums.length < 2) return none("needs two scored rollouts with an outcome term");
  const mean = sums.reduce((sum, value) => sum + value, 0) / sums.length;
  const largest = Math.max(...sums.map(Math.abs));
  const words = `mean ${mean.toFixed(4).replace("-", "−")}, largest ${largest.toFixed(4)}, of ${sums.length} rollouts`;
  return Math.abs(mean) <= MEAN_SHARE * largest + 1e-9 ? ok(words) : look(words, null);
}

// Of a group: one id has one text in all rollouts.
export function oneTextAnId(episodes) {
  const texts = new Map();
  const key = (episode, t) => {
    const bytes = episode.tokenBytes(t);
    let hash = bytes.length;
    for (const byte of bytes) hash = (hash * 31 + byte) | 0;
    return hash;
  };
  for (const episode of episodes) {
    for (let t = 0; t < episode.length; t++) {
      const id = episode.ids[t], found = key(episode, t), before = texts.get(id);
      if (before === undefined) texts.set(id, found);
      else if (before !== found) return bad(`id ${id} has two texts (${episode.id}, token ${t})`, null);
    }
  }
  return ok(`${texts.size.toLocaleString("en")} ids`);
}

// Of a group: every rollout was given the same prompt.
export function onePrompt(episodes) {
  const prompt = (episode) => episode.ids.subarray(0, episode.spans.find((span) => span.trained)?.start ?? episode.length);
  const first = prompt(episodes[0]);
  for (const episode of episodes) {
    const other = prompt(episode);
    if (other.length !== first.length || other.some((id, t) => id !== first[t])) return look(`${episode.id} was given another prompt than ${episodes[0].id}`, null);
  }
  return ok(`${first.length.toLocaleString("en")} tokens`);
}

function ok(words) { return { state: "ok", words, token: null }; }
function bad(words, token) { return { state: "bad", words, token }; }
function look(words, token) { return { state: "look", words, token }; }
function none(words) { return { state: "none", words, token: null }; }
