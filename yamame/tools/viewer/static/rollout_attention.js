// Attention weights of each layer and head from the current timestep to the past: one strip per head.
import { h } from "./dom.js";
import { percent } from "./rollout_data.js";
import { LEFT, RIGHT } from "./rollout_timelines.js";

const STRIP = 15, TOP = 8;

/** One strip per layer and head, below the other timelines. */
export function attentionStrips(clock) {
  const { trial } = clock;
  if (!trial.attention) {
    return { element: h("p", { class: "soft" }, "This run's trajectory encoder has no attention.") };
  }
  const rows = headsOf(trial).map(([layer, head]) => strip(clock, layer, head));
  const element = h("div", { class: "r-strips" }, rows.map((row) => row.element));

  function draw(timestep, pinned) {
    const width = Math.max(40, element.clientWidth - LEFT - RIGHT);
    const looks = rows.map((row) => trial.attended(row.layer, row.head, timestep));
    const heaviest = Math.max(...looks.map((look) => look[0]?.weight ?? 0), 1e-9);
    const style = getComputedStyle(element);
    const colors = Object.fromEntries(["--r-ground", "--accent", "--text", "--warn"].map((name) => [name, style.getPropertyValue(name)]));
    rows.forEach((row, place) => row.draw(looks[place], heaviest, width, timestep, pinned, colors));
  }

  const watch = new ResizeObserver(() => draw(clock.timestep, clock.pinned));
  const themed = () => draw(clock.timestep, clock.pinned);
  watch.observe(element);
  addEventListener("themechange", themed);
  clock.onChange(draw);
  return { element, close: () => { watch.disconnect(); removeEventListener("themechange", themed); } };
}

/** The past timesteps with the largest weights, with their frames. */
export function topAttendedPanel(clock) {
  const { trial } = clock;
  const list = h("ol", { class: "r-tops" }), none = h("p", { class: "soft" }, "No past timestep: the trial starts here.");
  const element = h("section", { class: "r-card r-attention" },
    h("h2", {}, "Top attended timesteps", h("small", {}, "largest weight of any head · click to pin")), none, list);
  clock.onChange((timestep, pinned) => {
    const attended = timestep ? topAttendedSteps(trial, timestep) : [];
    none.hidden = attended.length > 0;
    list.replaceChildren(...attended.map((past) => thumbnail(clock, past, pinned)));
  });
  return { element };
}

/** The past timestep that gets the most from any head: {step, weight, by}; null where there is none. */
export function topAttended(trial, timestep) {
  return trial.attention && timestep ? topAttendedSteps(trial, timestep)[0] ?? null : null;
}

function topAttendedSteps(trial, timestep) {
  const best = new Map();
  for (const [layer, head] of headsOf(trial)) {
    for (const { step, weight } of trial.attended(layer, head, timestep)) {
      if (step === timestep) continue;
      if (!(best.get(step)?.weight >= weight)) best.set(step, { step, weight, by: label(layer, head) });
    }
  }
  return [...best.values()].sort((a, b) => b.weight - a.weight || a.step - b.step).slice(0, TOP);
}

