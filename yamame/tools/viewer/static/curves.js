// The Curves view: metrics of the chosen runs, live.
import { xDomain } from "./chart.js";
import { shade, theme } from "./colors.js";
import { getJson, h, notice, repeat } from "./dom.js";
import { Panel, swatch } from "./panel.js";
import { scale, shift } from "./zoom.js";

const EVERY_SECONDS = 2, MAX_FAMILIES = 6, POINTS = 400;
const AXES = {
  env_steps: { name: "environment steps", short: "Steps", kind: "count" },
  updates: { name: "updates", short: "Updates", kind: "count" },
  wall_seconds: { name: "wall time", short: "Time", kind: "seconds" },
};
const SMOOTHING = [0, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2];

export async function mount(element, argument) {
  const runs = argument ? argument.split(",") : await defaultRuns();
  if (!runs.length) { element.append(h("h1", {}, "Curves"), notice("No runs yet.")); return undefined; }
  const view = new Curves(element, runs);
  await view.start();
  return () => view.close();
}

/** The running runs, otherwise the one with the latest change. */
async function defaultRuns() {
  const { runs } = await getJson("/api/runs");
  const running = runs.filter(({ state }) => state === "running");
  const last = runs.reduce((best, run) => (!best || run.modified_time > best.modified_time ? run : best), null);
  return (running.length ? running.slice(0, 10) : last ? [last] : []).map(({ id }) => id);
}

class Curves {
  constructor(element, runs) {
    this.element = element;
    this.runs = runs;
    this.settings = loadSettings();
    this.version = "";
    this.structure = "";
    this.lines = [];
    this.hidden = new Set();
    this.panels = [];
    this.requested = new Set();
    this.span = null; // the zoomed part of the axis; null: all
    this.extent = [Infinity, -Infinity]; // of the axis, as far as panels have shown it
  }

  async start() {
    this.legend = h("div", { class: "lines" });
    this.warnings = h("div", { class: "warnings", hidden: true });
    this.sections = h("div", { class: "sections" });
    this.nothing = h("div", {});
    this.zoomBar = h("div", { class: "segmented zoom", role: "group", "aria-label": "Zoom", hidden: true },
      this.zoomButton("◀", "earlier", ([low, high]) => shift([low, high], (low - high) / 2, this.extent)),
      this.zoomButton("−", "zoom out", (span) => scale(span, 2, this.extent)),
      this.zoomButton("+", "zoom in", (span) => scale(span, 0.5, this.extent)),
      this.zoomButton("▶", "later", ([low, high]) => shift([low, high], (high - low) / 2, this.extent)),
      this.zoomButton("Show all", "show all, as a double click on a chart does", () => null));
    this.live = h("span", { class: "live", hidden: true }, "live");
    this.element.append(
      h("div", { class: "head" }, h("h1", {}, "Curves"), this.live, this.controls()), h("div", { class: "legend-row" }, this.legend, this.zoomBar), this.warnings, this.sections, this.nothing);
    this.watch = new IntersectionObserver((entries) => this.onVisibility(entries), { rootMargin: "250px" });
    this.resize = new ResizeObserver(() => this.redraw());
    this.resize.observe(this.sections);
    this.onTheme = () => { this.showLegend(); this.refill(); };
    addEventListener("themechange", this.onTheme);
    this.sections.append(notice("Loading metrics …"));
    await this.refresh();
    this.stop = repeat(EVERY_SECONDS, () => this.refresh());
  }

  close() {
    this.stop?.();
    this.watch.disconnect();
    this.resize.disconnect();
    removeEventListener("themechange", this.onTheme);
    for (const panel of this.panels) panel.remove();
  }

  controls() {
    const { settings } = this;
    const axis = h("div", { class: "segmented", role: "group", "aria-label": "Horizontal axis" },
      Object.entries(AXES).map(([name, { short }]) => h("button", {
        type: "button", "data-axis": name, "aria-pressed": String(settings.axis === name),
        onclick: ({ currentTarget }) => {
          for (const button of axis.children) button.setAttribute("aria-pressed", String(button === currentTarget));
          this.change({ axis: name });
        } }, short)));
    const smoothing = h("input", { type: "range", id: "smoothing", min: 0, max: SMOOTHING.length - 1, step: 1, value: settings.smoothing,
      oninput: ({ target }) => this.change({ smoothing: +target.value }) });
    const box = (name, text) => h("label", {}, h("input", { type: "checkbox", id: name, checked: settings[name], onchange: ({ target }) => this.change({ [name]: target.checked }) }), text);
    this.search = h("input", { type: "search", id: "metric-search", placeholder: "Search metrics", "aria-label": "Search metrics", oninput: () => this.showMatches() });
    return h("div", { class: "controls" }, this.search, axis, h("label", {}, "Smooth", smoothing), box("grouped", "Mean over seeds"), box("log", "Log scale"),
      h("a", { class: "button", href: "#/runs" }, "Choose runs"));
  }

