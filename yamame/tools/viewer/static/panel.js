// A chart on a card: title, values under the pointer, and export to files.
import { at, draw } from "./chart.js";
import { theme } from "./colors.js";
import { h, queryOf } from "./dom.js";
import { duration, number, percent, short, whole } from "./format.js";
import { saveCsv, savePng, saveSvg } from "./save.js";
import { watchGestures } from "./zoom.js";

const HEIGHT = 232, MAX_ROWS = 12, MAX_MARKS = 4;
const drawn = new Set();

export class Panel {
  /**
   * spec: {title, description, unit, keys, legend: whether the card itself has a legend}
   * onGesture(change, isFinal, panel): see `watchGestures`.
   */
  constructor(spec, onGesture) {
    this.spec = spec;
    this.series = null;
    this.visible = false;
    this.dots = h("div", { class: "dots" });
    this.values = h("p", { class: "description", hidden: true });
    this.description = h("p", { class: "description", title: spec.description }, spec.description || "\u00a0");
    this.pointer = h("div", { class: "crosshair", hidden: true });
    this.readout = h("div", { class: "readout", hidden: true });
    this.body = h("div", { class: "drawing", tabindex: 0, role: "application", "aria-label": `${spec.title}: drag to zoom, Shift and drag to pan, double click for all` });
    this.legend = h("div", { class: "legend" });
    const tool = (name, save) => h("button", { type: "button", class: "tool", title: `Save as ${name}`, onclick: () => this.series && save() }, name);
    this.element = h("article", { class: "panel", "data-keys": spec.keys.join(" ") },
      h("header", {}, h("h3", { title: spec.keys.join("\n") }, spec.title),
        h("div", { class: "tools" },
          tool("PNG", () => savePng(this.chart.element, this.spec.title, this.legendEntries(), theme())),
          tool("SVG", () => saveSvg(this.chart.element, this.spec.title, this.legendEntries(), theme())),
          tool("CSV", () => saveCsv(this.spec.title, queryOf({ runs: this.context.runs.join(","), key: spec.keys }))))),
      this.description, this.values,
      h("div", { class: "stage" }, this.body, this.pointer, this.dots, this.readout), this.legend);
    this.body.addEventListener("pointermove", (event) => this.read(event));
    for (const name of ["pointerleave", "pointerdown"]) this.body.addEventListener(name, () => this.hideReadout());
    watchGestures(this.body, () => (this.series?.length ? this.chart : null), (change, isFinal) => {
      this.hideReadout();
      onGesture(change, isFinal, this);
    });
  }

  /** Show a part of the axis, null for all. */
  setSpan(span) {
    if (!this.series) return;
    this.context = { ...this.context, span };
    this.redraw();
  }

  /** Whether title, key or description have all words. */
  matches(words) {
    const text = [this.spec.title, ...this.spec.keys, this.spec.description].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  }

  /** series as `draw` takes them; context: {axis, span: zoomed part of the axis|null, log, runs} */
  show(series, context) {
    [this.series, this.context] = [series, context];
    drawn.add(this);
    this.redraw();
  }

  redraw() {
    if (!this.series) return;
    const width = Math.floor(this.body.clientWidth);
    if (!width) return;
    if (!this.series.length) {
      this.body.replaceChildren(h("p", { class: "empty" }, "no values yet"));
      return;
    }
    const domain = this.spec.keys.every((key) => key.endsWith("success_rate")) ? [0, 1] : null;
    this.chart = draw(this.series, { width, height: HEIGHT, axis: this.context.axis, span: this.context.span, domain, log: this.context.log, colors: theme() });
    this.chart.element.setAttribute("aria-label", this.spec.title);
    this.body.replaceChildren(this.chart.element);
    this.legend.replaceChildren(...(this.spec.legend ? this.legendEntries().map(({ label, color }) => h("span", {}, swatch(color), label)) : []));
  }

  remove() {
    drawn.delete(this);
  }

  legendEntries() {
    return this.series.map(({ label, color }) => ({ label, color }));
  }

