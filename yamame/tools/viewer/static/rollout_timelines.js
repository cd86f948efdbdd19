// Time from left to right, one column a moment: a slider, what happened, and Q by discount.
import { h, svg } from "./dom.js";
import { short } from "./rollout_data.js";

export const LEFT = 64, RIGHT = 52;
/* Pixels beside every timeline, for its labels; the same for all, so that moments lie below each other. */
const Q_HEIGHT = 190, THUMB = 16;

/** All timelines; `strips` are the attention's. */
export function timelines(clock, strips) {
  const { trial } = clock;
  const slider = h("input", { type: "range", class: "r-slider", min: 0, max: trial.steps, step: 1, value: 0, "aria-label": "Step",
    oninput: () => clock.go(Number(slider.value)) });
  const lanes = lanesOf(trial).map((lane) => ({ ...lane, holder: h("div", { class: "r-lane" }) }));
  const chart = h("div", { class: "r-chart", role: "img", "aria-label": "Q by discount over time" });
  const legend = trial.discounts.map((discount, place) => {
    const value = h("output", {});
    return { element: h("li", { class: acting(trial, place) ? "acting" : null }, h("i", { style: { background: hue(trial, place) } }), `γ ${name(discount)}`, value), value };
  });
  const element = h("section", { class: "r-card r-timelines" },
    h("div", { class: "r-row" }, h("span", { class: "r-label" }, "step"), slider),
    lanes.map((lane) => h("div", { class: "r-row" }, h("span", { class: "r-label" }, lane.label), lane.holder)),
    h("h2", {}, "Q of the action taken, by discount", h("small", {}, "in units of reward · the acting discount is drawn bold")),
    chart, h("ul", { class: "r-legend" }, legend.map((one) => one.element)),
    h("h2", {}, "Attention from the present step", h("small", {}, "stronger: more · on the right, the most · point at a step to see it, click to keep it")), strips);
  let marks = [];

  function draw() {
    const width = Math.max(40, element.clientWidth - padding(element) - LEFT - RIGHT);
    const column = width / trial.moments;
    slider.style.setProperty("width", `${width - column + THUMB}px`);
    slider.style.setProperty("margin-left", `${(column - THUMB) / 2}px`);
    marks = [];
    for (const lane of lanes) {
      const strip = svg("svg", { width, height: 16 }, lane.draw(column));
      follow(strip, clock, column, 0);
      lane.holder.replaceChildren(strip);
    }
    const q = qChart(trial, width, column);
    follow(q.element, clock, column, LEFT);
    chart.replaceChildren(q.element);
    marks.push(q.mark);
    move(clock.moment);
  }

  function move(moment) {
    slider.value = moment;
    marks.forEach((mark) => mark(moment));
    legend.forEach(({ value }, place) => {
      value.textContent = moment < trial.steps ? short(trial.q[moment][place]) : "";
    });
  }

  const watch = new ResizeObserver(draw);
  watch.observe(element);
  clock.onChange(move);
  return { element, end: () => watch.disconnect() };
}

/** Lanes of marks: attempts, rewards, sub-goals; those of which the trial has any. */
function lanesOf(trial) {
  const lanes = [];
  const begins = trial.begins;
  if (begins.length > 1) {
    lanes.push({ label: "attempt", draw: (column) => begins.flatMap((begin, number) => {
      const end = begins[number + 1] ?? trial.moments, wide = (end - begin) * column;
      return [svg("rect", { x: begin * column, y: 1, width: Math.max(1, wide - 1), height: 14, rx: 2, class: number % 2 ? "odd" : "even" }),
        wide > 14 ? svg("text", { x: begin * column + wide / 2, y: 12 }, number + 1) : null];
    }) });
  }
  if (trial.reward.some((reward) => reward)) {
    const largest = Math.max(...trial.reward.map((reward) => Math.abs(reward ?? 0)));
    lanes.push({ label: "reward", draw: (column) => [svg("line", { x1: 0, x2: trial.moments * column, y1: 15.5, y2: 15.5, class: "base" }),
      trial.reward.map((reward, step) => {
        if (!reward) return null;
        const height = 3 + 12 * Math.abs(reward) / largest, wide = Math.min(10, Math.max(1.5, column - 1));
        return svg("rect", { x: (step + 0.5) * column - wide / 2, y: 15 - height, width: wide, height, class: reward > 0 ? "good" : "bad" },
          svg("title", {}, `step ${step}: reward ${short(reward)}`));
      })] });
  }
  if (trial.sub_goals.length) {
    lanes.push({ label: "sub-goals", draw: (column) => [svg("line", { x1: 0, x2: trial.moments * column, y1: 15.5, y2: 15.5, class: "base" }),
      trial.goals_completed.map((done, moment) => (moment && done > trial.goals_completed[moment - 1]
        ? svg("circle", { cx: (moment + 0.5) * column, cy: 8, r: 4, class: "good" }, svg("title", {}, `sub-goal ${done} done at step ${moment}`)) : null))] });
  }
  return lanes;
}

