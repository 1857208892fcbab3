// Format values. What is not known is shown as the word "unknown", never as 0 or as an empty cell.

import { h } from "/dom.js";

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY_AND_TIME = new Intl.DateTimeFormat("en-GB", {
  day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit",
});
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

// The symbol of each state stands beside its word, so that colour is never the only difference.
const TONES = {
  healthy: "good", open: "good", answers: "good", "in session": "good",
  degraded: "warn", opening: "warn", warning: "warn", "being filled": "warn",
  "out of session": "warn", "switched off": "warn",
  unavailable: "bad", critical: "bad", "no answer": "bad", damaged: "bad", refused: "bad", "not held": "bad",
  unknown: "none",
};
const SYMBOLS = { good: "●", warn: "▲", bad: "✕", none: "?" };

export function unknown() {
  return h("span", { class: "unknown" }, "unknown");
}

export function whole(value) {
  return value === null ? unknown() : WHOLE.format(value);
}

export function rate(value) {
  if (value === null) return unknown();
  return value > 0 && value < 100 ? TENTHS.format(value) : WHOLE.format(value);
}

export function bytes(value) {
  if (value === null) return unknown();
  let unit = 0;
  let scaled = value;
  while (scaled >= 1000 && unit < UNITS.length - 1) {
    scaled /= 1000;
    unit += 1;
  }
  return `${unit === 0 || scaled >= 100 ? WHOLE.format(scaled) : TENTHS.format(scaled)} ${UNITS[unit]}`;
}

export function time(seconds) {
  const date = new Date(seconds * 1000);
  const today = new Date().toDateString() === date.toDateString();
  return h("time", { datetime: date.toISOString() }, (today ? TIME : DAY_AND_TIME).format(date));
}

export function clock(seconds) {
  return TIME.format(new Date(seconds * 1000));
}

export function toneOf(word) {
  return TONES[word] || "none";
}

/** Return a state: a symbol for the eye, and its word. */
export function state(word) {
  const tone = toneOf(word);
  return h("span", { class: `state ${tone}` },
    h("span", { class: "symbol", "aria-hidden": "true" }, SYMBOLS[tone]), word);
}

/** Return a bar with its meaning as text beside it. */
export function bar(part, text, tone) {
  if (part === null) return unknown();
  return h("span", { class: "bar-with-text" },
    h("svg", { class: `bar ${tone || ""}`, viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
      h("rect", { class: "track", x: 0, y: 0, width: 100, height: 6 }),
      h("rect", { class: "fill", x: 0, y: 0, width: Math.max(0, Math.min(100, part * 100)).toFixed(1), height: 6 })),
    h("span", {}, text));
}

/** Return ids such as 0-3, 7. */
export function ranges(numbers) {
  const runs = [];
  for (const number of numbers) {
    const last = runs[runs.length - 1];
    if (last && number === last[1] + 1) last[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ") || "none";
}

/** Return text whose commands, which begin with `waltz`, are shown as code. */
export function withCommands(text) {
  const at = text.search(/waltz [a-z]/);
  if (at < 0) return text;
  const rest = text.slice(at);
  const end = rest.indexOf(". ") < 0 ? rest.length : rest.indexOf(". ");
  return [text.slice(0, at), h("code", {}, rest.slice(0, end)), rest.slice(end)];
}
