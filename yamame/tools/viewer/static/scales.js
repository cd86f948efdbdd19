// Scales from values to pixels, with ticks.
import { number } from "./format.js";

const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000, 864000];

/** {place(value) -> pixel, value(pixel), ticks: [[value, text], …]} */
export function linear([low, high], [from, to], count, texts = number) {
  const place = (value) => from + ((value - low) / (high - low)) * (to - from);
  const value = (pixel) => low + ((pixel - from) / (to - from)) * (high - low);
  const step = niceStep((high - low) / count);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) ticks.push(i * step);
  return { place, value, ticks: labeled(ticks, texts) };
}

/** For positive values. */
export function logarithmic([low, high], [from, to], count) {
  const inner = linear([Math.log10(low), Math.log10(high)], [from, to], count);
  const powers = [];
  for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power++) powers.push(10 ** power);
  const every = Math.max(1, Math.ceil(powers.length / count));
  const ticks = powers.length > 1 ? powers.filter((_, index) => index % every === 0) : linear([low, high], [from, to], count).ticks.map(([value]) => value);
  return { place: (value) => inner.place(Math.log10(value)), value: (pixel) => 10 ** inner.value(pixel), ticks: labeled(ticks, number) };
}

/** For seconds, with ticks at whole minutes, hours or days. */
export function time([low, high], range, count) {
  const step = SECONDS.find((seconds) => (high - low) / seconds <= count) ?? niceStep((high - low) / count / 86400) * 86400;
  const [unit, name] = step >= 86400 ? [86400, "d"] : step >= 3600 ? [3600, "h"] : step >= 60 ? [60, "min"] : [1, "s"];
  const scale = linear([low, high], range, count);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high; i++) ticks.push(i * step);
  return ticks.length < 2 || high - low < 5 ? scale : { ...scale, ticks: ticks.map((value) => [value, `${number(value / unit)} ${name}`]) };
}

/** 1, 2 or 5 times a power of ten: the nearest one. */
function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [[1.4, 1], [3.2, 2], [7.1, 5], [Infinity, 10]].find(([limit]) => rough / power < limit)[1] * power;
}

/** Label each tick with as many digits as distinguish it from its neighbors. */
function labeled(ticks, texts) {
  for (let digits = 2; digits < 10; digits++) {
    const found = ticks.map((value) => texts(Math.abs(value) < 1e-12 ? 0 : value, digits));
    const exact = new Set(found).size === found.length && (digits > 2 || ticks.every((value, i) => close(value, found[i])));
    if (exact || digits === 9) return ticks.map((value, index) => [value, found[index]]);
  }
  return [];
}

function close(value, text) {
  const factor = { k: 1e3, M: 1e6, G: 1e9, T: 1e12 }[text.at(-1)] ?? 1;
  return Math.abs(parseFloat(text.replace("−", "-")) * factor - value) <= 1e-6 * Math.abs(value) + 1e-12;
}
