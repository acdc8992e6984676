// Builds elements. Data enters the page here, and only as text nodes: never as markup.

export function el(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function svg(tag, properties, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

// Moves the focus by `by` rows of a table of rollouts or groups.
export function focusRow(by) {
  const buttons = [...byId("messages").querySelectorAll(".open-rollout")];
  const at = buttons.indexOf(document.activeElement);
  buttons[Math.max(0, Math.min(buttons.length - 1, at + by))]?.focus();
}

export function signed(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const text = Math.abs(value).toFixed(digits);
  if (value !== 0 && Number(text) === 0) return (value < 0 ? "−" : "+") + Math.abs(value).toExponential(1);
  return (value < 0 ? "−" : value > 0 ? "+" : "") + text;
}

export function plain(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return value.toFixed(digits).replace("-", "−");
}

export function count(number, noun, plural = noun + "s") {
  return `${number.toLocaleString("en")} ${number === 1 ? noun : plural}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "";
  return value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(1)} s`;
}

// Makes white space, control and direction characters of a single token readable.
export function visible(text) {
  return text.replace(/[\n\r\t\u0000-\u001f\u007f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, (c) => {
    const named = { "\n": "⏎", "\r": "␍", "\t": "⇥" }[c];
    return named ?? `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}
