// Draws an episode as a strip on a canvas: credit above and below a line, masked tokens hatched, turns ticked, failed
// calls and the first token that differs marked. All strips of a view share one scale and one width a token.

import { isFailed } from "./episode.js";
import { isSigned } from "./overlay.js";

export const STRIP_PX = 38;
const MARK_PX = 7;

// The colours of the page, for canvases.
export function paletteOf(element) {
  const style = getComputedStyle(element);
  const colour = (name) => style.getPropertyValue(name).trim();
  const forced = matchMedia("(forced-colors: active)").matches;
  return forced
    ? { pos: "Highlight", neg: "CanvasText", low: "CanvasText", quiet: "GrayText", line: "GrayText", ink: "CanvasText", paper: "Canvas" }
    : { pos: colour("--pos"), neg: colour("--neg"), low: colour("--low"), quiet: colour("--quiet"), line: colour("--line-2"), ink: colour("--ink"), paper: colour("--paper") };
}

// Of `columns` equal parts of the tokens [from, to): the greatest and the least value, and whether any token of it is
// trained (2), only masked ones (1) or none (0). A decision without a number counts as none.
export function summary(episode, name, columns, from, to) {
  const high = new Float32Array(columns), low = new Float32Array(columns), kind = new Uint8Array(columns);
  const values = name === "mask" ? null : episode.signal(name);
  const share = columns / (to - from);
  for (const span of episode.spans) {
    const mark = span.trained ? 2 : 1;
    for (let t = Math.max(from, span.start); t < span.end; t++) {
      const first = Math.floor((t - from) * share);
      const last = Math.min(columns, Math.max(first + 1, Math.floor((t + 1 - from) * share)));
      const value = values && span.trained ? values[t] : 0;
      if (Number.isNaN(value)) continue;
      for (let column = first; column < last; column++) {
        if (mark > kind[column]) kind[column] = mark;
        if (value > high[column]) high[column] = value;
        else if (value < low[column]) low[column] = value;
      }
    }
  }
  return { high, low, kind };
}

// Draws on `canvas`, whose width on the page counts, the tokens [from, to). `scale`: what a full bar stands for; `differs`:
// the first token unlike the reference's, or null.
export function drawStrip(canvas, episode, { name, scale, from = 0, to, differs = null, palette }) {
  const ratio = devicePixelRatio || 1;
  const width = Math.max(1, Math.round(canvas.clientWidth)), height = STRIP_PX;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const tall = height - MARK_PX;
  const at = (token) => ((token - from) * width) / (to - from);
  const { high, low, kind } = summary(episode, name, width, from, to);
  const hatch = hatching(pen, palette);
  for (let x = 0; x < width; x++) {
    if (kind[x] === 1) fill(pen, hatch, x, 1, tall - 2);
    else if (kind[x] === 2) column(pen, palette, name, x, tall, high[x] / scale, low[x] / scale);
  }
  pen.fillStyle = palette.ink;
  for (const start of episode.turnStarts()) if (start !== undefined) pen.fillRect(Math.round(at(start)), tall, 1, 5);
  for (const call of episode.header.calls) if (isFailed(call)) cross(pen, palette.neg, at(call.start) + 3, height - MARK_PX / 2);
  if (differs !== null) diamond(pen, palette.ink, at(differs), tall);
}

function column(pen, palette, name, x, tall, high, low) {
  const middle = tall / 2;
  if (!isSigned(name)) {
    const share = name === "mask" ? 1 : Math.min(1, Math.max(high, -low));
    return fill(pen, name === "mask" ? palette.quiet : palette.low, x, tall * (1 - share), Math.max(1, tall * share));
  }
  if (high || low) {
    pen.globalAlpha = 0.16;
    fill(pen, high > -low ? palette.pos : palette.neg, x, 0, tall);
    pen.globalAlpha = 1;
  }
  fill(pen, palette.quiet, x, middle - 0.5, 1);
  if (high) fill(pen, palette.pos, x, middle - Math.max(1, Math.min(1, high) * middle), Math.max(1, Math.min(1, high) * middle));
  if (low) fill(pen, palette.neg, x, middle, Math.max(1, Math.min(1, -low) * middle));
  return null;
}

function fill(pen, style, x, y, tall) {
  pen.fillStyle = style;
  pen.fillRect(x, y, 1, tall);
}

function hatching(pen, palette) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const draw = tile.getContext("2d");
  draw.strokeStyle = palette.line;
  draw.beginPath();
  for (const shift of [-6, 0, 6]) {
    draw.moveTo(shift, 6);
    draw.lineTo(shift + 6, 0);
  }
  draw.stroke();
  return pen.createPattern(tile, "repeat");
}

function cross(pen, colour, x, y) {
  pen.strokeStyle = colour;
  pen.lineWidth = 1.6;
  pen.beginPath();
  pen.moveTo(x - 3, y - 3);
  pen.lineTo(x + 3, y + 3);
  pen.moveTo(x + 3, y - 3);
  pen.lineTo(x - 3, y + 3);
  pen.stroke();
}

function diamond(pen, colour, x, y) {
  pen.fillStyle = colour;
  pen.beginPath();
  pen.moveTo(x, y - 5);
  pen.lineTo(x + 4, y);
  pen.lineTo(x, y + 5);
  pen.lineTo(x - 4, y);
  pen.fill();
}