function strip(clock, layer, head) {
  const { trial } = clock;
  const canvas = h("canvas", { class: "r-strip" }), share = h("output", { class: "r-share" });
  const element = h("div", { class: `r-row r-headrow${head === 0 ? " first" : ""}`, "data-layer": layer + 1, "data-head": head + 1 },
    h("span", { class: "r-label" }, head === 0 ? h("b", {}, `layer ${layer + 1}`) : null, ` ${head + 1}`), canvas, share);
  let column = 1, weights = new Map();

  const under = (event) => {
    const step = Math.floor((event.clientX - canvas.getBoundingClientRect().left) / column);
    if (step < 0 || step > clock.timestep) return null;
    return { step, weight: weights.get(step) ?? 0, by: label(layer, head) };
  };
  let kept = null;
  canvas.addEventListener("pointermove", (event) => { const past = under(event); if (past && past.step !== clock.pinned?.step) clock.pin(past); });
  canvas.addEventListener("click", (event) => { kept = under(event); clock.pin(kept); });
  canvas.addEventListener("pointerleave", () => { if (!kept || clock.pinned?.step !== kept.step) clock.pin(kept); });
  clock.onChange(() => { if (!clock.pinned) kept = null; });

  return {
    element, layer, head,
    draw(look, heaviest, width, timestep, pinned, colors) {
      column = width / trial.timesteps;
      weights = new Map(look.map(({ step, weight }) => [step, weight]));
      const scale = devicePixelRatio || 1;
      if (canvas.width !== Math.round(width * scale)) {
        canvas.width = Math.round(width * scale);
        canvas.height = STRIP * scale;
        canvas.style.setProperty("width", `${width}px`);
        canvas.style.setProperty("height", `${STRIP}px`);
      }
      const pen = canvas.getContext("2d");
      pen.setTransform(scale, 0, 0, scale, 0, 0);
      pen.clearRect(0, 0, width, STRIP);
      const first = Math.max(0, timestep + 1 - trial.attention.memory_length), seen = timestep + 1 - first;
      const gap = column > 12 ? 1 : 0;
      const paint = (start, wide, weight) => {
        pen.globalAlpha = 1;
        pen.fillStyle = colors["--r-ground"];
        pen.fillRect(start, 0, wide, STRIP);
        pen.globalAlpha = Math.sqrt(weight / heaviest);
        pen.fillStyle = colors["--accent"];
        pen.fillRect(start, 0, wide, STRIP);
      };
      // the weights that were not kept, spread evenly
      const rest = 1 - look.reduce((sum, { weight }) => sum + weight, 0);
      paint(first * column, seen * column, seen > look.length ? Math.max(0, rest) / (seen - look.length) : 0);
      for (const { step, weight } of look.toReversed()) { // the largest last, on whole pixels
        const start = Math.floor(step * column);
        paint(start, Math.max(Math.round((step + 1) * column) - start - gap, 1), weight);
      }
      pen.globalAlpha = 1;
      outline(pen, timestep, column, colors["--text"]);
      if (pinned) outline(pen, pinned.step, column, colors["--warn"]);
      share.textContent = look.length ? percent(look[0].weight) : "";
      element.dataset.peak = look[0]?.step ?? "";
      element.dataset.weight = look[0]?.weight.toFixed(4) ?? "";
      canvas.title = look.length ? `largest weight: step ${look[0].step} (${percent(look[0].weight)})` : "";
    },
  };
}

function outline(pen, step, column, color) {
  pen.strokeStyle = color;
  pen.lineWidth = 1;
  if (column >= 4) pen.strokeRect(step * column + 0.5, 0.5, column - 1, STRIP - 1);
  else {
    pen.fillStyle = color;
    pen.fillRect((step + 0.5) * column - 0.5, 0, 1, STRIP);
  }
}

function thumbnail(clock, past, pinned) {
  const { trial } = clock;
  const frame = trial.frame(past.step);
  return h("li", { "data-step": past.step, class: pinned?.step === past.step ? "pinned" : null },
    h("button", { type: "button", title: `Pin step ${past.step}; double click: go there`, onclick: () => clock.pin(past), ondblclick: () => clock.go(past.step) },
      h("span", { class: "r-thumb" }, frame ? h("img", { src: frame, alt: "" }) : h("code", {}, trial.observations[past.step])),
      h("b", {}, `step ${past.step}`), h("small", {}, `${percent(past.weight)} · ${past.by}`)));
}

function headsOf(trial) {
  const { layers, heads } = trial.attention;
  return Array.from({ length: layers * heads }, (_, i) => [Math.floor(i / heads), i % heads]);
}

function label(layer, head) {
  return `layer ${layer + 1} head ${head + 1}`;
}
