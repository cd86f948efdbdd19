// Time from left to right, one column per timestep: a slider, attempts, rewards, sub-goals, Q by gamma and attention.
import { h, svg } from "./dom.js";
import { short } from "./rollout_data.js";

export const LEFT = 64, RIGHT = 52;
/* Pixels beside every timeline for its labels; equal for all, so that timesteps align. */
const Q_HEIGHT = 190, THUMB = 16;

/** All timelines; `strips` are those of the attention, undefined without an analysis. */
export function timelines(clock, strips) {
  const { trial } = clock;
  const slider = h("input", { type: "range", class: "r-slider", min: 0, max: trial.steps, step: 1, value: 0, "aria-label": "Step",
    oninput: () => clock.go(Number(slider.value)) });
  const lanes = lanesOf(trial).map((lane) => ({ ...lane, holder: h("div", { class: "r-lane" }) }));
  const chart = trial.q && h("div", { class: "r-chart", role: "img", "aria-label": "Q by gamma over time" });
  const legend = trial.gammas.map((gamma, place) => {
    const value = h("output", {});
    return { element: h("li", { class: isActing(trial, place) ? "acting" : null }, h("i", { style: { background: gammaColor(trial, place) } }), `γ ${name(gamma)}`, value), value };
  });
  const element = h("section", { class: "r-card r-timelines" },
    h("div", { class: "r-row" }, h("span", { class: "r-label" }, "step"), slider),
    lanes.map((lane) => h("div", { class: "r-row" }, h("span", { class: "r-label" }, lane.label), lane.holder)),
    chart && [h("h2", {}, "Q of the action taken, by gamma", h("small", {}, "in units of reward · bold: acting gamma")),
      chart, h("ul", { class: "r-legend" }, legend.map((one) => one.element))],
    strips && [h("h2", {}, "Attention from the current step", h("small", {}, "darker: larger weight · right: largest weight · hover to see a step, click to pin it")), strips]);
  let marks = [];

  function draw() {
    const width = Math.max(40, element.clientWidth - padding(element) - LEFT - RIGHT);
    const column = width / trial.timesteps;
    slider.style.setProperty("width", `${width - column + THUMB}px`);
    slider.style.setProperty("margin-left", `${(column - THUMB) / 2}px`);
    marks = [];
    for (const lane of lanes) {
      const strip = svg("svg", { width, height: 16 }, lane.draw(column));
      seekOnPointer(strip, clock, column, 0);
      lane.holder.replaceChildren(strip);
    }
    if (chart) {
      const q = qChart(trial, width, column);
      seekOnPointer(q.element, clock, column, LEFT);
      chart.replaceChildren(q.element);
      marks.push(q.mark);
    }
    move(clock.timestep);
  }

  function move(timestep) {
    slider.value = timestep;
    marks.forEach((mark) => mark(timestep));
    legend.forEach(({ value }, place) => {
      value.textContent = timestep < trial.steps ? short(trial.q[timestep][place]) : "";
    });
  }

  const watch = new ResizeObserver(draw);
  watch.observe(element);
  clock.onChange(move);
  return { element, close: () => watch.disconnect() };
}

