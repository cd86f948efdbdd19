// The frame of the current timestep beside that of the most attended past timestep; play, pause and seek.
import { h } from "./dom.js";
import { percent } from "./rollout_data.js";
import { topAttended } from "./rollout_attention.js";

const SPEEDS = [1, 2, 5, 10, 20, 50];

export function playerPanel(clock) {
  const { trial } = clock;
  const now = view("now"), past = view("past");
  past.figure.hidden = !trial.attention;
  const button = h("button", { class: "r-play", type: "button", onclick: () => toggle() });
  const to = (label, title, move) => h("button", { type: "button", title, "aria-label": title, onclick: () => { stop(); move(); } }, label);
  const speed = h("select", { "aria-label": "Steps per second" }, SPEEDS.map((one) =>
    h("option", { value: one, selected: one === defaultSpeed(trial.steps) }, `${one} / s`)));
  const place = h("output", { class: "r-place" });
  const views = h("div", { class: "r-views" }, now.figure, past.figure);
  now.image.addEventListener("load", () => views.classList.toggle("wide", now.image.naturalWidth > 2.2 * now.image.naturalHeight));
  const element = h("section", { class: "r-card r-stage" }, views,
    h("div", { class: "r-transport" },
      to("|◀", "First step (Home)", () => clock.go(0)), to("‹", "Previous step (left arrow)", () => clock.go(clock.timestep - 1)), button,
      to("›", "Next step (right arrow)", () => clock.go(clock.timestep + 1)), to("▶|", "Last step (End)", () => clock.go(trial.steps)),
      speed, place));
  let timer = 0, playing = false, between = null;

  function toggle() {
    if (playing) return stop();
    if (clock.timestep === trial.steps) clock.go(0);
    playing = true;
    label();
    timer = setTimeout(turn, 1000 / Number(speed.value));
    return undefined;
  }

  function turn() {
    const endFrame = trial.attemptEndFrame(clock.timestep);
    if (endFrame && between !== clock.timestep) {
      between = clock.timestep;
      now.show(endFrame, `end of attempt ${trial.attempt[clock.timestep]}`, "");
    } else {
      between = null;
      clock.go(clock.timestep + 1);
    }
    if (clock.timestep === trial.steps) return stop();
    timer = setTimeout(turn, 1000 / Number(speed.value));
    return undefined;
  }

  function stop() {
    playing = false;
    clearTimeout(timer);
    label();
  }

  function label() {
    button.textContent = playing ? "❚❚ Pause" : "▶ Play";
    button.setAttribute("aria-pressed", playing);
  }

  function keys(event) {
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "range") return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const jump = event.shiftKey ? 10 : 1;
    const moves = {
      ArrowLeft: () => clock.go(clock.timestep - jump), ArrowRight: () => clock.go(clock.timestep + jump),
      Home: () => clock.go(0), End: () => clock.go(trial.steps),
    };
    if (event.key === " " && event.target.tagName !== "BUTTON") toggle();
    else if (event.key in moves) { stop(); moves[event.key](); }
    else return;
    event.preventDefault();
  }

  clock.onChange((timestep, pinned) => {
    now.show(trial.frame(timestep), "now", `step ${timestep}`, trial.observations[timestep]);
    place.textContent = `step ${timestep} of ${trial.steps}${trial.attempt.at(-1) > 1 ? ` · attempt ${trial.attempt[timestep]}` : ""}`;
    element.dataset.timestep = timestep;
    const attended = pinned ?? topAttended(trial, timestep);
    past.figure.classList.toggle("pinned", Boolean(pinned));
    if (!attended) past.show(null, "attention", "no past step", "");
    else past.show(trial.frame(attended.step), `step ${attended.step}`, `${percent(attended.weight)} of ${attended.by}`, trial.observations[attended.step]);
  });
  label();
  addEventListener("keydown", keys);
  return { element, close: () => { stop(); removeEventListener("keydown", keys); } };
}

/** A frame with its caption and the observation below it. */
function view(kind) {
  const image = h("img", { alt: "", draggable: "false" });
  image.addEventListener("load", () => image.classList.toggle("small", 2 * image.naturalWidth < image.clientWidth || 2 * image.naturalHeight < image.clientHeight));
  const title = h("b", {}), note = h("span", {}), seen = h("code", { class: "r-seen" });
  const blank = h("div", { class: "r-blank" });
  const figure = h("figure", { class: `r-view ${kind}` }, h("figcaption", {}, title, note), h("div", { class: "r-frame" }, image, blank), seen);
  return {
    figure, image,
    show(url, heading, text, what = null) {
      image.hidden = !url;
      blank.hidden = Boolean(url);
      if (url && image.src !== url) image.src = url;
      title.textContent = heading;
      note.textContent = text;
      blank.textContent = what ? "no frame" : "";
      if (what !== null) seen.textContent = what;
    },
  };
}

/** Steps per second with which a trial takes about ten seconds. */
function defaultSpeed(steps) {
  return SPEEDS.find((speed) => steps / speed <= 12) ?? SPEEDS.at(-1);
}
