// The run: reward and credit-health over the steps, a bar of steps to scrub, and the groups of the step at hand.

import { lineChart } from "./chart.js";
import { byId, count, el, focusRow, plain } from "./dom.js";
import { curvesOf, groupsOf, sumsByStep } from "./health.js";
import { app } from "./state.js";

const MOST_GROUPS = 400;
const runState = { steps: [], sums: null };

export const runView = {
  title: "Run",
  panel: false,
  heading: false,
  colours: false,

  show() {
    runState.sums = sumsByStep(app.listing);
    runState.steps = Int32Array.from(new Set(app.listing.columns.get("step"))).sort();
    const { scrollY } = window;
    render();
    scrollTo(0, scrollY);
  },

  keys: {
    h: () => toStep(-1), l: () => toStep(1),
    j: () => focusRow(1), k: () => focusRow(-1),
    Enter: () => app.go({ view: "group" }, true),
    " ": () => app.go({ view: "replay", token: null }, true),
  },
};

function render() {
  const { listing, source } = app;
  const step = listing.number("step", app.row);
  const curves = curvesOf(listing, source.run.metrics);
  const all = [...runState.steps, ...source.run.metrics.map((line) => line.step)];
  const steps = [Math.min(...all), Math.max(...all)];
  const charts = curves.map((curve) => lineChart({ ...curve, step, steps, onStep: nearestStep })).filter(Boolean);
  const words = [count(listing.rows - listing.dead.size, "episode"), count(runState.steps.length, "step"), source.run.live ? "still running" : null, source.run.metrics.length ? null : "no metrics.jsonl: curves are of the episodes here"];
  byId("messages").replaceChildren(
    el("div", { class: "view-head" }, el("h2", null, source.run.title), el("p", { class: "about" }, words.filter(Boolean).join(" · "))),
    stepBar(step),
    el("div", { class: "charts" }, ...charts),
    ...stepTable(step));
}

// One slider over the steps, with a bar of mean reward behind each.
function stepBar(step) {
  const at = runState.steps.indexOf(step);
  const shown = thinned(runState.steps, 240);
  const means = [...runState.sums.values()].filter((sums) => sums.scored).map((sums) => sums.reward / sums.scored);
  const highest = Math.max(1e-9, ...means);
  const bars = shown.map((each) => {
    const sums = runState.sums.get(each);
    const bar = el("i", { class: each === step ? "step-bar now" : "step-bar", title: `step ${each}${sums?.scored ? `, mean reward ${plain(sums.reward / sums.scored)}` : ""}`, onclick: () => nearestStep(each) });
    bar.style.setProperty("--share", String(sums?.scored ? Math.max(0.04, sums.reward / sums.scored / highest) : 0.04));
    return bar;
  });
  return el("div", { class: "steps" }, el("div", { class: "step-bars", "aria-hidden": "true" }, ...bars),
    el("label", { class: "step-label" }, el("span", null, `step ${step}`),
      el("input", { type: "range", id: "step", min: 0, max: runState.steps.length - 1, value: at, "aria-label": "Step", "aria-valuetext": `step ${step}`, onchange: ({ target }) => nearestStep(runState.steps[target.value]) })),
    el("span", { class: "about" }, `bars: mean reward of the train episodes${means.length ? `, the highest ${plain(highest, 2)}` : ""} · `, el("kbd", null, "h"), el("kbd", null, "l"), " move"));
}

function thinned(values, most) {
  const list = [...values];
  if (list.length <= most) return list;
  const every = list.length / most;
  return Array.from({ length: most }, (_, at) => list[Math.floor(at * every)]);
}

function stepTable(step) {
  const groups = groupsOf(app.listing, step);
  const rows = groups.slice(0, MOST_GROUPS).map((group) => {
    const { rewards } = group;
    const mean = rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length;
    const flat = rewards.length > 1 && Math.min(...rewards) === Math.max(...rewards);
    return el("tr", null,
      el("th", { scope: "row" }, el("button", { type: "button", class: "open-rollout", onclick: () => app.go({ view: "group", row: group.row, token: null }, true) }, group.group)),
      el("td", null, group.split), el("td", null, group.task),
      el("td", { class: "number" }, String(group.size)),
      el("td", { class: "number" }, rewards.length ? plain(mean) : "unscored"),
      el("td", { class: "number" }, rewards.length ? `${plain(Math.min(...rewards), 2)} to ${plain(Math.max(...rewards), 2)}` : "–"),
      el("td", { class: group.charges ? "number negative" : "number" }, String(group.charges)),
      el("td", null, flat ? "no spread" : ""));
  });
  const head = ["group", "split", "task", "rollouts", "mean reward", "least to most", "charges", ""];
  const title = el("h2", { class: "table-title" }, `Groups of step ${step}`);
  const cut = groups.length > MOST_GROUPS ? el("p", { class: "about" }, `the first ${MOST_GROUPS} of ${groups.length} groups; the list at the side has all`) : null;
  return [title, cut, el("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": title.textContent }, el("table", { class: "table" },
    el("thead", null, el("tr", null, ...head.map((name, at) => el("th", { scope: "col", class: at > 2 && at < 7 ? "number" : null }, name || el("span", { class: "unseen" }, "spread"))))),
    el("tbody", null, ...rows)))].filter(Boolean);
}

function toStep(by) {
  const at = runState.steps.indexOf(app.listing.number("step", app.row)) + by;
  if (at >= 0 && at < runState.steps.length) nearestStep(runState.steps[at]);
}

// Goes to the first episode of the step nearest to `wanted` that has any.
function nearestStep(wanted) {
  const step = runState.steps.reduce((best, each) => (Math.abs(each - wanted) < Math.abs(best - wanted) ? each : best));
  const row = app.listing.columns.get("step").findIndex((each, at) => each === step && !app.listing.dead.has(at));
  if (row >= 0) app.go({ row, token: null });
}
