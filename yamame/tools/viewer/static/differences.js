// Differences between the configs of runs.
import { getJson, h, notice } from "./dom.js";

export async function mount(element, argument) {
  element.append(h("div", { class: "head" }, h("h1", {}, "Config differences"), h("div", { class: "controls" }, h("a", { class: "button", href: "#/runs" }, "Choose runs"), h("a", { class: "button main", href: `#/curves/${argument}` }, "Curves"))));
  const { runs, differences, same } = await getJson("/api/differences", { runs: argument });
  if (!differences.length) { element.append(notice(`The configs are equal in all ${same} fields.`)); return; }
  element.append(
    h("div", { class: "card scroll" }, h("table", { class: "differences-table" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Field"), runs.map(({ id, name }) => h("th", { scope: "col" }, h("a", { href: `#/curves/${id}` }, name))))),
      h("tbody", {}, differences.map(({ field, values }) => h("tr", {}, h("th", { scope: "row" }, field), values.map((value) => h("td", {}, value))))))),
    h("p", { class: "soft" }, `${same} other fields are equal.`));
}
