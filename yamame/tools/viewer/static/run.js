// The page of one run: results, notes, command, files, config, report and curves.
import { getJson, getText, h, notice, repeat } from "./dom.js";
import { ago, bytes, duration, number, percent, whole } from "./format.js";
import { markdown } from "./markdown.js";
import { notesCard } from "./notes.js";
import { plain } from "./run_filter.js";

const EVERY_SECONDS = 4, REPORT = "report.md";
const PARTS = { "": "Overview", config: "Config", report: "Report", curves: "Curves" };

export async function mount(element, runId, part) {
  const path = `/api/runs/${encodeURIComponent(runId)}`, page = await getJson(path);
  const here = part in PARTS ? part : "", state = h("span", {});
  const hasReport = page.files.some(({ name }) => name === REPORT);
  const tab = (name, href, isHere) => h("a", { href, class: isHere ? "here" : null, "aria-current": isHere ? "page" : null }, name);
  element.append(
    h("div", { class: "head" }, h("h1", {}, page.summary.name), state),
    h("nav", { class: "parts", "aria-label": "Parts of the run" },
      Object.entries(PARTS).filter(([name]) => name !== "report" || hasReport).map(([name, title]) => tab(title, `#/run/${runId}${name && `/${name}`}`, name === here)),
      tab("Rollouts", `#/rollouts/${runId}`, false)),
    h("div", { class: "warnings", hidden: !page.summary.warnings.length }, page.summary.warnings.map((problem) => h("p", {}, problem))));
  const body = h("div", {});
  element.append(body);
  const showState = ({ summary }) => state.replaceChildren(h("span", { class: `pill ${summary.state}` }, summary.state), h("span", { class: "soft" }, ` ${summary.reason}`));
  showState(page);
  if (here === "curves") return (await import("./curves.js")).mount(body, runId);
  if (here === "config") return config(body, page);
  if (here === "report") return report(body, `${path}/files/`, page);
  const facts = h("tbody", {}), notes = await notesCard(runId, page.read_only);
  const show = (shown) => { showState(shown); facts.replaceChildren(...factsOf(shown.summary).map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value)))); };
  body.append(h("div", { class: "parts-grid" },
    h("section", { class: "card part" }, h("h2", {}, "State"), h("table", { class: "facts-table" }, facts)), notes.element,
    command(page), results(page), files(page, `${path}/files/`)));
  const stop = repeat(EVERY_SECONDS, async () => show(await getJson(path)));
  show(page);
  return () => { stop(); notes.close(); };
}

function factsOf(run) {
  return [
    ["recipe", run.recipe], ["task", run.task], ["seed", run.seed],
    ["environment steps", run.env_steps === null ? null : `${whole(run.env_steps)}${run.planned_env_steps ? ` of ${whole(run.planned_env_steps)}` : ""}`],
    ["updates", run.updates === null ? null : whole(run.updates)],
    [`return (${run.return_from})`, run.return_mean === null ? null : number(run.return_mean, 4)],
    ["success", run.success_rate === null ? null : percent(run.success_rate)],
    ["steps per second", run.env_steps_per_second === null ? null : number(run.env_steps_per_second)],
    ["updates per second", run.updates_per_second === null ? null : number(run.updates_per_second)],
    ["wall time", run.wall_seconds === null ? null : duration(run.wall_seconds)],
    ["left", run.seconds_left === null ? null : duration(run.seconds_left)],
    ["changed", ago(run.modified_time)],
  ].filter(([, value]) => value !== null && value !== "");
}

function command({ command: line, expected }) {
  const copy = h("button", { type: "button", class: "button", onclick: async () => { await navigator.clipboard.writeText(line); copy.textContent = "Copied"; } }, "Copy");
  return h("section", { class: "card part wide" }, h("h2", {}, "Command"),
    line ? [h("pre", {}, line), navigator.clipboard && copy] : h("p", { class: "soft" }, "Started from Python or by a sweep: no command line."),
    expected && h("p", { class: "soft" }, `Measured with these settings: ${expected}`));
}

function results({ results: found }) {
  const rows = Object.entries(found);
  return h("section", { class: "card part" }, h("h2", {}, "Results"),
    rows.length ? h("div", { class: "scroll" }, h("table", { class: "facts-table" }, h("tbody", {}, rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { title: value }, rounded(plain(value))))))))
      : h("p", { class: "soft" }, "None: the run has not finished."));
}

/** Numbers in JSON with six digits. */
const rounded = (json) => json.replace(/-?\d+\.\d{5,}(?!\d*e)/g, (digits) => String(+(+digits).toPrecision(6)));

function files({ files: found }, folder) {
  return h("section", { class: "card part" }, h("h2", {}, "Files"),
    found.length ? h("ul", { class: "files" }, found.map(({ name, num_bytes }) => h("li", {},
      h("a", { href: folder + encodeURIComponent(name), target: "_blank", rel: "noopener" }, name), h("span", { class: "soft" }, bytes(num_bytes))))) : h("p", { class: "soft" }, "None that can be shown."),
    h("div", { class: "pictures" }, found.filter(({ type }) => type === "image").map(({ name }) => h("a", { href: folder + encodeURIComponent(name), target: "_blank", rel: "noopener" }, h("img", { src: folder + encodeURIComponent(name), alt: name, loading: "lazy" })))));
}

/** All fields; those that differ from the recipe come with its value. */
function config(body, { config: fields }) {
  const numChanged = fields.filter(({ changed }) => changed).length;
  const search = h("input", { type: "search", placeholder: "Search fields", "aria-label": "Search fields", oninput: () => show() });
  const only = h("input", { type: "checkbox", id: "only-changed", checked: numChanged > 0, onchange: () => show() });
  const rows = h("tbody", {}), nothing = h("div", {});
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = fields.filter(({ field, value, changed }) => (changed || !only.checked) && words.every((word) => `${field} ${value}`.toLowerCase().includes(word)));
    rows.replaceChildren(...shown.map(({ field, value, changed, default: of }) => h("tr", { class: changed ? "changed" : null },
      h("th", { scope: "row" }, field), h("td", {}, value), h("td", { class: "soft" }, changed ? of ?? "another value" : ""))));
    nothing.replaceChildren(...(shown.length ? [] : [notice("No field matches.")]));
  };
  body.append(
    h("div", { class: "head" }, h("div", { class: "controls" }, search, h("label", {}, only, `Only what differs from the recipe (${numChanged})`))),
    h("div", { class: "card scroll" }, h("table", { class: "differences-table" }, h("thead", {}, h("tr", {}, ["Field", "Value", "Recipe"].map((title) => h("th", { scope: "col" }, title)))), rows)), nothing);
  show();
}

async function report(body, folder, { files: found }) {
  const images = new Set(found.filter(({ type }) => type === "image").map(({ name }) => name));
  body.append(h("div", { class: "card part report" }, markdown(await getText(folder + REPORT), (name) => (images.has(name) ? folder + encodeURIComponent(name) : null))));
}
