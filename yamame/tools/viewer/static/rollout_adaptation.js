// Mean return and success of attempt 1, 2, ... of a trial, with the attempts of the shown trial.
import { h, svg } from "./dom.js";
import { short, percent } from "./rollout_data.js";
import { padding, steps } from "./rollout_timelines.js";

const HEIGHT = 170, LEFT = 44, RIGHT = 12, TOP = 10, BOTTOM = 30;
const NARROWEST = 340, GAP = 24;
/* As in rollouts.css: two charts stand side by side where there is room. */

export function adaptationCard(trial, options, measure) {
  const body = h("div", { class: "r-adaptation-body" });
  const button = h("button", { type: "button", onclick: again }, "Measure with this checkpoint");
  const element = h("section", { class: "r-card r-adaptation" }, h("h2", {}, "Adaptation"), body, button);
  let found = options.adaptation, error = "";

  async function again() {
    button.disabled = true;
    button.textContent = "Measuring…";
    error = "";
    try {
      found = await measure();
    } catch (problem) {
      error = problem.message;
    }
    button.disabled = false;
    button.textContent = "Measure again";
    draw();
  }

  function draw() {
    const whole = Math.max(160, element.clientWidth - padding(element));
    const width = found?.success_per_attempt && whole >= 2 * NARROWEST + GAP ? (whole - GAP) / 2 : whole;
    const mine = attemptReturns(trial);
    if (!found) {
      body.replaceChildren(h("p", { class: "soft" }, "This run is not finished: its adaptation is not measured yet."));
    } else {
      const one = found.return_per_attempt.length === 1;
      body.replaceChildren(
        h("p", { class: "soft" }, `${found.trials} trials, ${found.source}; mean and 95 % interval.`,
          one ? "" : " Hollow: this trial."),
        one ? facts(found) : h("div", { class: "r-curves" }, charts(found, mine, width)));
    }
    if (error) body.append(h("p", { class: "bad" }, error));
  }

  const watch = new ResizeObserver(draw);
  watch.observe(element);
  return { element, close: () => watch.disconnect() };
}

function facts(found) {
  const between = ([low, high], text) => `${text(low)} to ${text(high)}`;
  return h("dl", { class: "r-facts" },
    h("div", {}, h("dt", {}, "return"), h("dd", {}, short(found.return_per_attempt[0])), h("small", {}, between(found.return_ci95[0], short))),
    found.success_per_attempt && h("div", {}, h("dt", {}, "success"), h("dd", {}, percent(found.success_per_attempt[0])),
      h("small", {}, between(found.success_ci95[0], percent))));
}

function charts(found, mine, width) {
  const returns = chart("Return of each attempt", found.return_per_attempt, found.return_ci95, mine, width);
  if (!found.success_per_attempt) return [returns];
  return [returns, chart("Success of each attempt", found.success_per_attempt, found.success_ci95, null, width, [0, 1])];
}

function chart(title, means, intervals, mine, width, range = null) {
  const count = means.length, inner = width - LEFT - RIGHT;
  const all = [...means, ...intervals.flat(), ...(mine ?? []).slice(0, count)];
  let [low, high] = range ?? [Math.min(0, ...all), Math.max(...all)];
  if (high - low < 1e-9) high = low + 1;
  const x = (place) => LEFT + inner * (count > 1 ? 0.04 + 0.92 * place / (count - 1) : 0.5);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low));
  const line = means.map((mean, place) => `${place ? "L" : "M"}${x(place).toFixed(1)},${y(mean).toFixed(1)}`).join("");
  const edge = (end) => intervals.map((pair, place) => `${x(place).toFixed(1)},${y(pair[end]).toFixed(1)}`);
  const numbers = steps(1, count, Math.max(1, Math.min(count, width > 320 ? 9 : 5))).filter((one) => Number.isInteger(one) && one >= 1);
  return h("figure", { class: "r-curve" }, h("figcaption", {}, title),
    svg("svg", { width, height: HEIGHT, role: "img", "aria-label": title },
      steps(low, high, 4).map((tick) => [svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }),
        svg("text", { class: "tick", x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, short(tick))]),
      numbers.map((number) => svg("text", { class: "tick", x: x(number - 1), y: HEIGHT - 14, "text-anchor": "middle" }, number)),
      svg("text", { class: "tick", x: LEFT + inner / 2, y: HEIGHT - 1, "text-anchor": "middle" }, "attempt"),
      svg("path", { class: "band", d: `M${edge(0).join("L")}L${edge(1).reverse().join("L")}Z` }), svg("path", { class: "line", d: line }),
      means.map((mean, place) => svg("circle", { class: "point", cx: x(place), cy: y(mean), r: count > 40 ? 1.5 : 3 },
        svg("title", {}, `attempt ${place + 1}: ${short(mean)} (${short(intervals[place][0])} to ${short(intervals[place][1])})`))),
      (mine ?? []).slice(0, count).map((own, place) => svg("circle", { class: "own", cx: x(place), cy: y(own), r: 4 },
        svg("title", {}, `this trial's attempt ${place + 1}: ${short(own)}`)))));
}

function attemptReturns(trial) {
  const ends = [...trial.attemptStarts.slice(1), trial.steps];
  return trial.attemptStarts.filter((start) => start < trial.steps).map((start, place) => trial.total[ends[place]] - trial.total[start]);
}
