// The Rollouts view: one trial of a checkpoint with its frames, actions, rewards and, if the algorithm has one, its analysis.
import { getJson, h, notice } from "./dom.js";
import { adaptationCard } from "./rollout_adaptation.js";
import { attentionStrips, topAttendedPanel } from "./rollout_attention.js";
import { Clock, Trial } from "./rollout_data.js";
import { actionPanel, factPanel } from "./rollout_step.js";
import { playerPanel } from "./rollout_player.js";
import { timelines } from "./rollout_timelines.js";

export async function mount(element, runId) {
  addStyleSheet();
  const path = `/api/rollouts/${encodeURIComponent(runId)}`;
  const loading = notice("Loading the run…");
  element.append(loading);
  const [options, { runs }] = await Promise.all([getJson(path), getJson("/api/runs")]);
  loading.remove();
  const name = runs.find((run) => run.id === runId)?.name ?? runId;
  const heading = h("header", { class: "r-head" }, h("h1", {}, name), h("span", { class: "r-task" }, options.task));
  if (!options.checkpoints.length) {
    element.append(heading, notice("This run has no checkpoint yet: it cannot act."));
    return undefined;
  }
  const scene = h("div", { class: "r-scene" });
  const form = optionsForm(options, play);
  element.append(heading, form.element, scene);
  let close = null, request = 0, closed = false;

  async function play() {
    const mine = ++request;
    form.busy(true);
    scene.classList.add("waiting");
    if (!scene.childElementCount) scene.append(notice("Running a trial…"));
    try {
      const recording = await getJson(`${path}/recording`, form.query());
      const trial = await Trial.load(recording, `${path}/frames/${recording.key}`);
      if (mine !== request || closed) return trial.release();
      close?.();
      close = show(scene, trial, options, path, form);
    } catch (problem) {
      if (mine !== request || closed) return;
      close?.();
      close = null;
      scene.replaceChildren(notice(problem.message));
    } finally {
      if (mine === request) {
        form.busy(false);
        scene.classList.remove("waiting");
      }
    }
  }

  play();
  return () => { closed = true; close?.(); };
}

/** Show one trial; returns a function that closes it. */
function show(scene, trial, options, path, form) {
  const clock = new Clock(trial);
  const strips = trial.analysis ? attentionStrips(clock) : null;
  const player = playerPanel(clock), facts = factPanel(clock), actions = trial.analysis ? actionPanel(clock) : null;
  const lines = timelines(clock, strips?.element), attended = trial.attention ? topAttendedPanel(clock) : null;
  const adaptation = adaptationCard(trial, options, () => getJson(`${path}/adaptation`, form.query()));
  const parts = [player, facts, actions, lines, strips, attended, adaptation].filter(Boolean);
  scene.replaceChildren(
    h("div", { class: "r-top" }, player.element, h("div", { class: "r-side" }, facts.element, actions?.element)),
    ...[lines, attended, adaptation].filter(Boolean).map((part) => part.element));
  clock.start();
  return () => {
    for (const part of parts) part.close?.();
    trial.release();
  };
}

/** The form above a trial. */
function optionsForm(options, play) {
  const checkpoint = h("select", { name: "checkpoint" }, options.checkpoints.map((one) =>
    h("option", { value: one.name }, `${one.name.split("-")[0]} · ${one.updates.toLocaleString("en")}`)));
  const seed = h("input", { name: "seed", type: "number", min: 0, max: 999999999, step: 1, value: options.seed, required: true });
  const actions = h("select", { name: "actions" },
    h("option", { value: "mode", selected: options.deterministic }, "most likely action"),
    h("option", { value: "sample", selected: !options.deterministic }, "sampled action"));
  const instruction = options.takes_instruction
    ? h("input", { name: "instruction", type: "text", maxlength: 500, placeholder: "sampled by the task" }) : null;
  const go = h("button", { class: "r-primary", type: "submit" }, "Run trial");
  const next = h("button", { type: "button", title: "Run the trial of the next seed", onclick: () => {
    seed.value = Number(seed.value || 0) + 1;
    play();
  } }, "Next seed");
  const labeled = (text, control, wide = false) =>
    control && h("label", { class: wide ? "wide" : null }, h("span", {}, text), control);
  const element = h("form", { class: "r-form r-card", onsubmit: (event) => { event.preventDefault(); play(); } },
    labeled("checkpoint · update", checkpoint), labeled("seed", seed), labeled("actions", actions),
    labeled("instruction", instruction, true), h("div", { class: "r-go" }, go, next));
  return {
    element,
    busy: (is) => { go.disabled = next.disabled = is; },
    query: () => ({ checkpoint: checkpoint.value, seed: seed.value, actions: actions.value, instruction: instruction?.value ?? "" }),
  };
}

/** Add the view's own style sheet, once. */
function addStyleSheet() {
  if (document.getElementById("rollouts-style")) return;
  document.head.append(h("link", { id: "rollouts-style", rel: "stylesheet", href: "/static/rollouts.css" }));
}
