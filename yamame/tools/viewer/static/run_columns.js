// Hyperparameters as columns of the table of runs: which differ, which are shown, and their values.
import { getJson, h } from "./dom.js";
import { plain } from "./run_filter.js";

const MAX_CHOSEN = 12, KEY = "yamame-columns";

export class Hyperparameters {
  constructor(onChange) {
    this.onChange = onChange;
    this.fields = []; // [{field, within_task, num_values}]
    this.values = {}; // path -> run id -> JSON
    this.chosen = load();
    this.known = "";
    this.request = 0;
    this.list = h("div", { class: "choices" });
    this.search = h("input", { type: "search", placeholder: "Search hyperparameters", "aria-label": "Search hyperparameters", oninput: () => this.showList() });
    this.element = h("details", { class: "columns" }, h("summary", { class: "button" }, "Columns"), h("div", { class: "card menu" }, this.search, this.list));
  }

  get paths() {
    return this.fields.map(({ field }) => field);
  }

  /** The chosen ones that differ between the runs. */
  shown() {
    const paths = new Set(this.paths);
    return this.chosen.filter((path) => paths.has(path));
  }

  valueOf(run, path) {
    return this.values[path]?.[run.id];
  }

  /** Read the fields again if there are other runs, and the values of chosen fields and of `paths`. */
  async refresh(runs, paths) {
    const wanted = [...new Set([...this.chosen, ...paths])];
    const known = JSON.stringify([runs.map(({ id }) => id), wanted]);
    if (known === this.known) return;
    const mine = ++this.request;
    const { fields, values } = await getJson("/api/hyperparameters", { field: wanted });
    if (mine !== this.request) return; // a later request knows more
    Object.assign(this, { known, fields, values });
    this.showList();
  }

  showList() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.fields.filter(({ field }) => words.every((word) => field.toLowerCase().includes(word)));
    const part = (title, fields) => fields.length > 0 && [h("p", { class: "soft" }, title), fields.map(({ field, num_values }) => h("label", { title: field },
      h("input", { type: "checkbox", checked: this.chosen.includes(field), "data-field": field, onchange: ({ target }) => this.choose(field, target) }),
      h("span", {}, field), h("span", { class: "soft" }, num_values)))];
    const focused = this.list.contains(document.activeElement) ? document.activeElement.dataset.field : null;
    this.list.replaceChildren(...[
      part("Differ between runs of one task", found.filter(({ within_task }) => within_task)),
      part("Differ between tasks", found.filter(({ within_task }) => !within_task)),
    ].flat(Infinity).filter(Boolean));
    if (focused) [...this.list.querySelectorAll("input")].find(({ dataset }) => dataset.field === focused)?.focus();
    if (!found.length) this.list.append(h("p", { class: "soft" }, this.fields.length ? "No hyperparameter matches." : "The configs of these runs do not differ."));
  }

  choose(field, box) {
    if (box.checked && this.shown().length >= MAX_CHOSEN) { box.checked = false; return; }
    this.chosen = box.checked ? [...this.chosen, field] : this.chosen.filter((one) => one !== field);
    try { localStorage.setItem(KEY, JSON.stringify(this.chosen)); } catch { /* private window */ }
    this.onChange();
  }

  /** Columns of the table. */
  columns() {
    return this.shown().map((path) => ({ path, title: shortPath(path, this.paths), sort: (run) => sortable(plain(this.valueOf(run, path))), numeric: true }));
  }
}

/** The shortest end of a path that no other path has. */
function shortPath(path, paths) {
  const parts = path.split(".");
  for (let count = 1; count < parts.length; count++) {
    const end = parts.slice(-count).join(".");
    if (parts.at(-count) !== "type" && paths.filter((other) => `.${other}`.endsWith(`.${end}`)).length === 1) return end;
  }
  return path;
}

/** Numbers by size and before text; runs without a value last. */
function sortable(value) {
  if (value === undefined) return [2, ""];
  return value !== "" && !Number.isNaN(Number(value)) ? [0, Number(value)] : [1, value];
}

function load() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter((one) => typeof one === "string") : [];
  } catch { return []; }
}
