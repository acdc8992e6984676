// Curves as SVG: a few lines over steps, told apart by colour, dashes and their name at the end.

import { el, svg } from "./dom.js";
import { short } from "./overlay.js";

const WIDTH = 340, HEIGHT = 150, LEFT = 52, RIGHT = 10, TOP = 8, BOTTOM = 22;

// `series`: [{name, points: [[step, value]], band: [[step, low, high]] | undefined}]. `unit` names the values; `step` is
// marked, `onStep(step)` hears of a click. `zero`: whether 0 belongs to the axis.
export function lineChart({ title, unit, series, step, steps, onStep, zero = true }) {
  const drawn = series.filter(({ points }) => points.length);
  if (!drawn.length) return null;
  const values = drawn.flatMap(({ points, band = [] }) => [...points.map(([, value]) => value), ...band.flatMap(([, low, high]) => [low, high])]);
  let low = Math.min(...values, ...(zero ? [0] : [])), high = Math.max(...values, ...(zero ? [0] : []));
  if (low === high) [low, high] = [low - (zero && low === 0 ? 0 : 1), high + 1];
  const [first, last] = steps;
  const x = (at) => LEFT + ((WIDTH - LEFT - RIGHT) * (at - first)) / Math.max(1, last - first);
  const y = (value) => TOP + ((HEIGHT - TOP - BOTTOM) * (high - value)) / (high - low);
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": spokenChart(title, drawn), class: "chart" });
  for (const value of low < 0 && high > 0 ? [low, high].filter((edge) => Math.abs(y(edge) - y(0)) > 12) : [low, (low + high) / 2, high]) {
    picture.append(svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), class: "grid" }),
      svg("text", { x: LEFT - 6, y: y(value) + 3.5, "text-anchor": "end" }, shortTick(value, high - low)));
  }
  for (const at of new Set([first, last])) picture.append(svg("text", { x: x(at), y: HEIGHT - 6, "text-anchor": at === first ? "start" : "end" }, `step ${at}`));
  if (step !== null && step >= first && step <= last) picture.append(svg("line", { x1: x(step), x2: x(step), y1: TOP, y2: HEIGHT - BOTTOM, class: "now" }));
  if (low < 0 && high > 0) picture.append(svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(0), y2: y(0), class: "grid zero" }), svg("text", { x: LEFT - 6, y: y(0) + 3.5, "text-anchor": "end" }, "0"));
  drawn.forEach(({ points, band }, at) => {
    if (band?.length > 1) {
      const edge = [...band.map(([s, , top]) => `${x(s)},${y(top)}`), ...band.toReversed().map(([s, bottom]) => `${x(s)},${y(bottom)}`)];
      picture.append(svg("polygon", { points: edge.join(" "), class: `band line-${at % 6}` }));
    }
    picture.append(svg("polyline", { points: points.map(([s, value]) => `${x(s)},${y(value)}`).join(" "), class: `line line-${at % 6}` }));
    for (const [s, value] of points.length < 40 ? points : []) picture.append(svg("circle", { cx: x(s), cy: y(value), r: 2.2, class: `dot line-${at % 6}` }));
  });
  picture.addEventListener("click", (event) => {
    const box = picture.getBoundingClientRect();
    const share = (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT);
    onStep(Math.round(first + share * (last - first)));
  });
  const names = drawn.map(({ name, points }, at) => el("span", { class: "series" }, sample(at % 6), `${name} `, el("b", null, shortTick(valueAt(points, step), high - low))));
  return el("figure", { class: "figure-box" }, el("figcaption", null, el("b", null, title), el("span", { class: "about" }, ` ${unit}`)), picture, el("div", { class: "series-row" }, ...names));
}

function sample(at) {
  return svg("svg", { viewBox: "0 0 22 8", width: 22, height: 8, "aria-hidden": "true", class: "chart" }, svg("line", { x1: 0, x2: 22, y1: 4, y2: 4, class: `line line-${at}` }));
}

// The value at the step, or at the last one before it.
function valueAt(points, step) {
  const found = step === null ? points.at(-1) : (points.findLast(([at]) => at <= step) ?? points[0]);
  return found[1];
}

function shortTick(value, range) {
  if (value === 0) return "0";
  const digits = Math.max(0, Math.min(4, 2 - Math.floor(Math.log10(Math.max(range, 1e-9)))));
  return Math.abs(value) < 10 ** -digits / 2 ? short(value) : value.toFixed(Math.abs(value) >= 100 ? 0 : digits).replace("-", "−");
}

function spokenChart(title, series) {
  return `${title}: ${series.map(({ name, points }) => `${name} from ${short(points[0][1])} to ${short(points.at(-1)[1])}`).join(", ")}`;
}
