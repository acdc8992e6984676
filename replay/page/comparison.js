// What can be set beside a rollout: others of its group, its counterfactual, the same task at other steps, itself under
// another credit function.

import { app } from "./state.js";

const MOST_CHOICES = 60;

// Returns [{group, row, label, text}] of what can be compared with `row`.
export function choicesFor(row, episode) {
  const { listing, source } = app;
  const found = [];
  for (const { label } of episode.header.functions) found.push({ group: "this rollout, credit by", row, label, text: label || "the stored function" });
  const asked = source.run.functions.filter((label) => !episode.functions.has(label));
  for (const label of asked) found.push({ group: "this rollout, credit by", row, label, text: label });
  const members = listing.members(row);
  for (const other of members) if (other !== row) found.push({ group: "its group", row: other, label: "", text: nameOf(other) });
  const task = listing.number("task", row), env = listing.number("env", row);
  if (listing.text("task", row)) {
    for (let other = 0; other < listing.rows && found.length < MOST_CHOICES; other++) {
      const same = listing.number("task", other) === task && listing.number("env", other) === env;
      if (same && !members.includes(other) && !listing.dead.has(other)) found.push({ group: "the same task, other steps", row: other, label: "", text: `step ${listing.number("step", other)} · ${nameOf(other)}` });
    }
  }
  return found;
}

function nameOf(row) {
  const { id, reward } = app.listing.entry(row);
  return `${id} (${reward === null ? "unscored" : reward.toFixed(2)})`;
}

// What to compare where nobody chose: the counterfactual partner, else the rollout of the group whose reward is farthest,
// else the same rollout under another credit function.
export async function firstComparison(row) {
  const own = { row, label: "" };
  const members = app.listing.members(row).filter((other) => other !== row);
  const pair = app.episode.header.seeds.pair;
  if (pair !== undefined) {
    const episodes = await app.source.episodes(members);
    const partner = members.find((_, at) => episodes[at].header.seeds.pair === pair);
    if (partner !== undefined) return [own, { row: partner, label: "" }];
  }
  const rewards = app.listing.columns.get("reward");
  const apart = (other) => (Number.isNaN(rewards[other]) ? -1 : Math.abs(rewards[other] - rewards[row]));
  if (members.length) return [own, { row: members.reduce((best, other) => (apart(other) > apart(best) ? other : best)), label: "" }];
  const label = app.episode.header.functions.map((about) => about.label).find(Boolean);
  return label ? [own, { row, label }] : [own];
}

// The turns of several episodes side by side: the turn numbers from -1 (the prompt), and for each episode its spans.
export function alignedTurns(episodes) {
  const last = Math.max(...episodes.map((episode) => episode.turns));
  const rows = [];
  for (let turn = -1; turn < last; turn++) {
    const cells = episodes.map((episode) => episode.spans.filter((span) => turnOf(episode, span) === turn));
    if (cells.some((spans) => spans.length)) rows.push({ turn, cells, same: sameIds(episodes, cells) });
  }
  return rows;
}

// The prompt's spans and the template around it come before the first decision, whatever turn they count to.
function turnOf(episode, span) {
  const first = episode.spans.find((other) => other.trained);
  return !first || span.start < first.start ? -1 : span.turn;
}

function sameIds(episodes, cells) {
  const ids = cells.map((spans, at) => (spans.length ? episodes[at].ids.subarray(spans[0].start, spans.at(-1).end) : new Int32Array(0)));
  return ids.every((list) => list.length === ids[0].length && list.every((id, t) => id === ids[0][t]));
}
