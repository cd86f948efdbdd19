// The Runs view: state and results of every run.
import { getJson, h, notice, repeat } from "./dom.js";
import { ago, duration, number, percent, whole } from "./format.js";
import { Hyperparameters } from "./run_columns.js";
import { matches, parseFilter, pathsOf, plain } from "./run_filter.js";

const EVERY_SECONDS = 4;
const ORDER = { running: 0, failed: 1, corrupted: 2, stopped: 3, finished: 4 };
const COLUMNS = [
  { title: "Run", sort: (run) => run.name },
  { title: "State", sort: (run) => ORDER[run.state] },
  { title: "Steps", sort: (run) => -(run.env_steps ?? -1) },
  { title: "Return", sort: (run) => -(run.return_mean ?? -Infinity), numeric: true },
  { title: "Success", sort: (run) => -(run.success_rate ?? -1), numeric: true },
  { title: "Steps/s", sort: (run) => -(run.env_steps_per_second ?? -1), numeric: true },
  { title: "Updates/s", sort: (run) => -(run.updates_per_second ?? -1), numeric: true },
  { title: "Left", sort: (run) => run.seconds_left ?? Infinity, numeric: true },
  { title: "Changed", sort: (run) => -run.modified_time, numeric: true },
];
const chosen = new Set(); // kept while other views are shown

export async function mount(element) {
  const view = new Runs(element);
  const stop = repeat(EVERY_SECONDS, () => view.refresh());
  return stop;
}

class Runs {
  constructor(element) {
    this.runs = null;
    this.rows = new Map();
    this.order = { title: "Changed", backwards: false };
    this.hyperparameters = new Hyperparameters(() => this.apply());
    this.filter = h("input", { type: "search", id: "filter", placeholder: "Filter: name, tag, seed=1, n_step>4", "aria-label": "Filter",
      title: "Words of name, recipe, task, state, tags and notes, and comparisons with =, !=, <, > of hyperparameters, tag, state, recipe, steps, return and success",
      oninput: () => this.apply() });
    this.sorting = h("select", { id: "sort", "aria-label": "Sort by", onchange: () => this.sort(this.sorting.value) });
    this.grouped = h("input", { type: "checkbox", id: "by-recipe", onchange: () => this.show() });
    this.count = h("span", { class: "soft", id: "count" });
    this.actions = h("div", { class: "actions", hidden: true });
    this.warnings = h("div", { class: "warnings", hidden: true });
    this.all = h("input", { type: "checkbox", "aria-label": "Choose all shown", onchange: () => this.chooseAll() });
    this.head = h("tr", {});
    this.table = h("table", { class: "runs-table", hidden: true }, h("thead", {}, this.head));
    this.nothing = h("div", {});
    element.append(
      h("div", { class: "head" }, h("h1", {}, "Runs"), this.count, h("div", { class: "controls" }, this.filter, this.sorting, h("label", {}, this.grouped, "Group by recipe"), this.hyperparameters.element)),
      this.warnings, this.actions, h("div", { class: "card list scroll" }, this.table), this.nothing);
  }

  async refresh() {
    let response;
    try {
      response = await getJson("/api/runs");
    } catch (problem) {
      if (!this.runs) this.nothing.replaceChildren(notice(problem.message));
      throw problem;
    }
    this.runs = response.runs;
    for (const id of chosen) if (!response.runs.some((run) => run.id === id)) chosen.delete(id);
    this.warnings.hidden = !response.warnings.length;
    this.warnings.replaceChildren(...response.warnings.map((problem) => h("p", {}, problem)));
    await this.readAndShow();
  }

  /** Show the runs, with the values of the hyperparameters that the columns and the filter name. */
  async readAndShow() {
    this.show();
    const { hyperparameters } = this;
    for (let round = 0; round < 2; round++) { // the first time, the fields that the filter may name are not known
      await hyperparameters.refresh(this.runs ?? [], parseFilter(this.filter.value).flatMap((condition) => pathsOf(condition, hyperparameters.paths)));
    }
    this.show();
  }

  /** Show what the filter and the columns have become. */
  apply() {
    this.readAndShow().catch(() => {}); // the page says that the server does not answer
  }

  sort(title) {
    this.order = { title, backwards: this.order.title === title && !this.order.backwards };
    this.show();
  }

