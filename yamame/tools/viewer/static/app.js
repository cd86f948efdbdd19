// Shows the view that the address names: #/view/argument/part. A view is a module with
// `async mount(element, argument, part)`, which may return a function that closes it.
import { getJson, h, notice } from "./dom.js";

const TITLES = { runs: "Runs", curves: "Curves", rollouts: "Rollouts", differences: "Config differences", run: "Run" };
const TABS = { differences: "runs", run: "runs" };
let close = null, request = 0;

async function show() {
  const [view, argument, part] = address();
  const mine = ++request;
  close?.();
  close = null;
  for (const tab of document.querySelectorAll("#tabs a")) tab.classList.toggle("here", tab.dataset.view === (TABS[view] ?? view));
  document.title = `${TITLES[view]} · Yamame`;
  const element = h("div", { class: `view ${view}` });
  document.getElementById("view").replaceChildren(element);
  try {
    const mount = view === "rollouts" && !argument ? chooseRun : (await import(`./${view}.js`)).mount;
    const closeView = await mount(element, argument, part);
    if (mine === request) close = closeView ?? null;
    else closeView?.();
  } catch (problem) {
    const missing = problem instanceof TypeError && /import/i.test(problem.message);
    element.replaceChildren(notice(missing ? `${TITLES[view]}: not available.` : problem.message));
  }
}

function address() {
  const [view, argument = "", part = ""] = location.hash.replace(/^#\/?/, "").split("/");
  return Object.hasOwn(TITLES, view) ? [view, argument, part] : ["runs", "", ""];
}

async function chooseRun(element) {
  const { runs } = await getJson("/api/runs");
  const links = runs.map((run) => h("li", {}, h("a", { href: `#/rollouts/${run.id}` }, run.name)));
  element.append(h("h1", {}, "Choose a run"), links.length ? h("ul", { class: "choice" }, links) : notice("No runs yet."));
}

document.getElementById("theme").addEventListener("click", () => globalThis.toggleTheme());
addEventListener("hashchange", show);
show();