  read(event) {
    if (!this.chart || !this.series?.length || event.buttons) return;
    const { x, area } = this.chart, box = this.body.getBoundingClientRect();
    const pixel = Math.min(Math.max(event.clientX - box.left, area.left), area.right);
    const place = x.value(pixel);
    for (const panel of drawn) panel.mark(place, this.context.axis, panel === this);
    const found = this.valuesAt(place);
    const rows = found.slice(0, MAX_ROWS).map(({ one, value, low, high, seeds }) =>
      h("tr", {}, h("td", {}, swatch(one.color)), h("td", { class: "label" }, short(one.label, Math.max(16, Math.floor((box.width - 150) / 6.2)))), h("td", { class: "value" }, this.formatValue(value)),
        h("td", { class: "spread" }, this.spread(one.kind, value, low, high, seeds))));
    const at_ = found.length ? nearest(found, place) : place;
    this.readout.replaceChildren(
      h("p", {}, this.context.axis.kind === "seconds" ? duration(at_) : `${whole(at_)} ${this.context.axis.name}`),
      h("table", {}, h("tbody", {}, rows)), found.length > MAX_ROWS ? h("p", {}, `and ${found.length - MAX_ROWS} more`) : "");
    this.readout.hidden = false;
    const width = this.readout.offsetWidth;
    const left = pixel + 14 + width < box.width ? pixel + 14 : Math.max(0, pixel - 14 - width);
    this.readout.style.left = `${Math.min(left, Math.max(0, box.width - width))}px`;
  }

  formatValue(value, digits = 4) {
    return this.spec.unit === "fraction" ? percent(value) : number(value, digits);
  }

  /** The 95 % interval, where there is one. */
  spread(kind, value, low, high, seeds) {
    if (kind === "seeds") return seeds > 1 && high !== null ? `± ${this.formatValue(high - value, 2)} (${seeds})` : `(${seeds})`;
    return kind === "interval" && low !== null ? `${this.formatValue(low, 3)} … ${this.formatValue(high, 3)}` : "";
  }

  /** The series that have a value near a place, the highest first. */
  valuesAt(place) {
    const found = this.series.map((one) => ({ one, ...at(one, place) })).filter(({ value }) => value !== undefined);
    return found.sort((a, b) => b.value - a.value);
  }

  /** Show the cursor that all panels share. The panel under the pointer has its values in the readout. */
  mark(place, axis, isUnderPointer) {
    if (!this.chart || !this.visible || !this.series.length || this.context.axis !== axis) return;
    const { x, y, area } = this.chart, pixel = x.place(place);
    this.pointer.hidden = !(pixel >= area.left && pixel <= area.right);
    this.pointer.style.left = `${pixel}px`;
    this.pointer.style.height = `${area.bottom - area.top}px`;
    const found = this.pointer.hidden ? [] : this.valuesAt(place);
    const inside = found.map(({ one, place, value }) => [x.place(place), y.place(value), one.color])
      .filter(([left, top]) => left >= area.left && left <= area.right && top >= area.top - 2 && top <= area.bottom + 2);
    this.dots.replaceChildren(...inside.map(([left, top, color]) => h("i", { style: { left: `${left}px`, top: `${top}px`, background: color } })));
    this.description.hidden = !isUnderPointer && found.length > 0;
    this.values.hidden = !this.description.hidden;
    this.values.replaceChildren(...found.slice(0, MAX_MARKS).map(({ one, value }) => h("span", { class: "mark" }, swatch(one.color), this.formatValue(value))),
      found.length > MAX_MARKS ? `and ${found.length - MAX_MARKS} more` : "");
  }

  hideReadout() {
    for (const panel of drawn) {
      panel.pointer.hidden = panel.values.hidden = true;
      panel.description.hidden = false;
      panel.dots.replaceChildren();
    }
    this.readout.hidden = true;
  }
}

export function swatch(color) {
  return h("i", { class: "swatch", style: { background: color } });
}

function nearest(found, place) {
  return found.reduce((best, one) => (Math.abs(one.place - place) < Math.abs(best.place - place) ? one : best)).place;
}
