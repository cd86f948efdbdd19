// One drawing on a card: its title, what it says where the pointer is, and its files.
import { at, draw } from "./chart.js";
import { theme } from "./colours.js";
import { h, queryOf } from "./dom.js";
import { duration, number, percent, short, whole } from "./format.js";
import { saveCsv, savePng, saveSvg } from "./save.js";

const HEIGHT = 232, MOST_READ = 12;
const drawn = new Set();

export class Panel {
  /** spec: {title, about, keys, legend: whether the lines are named on the card itself} */
  constructor(spec) {
    this.spec = spec;
    this.series = null;
    this.pointer = h("div", { class: "crosshair", hidden: true });
    this.readout = h("div", { class: "readout", hidden: true });
    this.body = h("div", { class: "drawing" });
    this.legend = h("div", { class: "legend" });
    const tool = (name, save) => h("button", { type: "button", class: "tool", title: `Save as ${name}`, onclick: () => this.series && save() }, name);
    this.element = h("article", { class: "panel", "data-keys": spec.keys.join(" ") },
      h("header", {}, h("h3", { title: spec.keys.join("\n") }, spec.title),
        h("div", { class: "tools" },
          tool("PNG", () => savePng(this.picture.element, this.spec.title, this.named(), theme())),
          tool("SVG", () => saveSvg(this.picture.element, this.spec.title, this.named(), theme())),
          tool("CSV", () => saveCsv(this.spec.title, queryOf({ runs: this.context.runs.join(","), key: spec.keys }))))),
      h("p", { class: "about", title: spec.about }, spec.about || "\u00a0"),
      h("div", { class: "stage" }, this.body, this.pointer, this.readout), this.legend);
    this.body.addEventListener("pointermove", (event) => this.read(event));
    this.body.addEventListener("pointerleave", () => this.unread());
  }

  /** series as `draw` takes them; context: {axis, log, runs} */
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
      this.body.replaceChildren(h("p", { class: "empty" }, "nothing measured yet"));
      return;
    }
    const domain = this.spec.keys.every((key) => key.endsWith("success_rate")) ? [0, 1] : null;
    this.picture = draw(this.series, { width, height: HEIGHT, axis: this.context.axis, domain, log: this.context.log, colours: theme() });
    this.picture.element.setAttribute("aria-label", this.spec.title);
    this.body.replaceChildren(this.picture.element);
    this.legend.replaceChildren(...(this.spec.legend ? this.named().map(({ label, colour }) => h("span", {}, swatch(colour), label)) : []));
  }

  forget() {
    drawn.delete(this);
  }

  named() {
    return this.series.map(({ label, colour }) => ({ label, colour }));
  }

  read(event) {
    if (!this.picture || !this.series?.length) return;
    const { x, area } = this.picture, box = this.body.getBoundingClientRect();
    const pixel = Math.min(Math.max(event.clientX - box.left, area.left), area.right);
    const place = x.value(pixel);
    for (const panel of drawn) panel.mark(place, this.context.axis);
    const found = this.series.map((one) => ({ one, ...at(one, place) })).filter(({ value }) => value !== undefined);
    found.sort((a, b) => b.value - a.value);
    const rows = found.slice(0, MOST_READ).map(({ one, value, low, high, seeds }) =>
      h("tr", {}, h("td", {}, swatch(one.colour)), h("td", { class: "who" }, short(one.label, Math.max(16, Math.floor((box.width - 150) / 6.2)))), h("td", { class: "value" }, this.says(value)),
        h("td", { class: "spread" }, this.spread(one.kind, value, low, high, seeds))));
    const at_ = found.length ? nearest(found, place) : place;
    this.readout.replaceChildren(
      h("p", {}, this.context.axis.kind === "seconds" ? duration(at_) : `${whole(at_)} ${this.context.axis.name}`),
      h("table", {}, h("tbody", {}, rows)), found.length > MOST_READ ? h("p", {}, `and ${found.length - MOST_READ} more`) : "");
    this.readout.hidden = false;
    const width = this.readout.offsetWidth;
    const left = pixel + 14 + width < box.width ? pixel + 14 : Math.max(0, pixel - 14 - width);
    this.readout.style.left = `${Math.min(left, Math.max(0, box.width - width))}px`;
  }

  says(value, digits = 4) {
    return this.spec.keys.every((key) => key.endsWith("success_rate")) ? percent(value) : number(value, digits);
  }

  /** The 95 % interval, where there is one. */
  spread(kind, value, low, high, seeds) {
    if (kind === "seeds") return seeds > 1 ? `± ${this.says(high - value, 2)} (${seeds})` : "(1)";
    return kind === "interval" && low !== null ? `${this.says(low, 3)} … ${this.says(high, 3)}` : "";
  }

  mark(place, axis) {
    if (!this.picture || this.context.axis !== axis) return;
    const { x, area } = this.picture, pixel = x.place(place);
    this.pointer.hidden = !(pixel >= area.left && pixel <= area.right);
    this.pointer.style.left = `${pixel}px`;
    this.pointer.style.height = `${area.bottom - area.top}px`;
  }

  unread() {
    for (const panel of drawn) panel.pointer.hidden = true;
    this.readout.hidden = true;
  }
}

export function swatch(colour) {
  return h("i", { class: "swatch", style: { background: colour } });
}

function nearest(found, place) {
  return found.reduce((best, one) => (Math.abs(one.place - place) < Math.abs(best.place - place) ? one : best)).place;
}
