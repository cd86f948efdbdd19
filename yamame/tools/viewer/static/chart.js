// A line chart as SVG; colors and fonts are attributes, so that saved files look the same.
import { svg } from "./dom.js";
import * as scales from "./scales.js";

const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
const MARGIN = { top: 8, right: 12, bottom: 38, left: 52 };

/**
 * series: [{label, color, x, line, low, high, kind, members}], low and high null where there is no range; members: lines of
 * seeds [{x, line}] that are drawn in place of one.
 * options: {width, height, axis: {name, kind: "count"|"seconds"}, span: shown part of x|null, domain: [0, 1]|null, log, colors: theme()}
 * Returns {element, x, y, area, span}: the SVG element, its scales, its plot area and what it shows of x.
 */
export function draw(all, { width, height, axis, span: part = null, domain = null, log = false, colors }) {
  const area = { left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top, bottom: height - MARGIN.bottom };
  const series = part ? all.map((one) => cut(one, part, 1)) : all, inside = part ? all.map((one) => cut(one, part, 0)) : all;
  const span = part ?? xDomain(all), range = [area.left, area.right], count = Math.max(2, Math.round((area.right - area.left) / 80));
  const x = axis.kind === "seconds" ? scales.time(span, range, count) : scales.linear(span, range, count);
  const y = yScale(inside.some(({ x }) => x.length) ? inside : series, domain, log, [area.bottom, area.top]);
  const clip = `clip-${Math.random().toString(36).slice(2)}`;
  const element = svg("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FONT, "font-size": 11, role: "img" },
    svg("defs", {}, svg("clipPath", { id: clip }, svg("rect", { x: area.left, y: area.top - 2, width: area.right - area.left, height: area.bottom - area.top + 4 }))),
    axes(x, y, area, axis, colors),
    svg("g", { "clip-path": `url(#${clip})`, fill: "none", "stroke-linejoin": "round", "stroke-linecap": "round" },
      series.map((one) => rangeOf(one, x, y, log)), series.map((one) => membersOf(one, x, y, log)), series.map((one) => lineOf(one, x, y, log))));
  return { element, x, y, area, span };
}

function axes(x, y, area, axis, colors) {
  return svg("g", { fill: colors.soft, "stroke-width": 1 },
    y.ticks.map(([value, text]) => [
      svg("line", { x1: area.left, x2: area.right, y1: crisp(y.place(value)), y2: crisp(y.place(value)), stroke: colors.line }),
      svg("text", { x: area.left - 7, y: y.place(value) + 3.5, "text-anchor": "end" }, text)]),
    svg("line", { x1: area.left, x2: area.right, y1: crisp(area.bottom), y2: crisp(area.bottom), stroke: colors.soft, "stroke-opacity": 0.5 }),
    x.ticks.map(([value, text]) => [
      svg("line", { x1: crisp(x.place(value)), x2: crisp(x.place(value)), y1: area.bottom, y2: area.bottom + 4, stroke: colors.soft, "stroke-opacity": 0.5 }),
      svg("text", { x: Math.min(x.place(value), area.right - 4), y: area.bottom + 16, "text-anchor": "middle" }, text)]),
    svg("text", { x: (area.left + area.right) / 2, y: area.bottom + 32, "text-anchor": "middle" }, axis.name));
}

function lineOf({ x: places, line, color }, x, y, log) {
  const known = places.map((place, i) => [place, line[i]]).filter(([, value]) => drawable(value, log));
  if (!known.length) return null;
  if (known.length === 1) return svg("circle", { cx: round(x.place(known[0][0])), cy: round(y.place(known[0][1])), r: 3, fill: color });
  return svg("path", { class: "line", d: path(known, x, y), stroke: color, "stroke-width": 1.75 });
}

/** Thin lines of single seeds. */
function membersOf({ members, color }, x, y, log) {
  return (members ?? []).map(({ x: places, line }) => {
    const known = places.map((place, i) => [place, line[i]]).filter(([, value]) => drawable(value, log));
    return known.length > 1 ? svg("path", { class: "seed", d: path(known, x, y), stroke: color, "stroke-width": 1, "stroke-opacity": 0.5 }) : null;
  });
}

