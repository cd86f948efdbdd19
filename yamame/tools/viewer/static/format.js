// Formats numbers and times.

const UNITS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** 1234567 -> "1.23M", 0.01234 -> "0.0123"; null -> "–". */
export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  const [unit, letter] = UNITS.find(([unit]) => size >= 0.9995 * unit && size < 1e15) ?? [1, ""];
  return `${+(value / unit).toPrecision(digits)}${letter}`.replaceAll("-", "−").replace("e+", "e");
}

/** 1234567 -> "1,234,567". */
export function whole(value) {
  return value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en");
}

export function percent(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;
}

/** 3725 -> "1 h 2 min". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 60) return `${Math.ceil(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.round(minutes / 60 / 24)} d`;
}

/** 1234567 -> "1.2 MB". */
export function bytes(count) {
  const [unit, name] = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([unit]) => count >= unit) ?? [1, "bytes"];
  return `${+(count / unit).toPrecision(2)} ${name}`;
}

/** Time since a Unix time. */
export function ago(time) {
  if (!time) return "–";
  const seconds = Math.max(0, Date.now() / 1000 - time);
  return seconds < 5 ? "just now" : `${duration(seconds).replace(/ h .*/, " h")} ago`;
}

/** Start and end of a long name. */
export function short(text, most) {
  const half = Math.floor((most - 1) / 2);
  return text.length > most ? `${text.slice(0, half)}…${text.slice(-half)}` : text;
}
