// The Rollouts view: a checkpoint plays a trial; the page shows what it saw, did, expected and remembered.
import { ask, h, notice } from "./dom.js";
import { adaptationCard } from "./rollout_adaptation.js";
import { attentionStrips, mostLookedPanel } from "./rollout_attention.js";
import { Clock, Trial } from "./rollout_data.js";
import { actionPanel, factPanel } from "./rollout_moment.js";
import { stagePanel } from "./rollout_stage.js";
import { timelines } from "./rollout_timelines.js";

export async function mount(element, runId) {
  dress();
  const path = `/api/rollouts/${encodeURIComponent(runId)}`;
  const [offer, { runs }] = await Promise.all([ask(path), ask("/api/runs")]);
  const name = runs.find((run) => run.id === runId)?.name ?? runId;
  const heading = h("header", { class: "r-head" }, h("h1", {}, name), h("span", { class: "r-task" }, offer.task));
  if (!offer.checkpoints.length) {
    element.append(heading, notice("This run has no checkpoint yet: there is nobody to play."));
    return undefined;
  }
  const scene = h("div", { class: "r-scene" });
  const form = choices(offer, play);
  element.append(heading, form.element, scene);
  let ending = null, turn = 0, ended = false;

  async function play() {
    const mine = ++turn;
    form.busy(true);
    scene.classList.add("waiting");
    if (!scene.childElementCount) scene.append(notice("Playing a trial…"));
    try {
      const told = await ask(`${path}/recording`, form.wish());
      const trial = await Trial.of(told, `${path}/pictures/${told.key}`);
      if (mine !== turn || ended) return trial.forget();
      ending?.();
      ending = show(scene, trial, offer, path, form);
    } catch (problem) {
      if (mine !== turn || ended) return;
      ending?.();
      ending = null;
      scene.replaceChildren(notice(problem.message));
    } finally {
      if (mine === turn) {
        form.busy(false);
        scene.classList.remove("waiting");
      }
    }
  }

  play();
  return () => { ended = true; ending?.(); };
}

/** Everything about one trial; returns how to end it. */
function show(scene, trial, offer, path, form) {
  const clock = new Clock(trial);
  const strips = attentionStrips(clock);
  const parts = [
    stagePanel(clock), actionPanel(clock), factPanel(clock), timelines(clock, strips.element),
    adaptationCard(trial, offer, () => ask(`${path}/adaptation`, form.wish())),
  ];
  const [stage, actions, facts, lines, adaptation] = parts.map((part) => part.element);
  const looked = trial.attention ? mostLookedPanel(clock).element : null;
  scene.replaceChildren(
    h("div", { class: "r-top" }, stage, h("div", { class: "r-side" }, facts, actions)), lines, ...(looked ? [looked] : []), adaptation);
  parts.push(strips);
  clock.begin();
  return () => {
    for (const part of parts) part.end?.();
    trial.forget();
  };
}

/** What can be chosen before a trial is played. */
function choices(offer, play) {
  const checkpoint = h("select", { name: "checkpoint" }, offer.checkpoints.map((one) =>
    h("option", { value: one.name }, `${one.name.split("-")[0]} · ${one.updates.toLocaleString("en")}`)));
  const seed = h("input", { name: "seed", type: "number", min: 0, max: 999999999, step: 1, value: offer.seed, required: true });
  const manner = h("select", { name: "manner" },
    h("option", { value: "likely", selected: offer.deterministic }, "most likely action"),
    h("option", { value: "sample", selected: !offer.deterministic }, "sampled action"));
  const instruction = offer.instructed
    ? h("input", { name: "instruction", type: "text", maxlength: 500, placeholder: "what the task draws" }) : null;
  const go = h("button", { class: "r-primary", type: "submit" }, "Play");
  const next = h("button", { type: "button", title: "Play the trial of the next seed", onclick: () => {
    seed.value = Number(seed.value || 0) + 1;
    play();
  } }, "Next seed");
  const labelled = (text, control, wide = false) =>
    control && h("label", { class: wide ? "wide" : null }, h("span", {}, text), control);
  const element = h("form", { class: "r-form r-card", onsubmit: (event) => { event.preventDefault(); play(); } },
    labelled("checkpoint · update", checkpoint), labelled("seed", seed), labelled("acts by", manner),
    labelled("instruction", instruction, true), h("div", { class: "r-go" }, go, next));
  return {
    element,
    busy: (is) => { go.disabled = next.disabled = is; },
    wish: () => ({ checkpoint: checkpoint.value, seed: seed.value, manner: manner.value, instruction: instruction?.value ?? "" }),
  };
}

/** The view's own style sheet, once. */
function dress() {
  if (document.getElementById("rollouts-style")) return;
  document.head.append(h("link", { id: "rollouts-style", rel: "stylesheet", href: "/static/rollouts.css" }));
}