function qChart(trial, width, column) {
  const finite = trial.q.flat().filter((value) => value !== null);
  let low = Math.min(0, ...ends(finite)), high = Math.max(0, ...ends(finite));
  if (high - low < 1e-9) high = low + 1;
  const pad = 0.06 * (high - low);
  const top = 8, inner = Q_HEIGHT - top - 22;
  const y = (value) => top + inner * (1 - (value - low + pad) / (high - low + 2 * pad));
  const x = (moment) => LEFT + (moment + 0.5) * column;
  const ticks = steps(low, high, 5);
  const times = steps(0, trial.steps, width > 600 ? 10 : 5).filter(Number.isInteger);
  const mark = svg("line", { class: "mark", y1: top, y2: top + inner });
  const dots = trial.discounts.map((_, place) => svg("circle", { r: acting(trial, place) ? 4 : 2.5, style: { fill: hue(trial, place) } }));
  const element = svg("svg", { width: LEFT + width + RIGHT, height: Q_HEIGHT, class: "r-q" },
    ticks.map((tick) => [svg("line", { class: "grid", x1: LEFT, x2: LEFT + width, y1: y(tick), y2: y(tick) }),
      svg("text", { class: "tick", x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end" }, short(tick))]),
    times.map((time) => svg("text", { class: "tick", x: x(time), y: Q_HEIGHT - 4, "text-anchor": "middle" }, time)),
    trial.begins.slice(1).map((begin) => svg("line", { class: "attempt", x1: LEFT + begin * column, x2: LEFT + begin * column, y1: top, y2: top + inner })),
    mark,
    trial.discounts.map((_, place) => svg("path", { class: acting(trial, place) ? "acting" : null, d: path(trial, place, x, y), style: { stroke: hue(trial, place) } })),
    dots);
  return {
    element,
    mark(moment) {
      mark.setAttribute("x1", x(moment));
      mark.setAttribute("x2", x(moment));
      dots.forEach((dot, place) => {
        const value = moment < trial.steps ? trial.q[moment][place] : null;
        dot.setAttribute("visibility", value === null ? "hidden" : "visible");
        if (value === null) return;
        dot.setAttribute("cx", x(moment));
        dot.setAttribute("cy", y(value));
      });
    },
  };
}

function path(trial, place, x, y) {
  let pen = "M";
  return trial.q.map((row, step) => {
    if (row[place] === null) { pen = "M"; return ""; }
    const part = `${pen}${x(step).toFixed(1)},${y(row[place]).toFixed(1)}`;
    pen = "L";
    return part;
  }).join("");
}

/** Drag or click anywhere on a timeline to go there. */
export function follow(element, clock, column, left) {
  const to = (event) => clock.go(Math.floor((event.clientX - element.getBoundingClientRect().left - left) / column));
  element.addEventListener("pointerdown", (event) => { element.setPointerCapture(event.pointerId); to(event); });
  element.addEventListener("pointermove", (event) => { if (event.buttons & 1) to(event); });
}

/** Pixels of an element to the left and right of its content. */
export function padding(element) {
  const style = getComputedStyle(element);
  return parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
}

/** Round numbers from low to high, about so many. */
export function steps(low, high, about) {
  const rough = (high - low) / about, power = 10 ** Math.floor(Math.log10(rough || 1));
  const size = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough) ?? power;
  const found = [];
  for (let i = Math.ceil(low / size - 1e-9); i * size <= high + 1e-9 * size; i++) found.push(Number((i * size).toPrecision(12)));
  return found;
}

function ends(values) {
  return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [0, 0]);
}

function acting(trial, place) {
  return place === trial.discounts.length - 1;
}

function name(discount) {
  return String(Number(discount.toPrecision(5)));
}

function hue(trial, place) {
  const part = trial.discounts.length > 1 ? place / (trial.discounts.length - 1) : 1;
  return acting(trial, place) ? "var(--accent)" : `oklch(var(--r-light) 0.13 ${(30 + 170 * part).toFixed(0)})`;
}
