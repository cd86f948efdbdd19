// The Runs view.
import { ask, h, notice } from "./dom.js";

export async function mount(element) {
  const { runs } = await ask("/api/runs");
  element.append(h("h1", {}, "Runs"), runs.length ? h("ul", {}, runs.map((run) => h("li", {}, run.name))) : notice("There are no runs yet."));
}