  /** Filter by a value that was clicked. */
  addCondition(text) {
    const parts = this.filter.value.split(" ").filter(Boolean);
    if (!parts.includes(text)) this.filter.value = [...parts, text].join(" ");
    this.apply();
  }

  shown() {
    const conditions = parseFilter(this.filter.value), { paths } = this.hyperparameters;
    const runs = this.runs.filter((run) => matches(run, conditions, paths, (one, path) => this.hyperparameters.valueOf(one, path)));
    const { sort } = this.columns.find(({ title }) => title === this.order.title) ?? COLUMNS.at(-1), sign = this.order.backwards ? -1 : 1;
    return runs.sort((a, b) => sign * compare(sort(a), sort(b)) || compare(a.name, b.name));
  }

  showHead() {
    const titles = this.columns.map(({ title }) => title), direction = this.order.backwards ? "descending" : "ascending";
    const head = JSON.stringify([titles, this.order]);
    if (head === this.shownHead) return;
    this.shownHead = head;
    this.head.replaceChildren(h("th", { class: "tick" }, this.all), ...this.columns.map(({ title, path, numeric }) =>
      h("th", { class: numeric ? "numeric" : null, scope: "col", "aria-sort": title === this.order.title ? direction : "none", title: path },
        h("button", { type: "button", onclick: () => this.sort(title) }, title))));
    this.sorting.replaceChildren(...titles.map((title) => h("option", { value: title, selected: title === this.order.title }, `sort: ${title}`)));
  }

  show() {
    if (!this.runs) return;
    this.columns = [...COLUMNS, ...this.hyperparameters.columns()];
    this.showHead();
    const runs = this.shown(), running = this.runs.filter(({ state }) => state === "running").length;
    this.count.textContent = `${runs.length === this.runs.length ? "" : `${runs.length} of `}${this.runs.length}${running ? `, ${running} running` : ""}`;
    this.table.hidden = !runs.length;
    this.nothing.replaceChildren(...(runs.length ? [] : [notice(this.runs.length ? "No run matches the filter." : "No runs yet.")]));
    for (const body of [...this.table.tBodies]) body.remove();
    if (this.grouped.checked) {
      const groups = Map.groupBy(runs, ({ recipe }) => recipe);
      for (const [recipe, members] of [...groups].sort(([a], [b]) => compare(a, b))) this.table.append(h("tbody", {}, this.heading(recipe, members), members.map((run) => this.row(run))));
    } else this.table.append(h("tbody", {}, runs.map((run) => this.row(run))));
    const ids = new Set(this.runs.map(({ id }) => id));
    for (const id of this.rows.keys()) if (!ids.has(id)) this.rows.delete(id);
    this.all.checked = runs.length > 0 && runs.every(({ id }) => chosen.has(id));
    this.showActions();
  }

  heading(recipe, members) {
    const known = members.map((run) => run.return_mean).filter((value) => value !== null);
    const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
    const all = members.every(({ id }) => chosen.has(id));
    return h("tr", { class: "group" },
      h("td", { class: "tick" }, h("input", { type: "checkbox", checked: all, "aria-label": `Choose all of ${recipe}`, onchange: ({ target }) => {
        for (const { id } of members) if (target.checked) chosen.add(id); else chosen.delete(id);
        this.show();
      } })),
      h("th", { colspan: this.columns.length, scope: "rowgroup" }, recipe || "no recipe", h("span", { class: "soft" }, ` ${members.length} ${members.length === 1 ? "run" : "runs"}`, known.length > 1 ? `, mean return ${number(mean)}` : "")));
  }