  change(settings) {
    Object.assign(this.settings, settings);
    saveSettings(this.settings);
    if ("axis" in settings) { this.extent = [Infinity, -Infinity]; this.setSpan(null); }
    if ("grouped" in settings) { this.version = ""; this.refresh().catch(() => {}); } else this.refill();
  }

  zoomButton(text, title, spanOf) {
    return h("button", { type: "button", title, "aria-label": title, onclick: () => this.zoom(spanOf(this.span)) }, text);
  }

  setSpan(span) {
    this.span = span;
    this.zoomBar.hidden = !span;
  }

  /** Show a part of the axis in all panels, null for all of it; values between the shown ones are requested. */
  zoom(span) {
    this.setSpan(span);
    for (const panel of this.panels) if (panel.visible) panel.setSpan(span);
    this.refill();
  }

  /** A gesture on a panel, which shows the part by itself while the gesture goes on. */
  onGesture(change, isFinal, panel) {
    const span = typeof change === "function" ? change(this.extent) : change;
    if (isFinal) this.zoom(span);
    else { this.setSpan(span); panel.setSpan(span); }
  }

  /** Hide panels that the search does not match, and headings without panels. */
  showMatches() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const panel of this.panels) panel.element.hidden = !panel.matches(words);
    for (const section of this.sections.querySelectorAll("section")) section.hidden = !section.querySelector(".panel:not([hidden])");
    const isEmpty = this.panels.length > 0 && this.panels.every(({ element }) => element.hidden);
    this.nothing.replaceChildren(...(isEmpty ? [notice("No metric matches the search.")] : []));
  }

  /** Show what is new. */
  async refresh() {
    const response = await getJson("/api/curves/panels", { runs: this.runs.join(","), grouped: +this.settings.grouped, known: this.version });
    this.warnings.hidden = !response.warnings.length;
    this.warnings.replaceChildren(...response.warnings.slice(0, 12).map((problem) => h("p", {}, problem)));
    if (!response.lines) return;
    this.version = response.version;
    this.lines = response.lines;
    this.live.hidden = !response.lines.some(({ running }) => running);
    this.showLegend();
    const structure = JSON.stringify([response.sections, response.lines.map(({ series_id }) => series_id)]);
    if (structure !== this.structure) { this.structure = structure; this.build(response.sections); } else this.refill();
  }

  showLegend() {
    const { dark } = theme();
    this.colors = new Map(this.lines.map(({ series_id, colors: [onLight, onDark] }) => [series_id, dark ? onDark : onLight]));
    this.legend.replaceChildren(...this.lines.map(({ series_id, label, runs, running }) => h("span", { class: "chip" + (this.hidden.has(series_id) ? " off" : "") },
      h("button", { type: "button", title: `${runs.map(({ name, state }) => `${name}: ${state}`).join("\n")}\n\nshow or hide`, onclick: () => {
        if (!this.hidden.delete(series_id)) this.hidden.add(series_id);
        this.showLegend();
        this.refill();
      } }, swatch(this.colors.get(series_id)), h("span", { class: "name" }, label), running ? h("i", { class: "dot running", title: "running" }) : null),
      this.lines.length > 1 ? h("button", { type: "button", class: "away", title: "remove", "aria-label": `remove ${label}`, onclick: () => {
        const gone = new Set(runs.map(({ id }) => id));
        location.hash = `#/curves/${this.runs.filter((id) => !gone.has(id)).join(",")}`;
      } }, "×") : null)));
  }

  build(sections) {
    for (const panel of this.panels) { panel.remove(); this.watch.unobserve(panel.element); }
    this.requested.clear();
    this.panels = [];
    const cards = sections.map(({ title, panels }) => h("section", {}, h("h2", {}, title),
      h("div", { class: "panels" }, panels.flatMap((spec) => this.cardsOf(spec)).map((panel) => { this.panels.push(panel); return panel.element; }))));
    this.sections.replaceChildren(...(cards.length ? cards : [notice("No metrics yet.")]));
    for (const panel of this.panels) this.watch.observe(panel.element);
    this.showMatches();
  }

  /** A card; for a family one card per series, whose colors are those of the members. */
  cardsOf(spec) {
    const onGesture = (change, isFinal, panel) => this.onGesture(change, isFinal, panel);
    if (spec.keys.length === 1) return [new Panel(spec, onGesture)];
    return this.lines.slice(0, MAX_FAMILIES).map(({ series_id, label }) =>
      new Panel({ ...spec, series_id, legend: true, description: this.lines.length > 1 ? label : spec.description }, onGesture));
  }

  onVisibility(entries) {
    for (const { target, isIntersecting } of entries) {
      const panel = this.panels.find(({ element }) => element === target);
      if (!panel) continue;
      panel.visible = isIntersecting;
      if (isIntersecting && panel.filled !== this.state()) this.request(panel);
    }
  }

  /** Everything the content of a panel depends on. */
  state() {
    const { axis, smoothing, log, grouped } = this.settings;
    return [this.version, axis, smoothing, log, grouped, theme().dark, this.span, [...this.hidden]].join("|");
  }

  refill() {
    for (const panel of this.panels) if (panel.visible) this.request(panel);
  }

  /** Request the values of a panel; panels requested at the same time share one request. */
  request(panel) {
    this.requested.add(panel);
    if (this.loading) return;
    this.loading = true;
    queueMicrotask(async () => {
      try {
        while (this.requested.size) await this.fill([...this.requested]);
      } catch { /* shown by the next refresh */ } finally { this.loading = false; }
    });
  }

  async fill(panels) {
    this.requested.clear();
    const { settings } = this, { axis } = settings, state = this.state(), { dark } = theme();
    const keys = [...new Set(panels.flatMap(({ spec }) => spec.keys))];
    const { curves } = await getJson("/api/curves", {
      runs: this.runs.join(","), key: keys, x: axis, smoothing: SMOOTHING[settings.smoothing], grouped: +settings.grouped, ...this.resolution() });
    const context = { axis: AXES[axis], span: axis === settings.axis ? this.span : null, log: settings.log, runs: this.runs };
    const labels = new Map(this.lines.map(({ series_id, label }) => [series_id, label]));
    for (const panel of panels) {
      panel.filled = state;
      const { keys: own, series_id } = panel.spec;
      const series = own.length === 1
        ? curves[own[0]].filter((one) => !this.hidden.has(one.series_id)).map((one) => ({ ...one, label: labels.get(one.series_id), color: this.colors.get(one.series_id) }))
        : own.flatMap((key, index) => curves[key].filter((one) => one.series_id === series_id).map((one) => ({ ...one, low: null, high: null, label: memberOf(key), color: shade(index / (own.length - 1), dark) })));
      if (series.length && !context.span) {
        const [first, last] = xDomain(series);
        this.extent = [Math.min(this.extent[0], first), Math.max(this.extent[1], last)];
      }
      panel.show(series, context);
    }
  }

  /** The zoomed part, and as much on either side to pan over. */
  resolution() {
    if (!this.span) return { points: POINTS };
    const [low, high] = this.span, width = high - low;
    return { low: low - width, high: high + width, points: 3 * POINTS };
  }

  redraw() {
    for (const panel of this.panels) if (panel.visible) panel.redraw();
  }
}

const memberOf = (key) => key.replace(/^.*_(attempt|gamma)_/, (_, kind) => (kind === "attempt" ? "attempt " : "γ "));

function loadSettings() {
  const defaults = { axis: "env_steps", smoothing: 0, grouped: true, log: false };
  try {
    const found = { ...defaults, ...JSON.parse(localStorage.getItem("yamame-curves") ?? "{}") };
    return found.axis in AXES && found.smoothing in SMOOTHING ? found : defaults;
  } catch { return defaults; }
}

function saveSettings(settings) {
  try { localStorage.setItem("yamame-curves", JSON.stringify(settings)); } catch { /* private window */ }
}