function rangeOf({ x: places, low, high, color, kind }, x, y, log) {
  if (!low) return null;
  const known = places.map((place, i) => [place, low[i], high[i]]).filter(([, a, b]) => drawable(a, log) && drawable(b, log));
  if (known.length < 2) return null;
  const there = path(known.map(([place, , b]) => [place, b]), x, y), back = path(known.map(([place, a]) => [place, a]).reverse(), x, y);
  const isRaw = kind === "range";
  return svg("path", { class: "range", d: `${there}L${back.slice(1)}Z`, fill: color, "fill-opacity": isRaw ? 0.13 : 0.18, stroke: isRaw ? color : "none", "stroke-width": 0.75, "stroke-opacity": 0.22 });
}

function path(points, x, y) {
  return "M" + points.map(([place, value]) => `${round(x.place(place))} ${round(y.place(value))}`).join("L");
}

/** The points of a series in a part of x, and `margin` more on either side. */
function cut(series, [low, high], margin) {
  const start = Math.max(0, series.x.filter((place) => place < low).length - margin);
  const end = series.x.filter((place) => place <= high).length + margin;
  const slice = (values) => values?.slice(start, end);
  const members = series.members?.map((one) => cut(one, [low, high], margin));
  return { ...series, x: slice(series.x), line: slice(series.line), low: slice(series.low), high: slice(series.high), members };
}

/** Start and end of all series; from 0 if they start near it. */
export function xDomain(series) {
  let low = Infinity, high = -Infinity;
  for (const { x } of series) { low = Math.min(low, x[0]); high = Math.max(high, x.at(-1)); }
  if (low > 0 && low < 0.1 * high) low = 0;
  return low < high ? [low, high] : [low - 0.5, low + 0.5];
}

/** Scale of the lines with a margin; ranges extend it by at most their height on either side and are clipped beyond. */
function yScale(series, domain, log, range) {
  const lines = extent(series.flatMap(({ line }) => line), log), ranges = extent(series.flatMap(({ low, high, members }) => [...(low ?? []), ...(high ?? []), ...(members ?? []).flatMap(({ line }) => line)]), log);
  let [low, high] = domain ?? lines ?? [0, 1];
  if (log && lines) {
    const wide = [Math.min(low, ranges?.[0] ?? low), Math.max(high, ranges?.[1] ?? high)];
    if (wide[0] < wide[1]) return scales.logarithmic([Math.max(wide[0], low / 30) * 0.9, Math.min(wide[1], high * 30) * 1.1], range, 5);
  }
  if (low === 0 && high === 0) high = 1;
  else if (!domain) {
    const room = high > low ? high - low : Math.abs(low) || 1;
    if (ranges) [low, high] = [Math.max(Math.min(low, ranges[0]), low - 0.6 * room), Math.min(Math.max(high, ranges[1]), high + 0.6 * room)];
    if (low > 0 && low < 0.4 * high) low = 0;
    if (high < 0 && high > 0.4 * low) high = 0;
    const pad = (high > low ? high - low : Math.abs(low) || 1) * 0.06;
    [low, high] = [low === 0 ? (low < high ? 0 : -pad) : low - pad, high === 0 && low < 0 ? 0 : high + pad];
  }
  return scales.linear([low, high], range, 4);
}

function extent(values, log) {
  let low = Infinity, high = -Infinity;
  for (const value of values) if (drawable(value, log)) { low = Math.min(low, value); high = Math.max(high, value); }
  return low <= high ? [low, high] : null;
}

/** Value of the line at the point nearest to x, as {place, value, low, high, seeds}; null outside of the line. */
export function at(series, x) {
  const places = series.x;
  const reach = places.length > 1 ? (places.at(-1) - places[0]) / places.length : Infinity;
  if (x < places[0] - reach || x > places.at(-1) + reach) return null;
  let begin = 0, end = places.length - 1;
  while (end - begin > 1) { const middle = (begin + end) >> 1; if (places[middle] <= x) begin = middle; else end = middle; }
  const index = Math.abs(places[begin] - x) <= Math.abs(places[end] - x) ? begin : end;
  if (series.line[index] === null) return null;
  return { place: places[index], value: series.line[index], low: series.low?.[index] ?? null, high: series.high?.[index] ?? null, seeds: series.seeds?.[index] ?? null };
}

const drawable = (value, log) => value !== null && (!log || value > 0);
const round = (pixel) => Math.round(pixel * 10) / 10;
const crisp = (pixel) => Math.round(pixel) + 0.5;