/** Lanes of marks: attempts, rewards and sub-goals that the trial has. */
function lanesOf(trial) {
  const lanes = [];
  const starts = trial.attemptStarts;
  if (starts.length > 1) {
    lanes.push({ label: "attempt", draw: (column) => starts.flatMap((start, number) => {
      const end = starts[number + 1] ?? trial.timesteps, wide = (end - start) * column;
      return [svg("rect", { x: start * column, y: 1, width: Math.max(1, wide - 1), height: 14, rx: 2, class: number % 2 ? "odd" : "even" }),
        wide > 14 ? svg("text", { x: start * column + wide / 2, y: 12 }, number + 1) : null];
    }) });
  }
  if (trial.reward.some((reward) => reward)) {
    const largest = Math.max(...trial.reward.map((reward) => Math.abs(reward ?? 0)));
    lanes.push({ label: "reward", draw: (column) => [svg("line", { x1: 0, x2: trial.timesteps * column, y1: 15.5, y2: 15.5, class: "base" }),
      trial.reward.map((reward, step) => {
        if (!reward) return null;
        const height = 3 + 12 * Math.abs(reward) / largest, wide = Math.min(10, Math.max(1.5, column - 1));
        return svg("rect", { x: (step + 0.5) * column - wide / 2, y: 15 - height, width: wide, height, class: reward > 0 ? "good" : "bad" },
          svg("title", {}, `step ${step}: reward ${short(reward)}`));
      })] });
  }
  if (trial.sub_goals.length) {
    lanes.push({ label: "sub-goals", draw: (column) => [svg("line", { x1: 0, x2: trial.timesteps * column, y1: 15.5, y2: 15.5, class: "base" }),
      trial.goals_completed.map((done, timestep) => (timestep && done > trial.goals_completed[timestep - 1]
        ? svg("circle", { cx: (timestep + 0.5) * column, cy: 8, r: 4, class: "good" }, svg("title", {}, `sub-goal ${done} done at step ${timestep}`)) : null))] });
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
  const x = (timestep) => LEFT + (timestep + 0.5) * column;
  const ticks = steps(low, high, 5);
  const times = steps(0, trial.steps, width > 600 ? 10 : 5).filter(Number.isInteger);
  const mark = svg("line", { class: "mark", y1: top, y2: top + inner });
  const dots = trial.gammas.map((_, place) => svg("circle", { r: isActing(trial, place) ? 4 : 2.5, style: { fill: gammaColor(trial, place) } }));
  const element = svg("svg", { width: LEFT + width + RIGHT, height: Q_HEIGHT, class: "r-q" },
    ticks.map((tick) => [svg("line", { class: "grid", x1: LEFT, x2: LEFT + width, y1: y(tick), y2: y(tick) }),
      svg("text", { class: "tick", x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end" }, short(tick))]),
    times.map((time) => svg("text", { class: "tick", x: x(time), y: Q_HEIGHT - 4, "text-anchor": "middle" }, time)),
    trial.attemptStarts.slice(1).map((start) => svg("line", { class: "attempt", x1: LEFT + start * column, x2: LEFT + start * column, y1: top, y2: top + inner })),
    mark,
    trial.gammas.map((_, place) => svg("path", { class: isActing(trial, place) ? "acting" : null, d: path(trial, place, x, y), style: { stroke: gammaColor(trial, place) } })),
    dots);
  return {
    element,
    mark(timestep) {
      mark.setAttribute("x1", x(timestep));
      mark.setAttribute("x2", x(timestep));
      dots.forEach((dot, place) => {
        const value = timestep < trial.steps ? trial.q[timestep][place] : null;
        dot.setAttribute("visibility", value === null ? "hidden" : "visible");
        if (value === null) return;
        dot.setAttribute("cx", x(timestep));
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

/** Go to the timestep under a click or drag on a timeline. */
export function seekOnPointer(element, clock, column, left) {
  const to = (event) => clock.go(Math.floor((event.clientX - element.getBoundingClientRect().left - left) / column));
  element.addEventListener("pointerdown", (event) => { element.setPointerCapture(event.pointerId); to(event); });
  element.addEventListener("pointermove", (event) => { if (event.buttons & 1) to(event); });
}

/** Pixels of an element to the left and right of its content. */
export function padding(element) {
  const style = getComputedStyle(element);
  return parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
}

/** Round numbers from low to high, about `about` of them. */
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

function isActing(trial, place) {
  return place === trial.gammas.length - 1;
}

function name(gamma) {
  return String(Number(gamma.toPrecision(5)));
}

function gammaColor(trial, place) {
  const part = trial.gammas.length > 1 ? place / (trial.gammas.length - 1) : 1;
  return isActing(trial, place) ? "var(--accent)" : `oklch(var(--r-light) 0.13 ${(30 + 170 * part).toFixed(0)})`;
}