  /** The row of a run; the element is reused while the run is unchanged. */
  row(run) {
    const extra = this.columns.slice(COLUMNS.length).map(({ path, title }) => [path, title, plain(this.hyperparameters.valueOf(run, path))]);
    const content = JSON.stringify([run, extra]), before = this.rows.get(run.id);
    if (before?.content === content) {
      before.tick.checked = chosen.has(run.id);
      before.changed.textContent = ago(run.modified_time);
      return before.row;
    }
    const tick = h("input", { type: "checkbox", checked: chosen.has(run.id), "aria-label": `Choose ${run.name}`, onchange: () => {
      if (tick.checked) chosen.add(run.id); else chosen.delete(run.id);
      this.show();
    } });
    const changed = h("td", { class: "numeric soft", "data-title": "Changed" }, ago(run.modified_time));
    const cell = (title, text, about = null) => h("td", { class: "numeric", "data-title": title, title: about }, text);
    const row = h("tr", { "data-run": run.id },
      h("td", { class: "tick" }, tick),
      h("td", { class: "name" }, h("a", { href: `#/run/${run.id}` }, run.name),
        h("div", { class: "soft" }, [run.recipe === "gymnasium" ? "" : run.recipe, letters(run.task) === letters(run.recipe) ? "" : run.task, run.seed === null ? "" : `seed ${run.seed}`].filter(Boolean).join(" · "),
          " ", h("a", { class: "aside", href: `#/curves/${run.id}` }, "curves"), " ", h("a", { class: "aside", href: `#/rollouts/${run.id}` }, "rollouts")),
        run.tags.length > 0 && h("div", { class: "tags" }, run.tags.map((tag) => h("button", { type: "button", class: "tag", title: "filter by this tag", onclick: () => this.addCondition(condition("tag", tag)) }, tag))),
        run.note && h("div", { class: "note", title: run.note }, run.note.split("\n")[0]),
        run.warnings.map((problem) => h("div", { class: "problem" }, problem))),
      h("td", { class: "state" }, h("span", { class: `pill ${run.state}` }, run.state), run.reason ? h("div", { class: "reason", title: run.reason }, run.reason) : null),
      h("td", { class: "steps" }, progress(run)),
      cell("Return", number(run.return_mean), run.return_mean === null ? null : run.return_from === "training" ? "mean of the last training trials" : run.return_from),
      cell("Success", percent(run.success_rate)),
      cell("Steps/s", number(run.env_steps_per_second)),
      cell("Updates/s", number(run.updates_per_second)),
      cell("Left", run.seconds_left === null ? "–" : duration(run.seconds_left)),
      changed,
      extra.map(([path, title, value]) => h("td", { class: "numeric hyperparameter", "data-title": title }, value === undefined ? "–"
        : h("button", { type: "button", title: `${path} = ${value}: filter by this value`, onclick: () => this.addCondition(condition(title, value)) }, value))));
    this.rows.set(run.id, { content, row, tick, changed });
    return row;
  }

  chooseAll() {
    for (const { id } of this.shown()) if (this.all.checked) chosen.add(id); else chosen.delete(id);
    this.show();
  }

  showActions() {
    const ids = [...chosen].join(",");
    this.actions.hidden = !chosen.size;
    this.actions.replaceChildren(
      h("span", {}, `${chosen.size} chosen`),
      h("a", { class: "button main", id: "to-curves", href: `#/curves/${ids}` }, "Curves"),
      chosen.size >= 2 && chosen.size <= 8 ? h("a", { class: "button", id: "to-differences", href: `#/differences/${ids}` }, "Config differences") : "",
      h("button", { type: "button", class: "button", onclick: () => { chosen.clear(); this.show(); } }, "Clear"));
  }
}

function progress(run) {
  if (run.env_steps === null) return h("span", { class: "soft" }, "no steps yet");
  const fraction = run.planned_env_steps ? Math.min(1, run.env_steps / run.planned_env_steps) : null;
  return [
    h("div", { class: "numbers", title: `${whole(run.env_steps)} of ${whole(run.planned_env_steps)} environment steps, ${whole(run.updates)} updates` },
      number(run.env_steps), h("span", { class: "soft" }, run.planned_env_steps ? ` / ${number(run.planned_env_steps)}` : "")),
    fraction === null ? null : h("div", { class: "progress" }, h("i", { class: run.state, style: { width: `${100 * fraction}%` } })),
  ];
}

const letters = (text) => text.toLowerCase().replace(/[^a-z0-9]/g, "");
const condition = (name, value) => (/[\s"]/.test(value) ? `${name}="${value.replaceAll('"', "")}"` : `${name}=${value}`);
const compare = (a, b) => (Array.isArray(a) ? compare(a[0], b[0]) || compare(a[1], b[1]) : a < b ? -1 : a > b ? 1 : 0);
