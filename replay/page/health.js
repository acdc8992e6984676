// The numbers of a run by step, from its metrics where they were kept, else from the episodes at hand.

// Returns Map step -> {episodes, reward, scored, turns, tokens, trained, charges, on_calls, on_thoughts, groups, flat}:
// sums over the train episodes of the listing; `groups` counts groups, `flat` those whose rewards are all the same.
export function sumsByStep(listing) {
  const found = new Map();
  const column = (name) => listing.columns.get(name);
  const steps = column("step"), splits = column("split"), groups = column("group"), rewards = column("reward");
  const spreads = new Map();
  for (let row = 0; row < listing.rows; row++) {
    if (listing.tables.get("split").values[splits[row]] !== "train" || listing.dead.has(row)) continue;
    let sums = found.get(steps[row]);
    if (!sums) found.set(steps[row], (sums = { episodes: 0, reward: 0, scored: 0, turns: 0, tokens: 0, trained: 0, charges: 0, on_calls: 0, on_thoughts: 0, groups: 0, flat: 0 }));
    sums.episodes++;
    if (!Number.isNaN(rewards[row])) {
      sums.reward += rewards[row];
      sums.scored++;
    }
    for (const name of ["turns", "tokens", "trained", "charges", "on_calls", "on_thoughts"]) sums[name] += column(name)?.[row] || 0;
    const key = steps[row] * 2 ** 24 + groups[row];
    const spread = spreads.get(key);
    if (!spread) spreads.set(key, { sums, low: rewards[row], high: rewards[row] });
    else if (rewards[row] < spread.low || Number.isNaN(spread.low)) spread.low = rewards[row];
    else if (rewards[row] > spread.high || Number.isNaN(spread.high)) spread.high = rewards[row];
  }
  for (const { sums, low, high } of spreads.values()) {
    sums.groups++;
    if (!(high > low)) sums.flat++;
  }
  return found;
}

// The curves of the run view: [{title, unit, series, zero}].
export function curvesOf(listing, metrics) {
  const sums = [...sumsByStep(listing)].sort(([a], [b]) => a - b);
  const trained = metrics.filter((line) => "rollout/reward" in line), tested = metrics.filter((line) => "eval/success" in line);
  const metric = (lines, name, of = (line) => line[name]) => lines.map((line) => [line.step, of(line)]).filter(([, value]) => Number.isFinite(value));
  const counted = (of) => sums.map(([step, sum]) => [step, of(sum)]).filter(([, value]) => Number.isFinite(value));
  const either = (name, of, read) => (trained.some((line) => name in line) ? metric(trained, name, read) : counted(of));
  const reasons = [...new Set(trained.flatMap((line) => Object.keys(line).filter((name) => name.startsWith("charges/"))))].sort();
  const charges = reasons.length
    ? reasons.map((name) => ({ name: name.slice(8), points: metric(trained, name, (line) => line[name] ?? 0) }))
    : [{ name: "all", points: counted((sum) => sum.charges / sum.episodes) }];
  const known = listing.columns.has("on_calls");
  return [
    { title: "Reward", unit: "mean an episode", series: [
      { name: "train", points: either("rollout/reward", (sum) => sum.reward / sum.scored) },
      { name: "held out", points: metric(tested, "eval/reward") }] },
    { title: "Held-out success", unit: "share, 95 % interval", series: [
      { name: "success", points: metric(tested, "eval/success"), band: tested.filter((line) => Number.isFinite(line["eval/success_low"])).map((line) => [line.step, line["eval/success_low"], line["eval/success_high"]]) }] },
    { title: "Charges by status", unit: "an episode", series: charges.sort((a, b) => Math.max(...b.points.map((p) => p[1])) - Math.max(...a.points.map((p) => p[1]))).slice(0, 6) },
    { title: "Tokens masked", unit: "share of all tokens", series: [
      { name: "masked", points: either("rollout/decision_tokens", (sum) => (known ? 1 - sum.trained / sum.tokens : NaN), (line) => 1 - line["rollout/decision_tokens"] / line["rollout/tokens"]) }] },
    { title: "Groups with no spread", unit: "share: their outcome teaches nothing", series: [
      { name: "no spread", points: either("rollout/no_spread_share", (sum) => sum.flat / sum.groups) }] },
    { title: "Credit on call and on thought tokens", unit: "reward an episode, episodes at hand", series: known ? [
      { name: "calls", points: counted((sum) => sum.on_calls / sum.episodes) },
      { name: "thoughts", points: counted((sum) => sum.on_thoughts / sum.episodes) }] : [] },
    { title: "Spread of credit", unit: "reward, over trained tokens", series: [{ name: "spread", points: metric(trained, "credit/spread") }] },
    { title: "Surprise of the policy", unit: "nats a sampled token", series: [{ name: "−log p", points: metric(trained, "policy/entropy_nats") }] },
  ];
}

// The groups of a step: [{row, group, split, task, size, rewards, charges}], `rewards` the scored ones, in the listing's order.
export function groupsOf(listing, step) {
  const steps = listing.columns.get("step"), groups = listing.columns.get("group"), splits = listing.columns.get("split");
  const found = new Map();
  for (let row = 0; row < listing.rows; row++) {
    if (steps[row] !== step || listing.dead.has(row)) continue;
    const name = listing.text("group", row);
    const key = name ? `${splits[row]} ${groups[row]}` : `row ${row}`;
    if (!found.has(key)) found.set(key, { row, group: name || listing.id(row), split: listing.text("split", row), task: listing.text("task", row), size: 0, rewards: [], charges: 0 });
    const group = found.get(key);
    group.size++;
    group.charges += listing.number("charges", row);
    const reward = listing.number("reward", row);
    if (!Number.isNaN(reward)) group.rewards.push(reward);
  }
  return [...found.values()];
}
