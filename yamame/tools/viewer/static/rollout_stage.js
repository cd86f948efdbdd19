// The environment as it looks now, beside the past moment that is most looked at; play, pause and scrub.
import { h } from "./dom.js";
import { percent } from "./rollout_data.js";
import { mostLooked } from "./rollout_attention.js";

const SPEEDS = [1, 2, 5, 10, 20, 50];

export function stagePanel(clock) {
  const { trial } = clock;
  const now = view("now"), past = view("past");
  past.figure.hidden = !trial.attention;
  const button = h("button", { class: "r-play", type: "button", onclick: () => toggle() });
  const to = (label, title, move) => h("button", { type: "button", title, "aria-label": title, onclick: () => { stop(); move(); } }, label);
  const speed = h("select", { "aria-label": "Steps a second" }, SPEEDS.map((one) =>
    h("option", { value: one, selected: one === pace(trial.steps) }, `${one} / s`)));
  const place = h("output", { class: "r-place" });
  const views = h("div", { class: "r-views" }, now.figure, past.figure);
  now.image.addEventListener("load", () => views.classList.toggle("wide", now.image.naturalWidth > 2.2 * now.image.naturalHeight));
  const element = h("section", { class: "r-card r-stage" }, views,
    h("div", { class: "r-transport" },
      to("|◀", "To the beginning (Home)", () => clock.go(0)), to("‹", "A step back (left arrow)", () => clock.go(clock.moment - 1)), button,
      to("›", "A step on (right arrow)", () => clock.go(clock.moment + 1)), to("▶|", "To the end (End)", () => clock.go(trial.steps)),
      speed, place));
  let timer = 0, playing = false, between = null;

  function toggle() {
    if (playing) return stop();
    if (clock.moment === trial.steps) clock.go(0);
    playing = true;
    label();
    timer = setTimeout(turn, 1000 / Number(speed.value));
    return undefined;
  }

  function turn() {
    const ending = trial.end(clock.moment);
    if (ending && between !== clock.moment) {
      between = clock.moment;
      now.show(ending, `end of attempt ${trial.attempt[clock.moment]}`, "");
    } else {
      between = null;
      clock.go(clock.moment + 1);
    }
    if (clock.moment === trial.steps) return stop();
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
      ArrowLeft: () => clock.go(clock.moment - jump), ArrowRight: () => clock.go(clock.moment + jump),
      Home: () => clock.go(0), End: () => clock.go(trial.steps),
    };
    if (event.key === " " && event.target.tagName !== "BUTTON") toggle();
    else if (event.key in moves) { stop(); moves[event.key](); }
    else return;
    event.preventDefault();
  }

  clock.onChange((moment, pinned) => {
    now.show(trial.picture(moment), "now", `step ${moment}`, trial.seen[moment]);
    place.textContent = `step ${moment} of ${trial.steps}${trial.attempt.at(-1) > 1 ? ` · attempt ${trial.attempt[moment]}` : ""}`;
    element.dataset.moment = moment;
    const looked = pinned ?? mostLooked(trial, moment);
    past.figure.classList.toggle("pinned", Boolean(pinned));
    if (!looked) past.show(null, "looked at", "nothing yet", "");
    else past.show(trial.picture(looked.step), `step ${looked.step}`, `${percent(looked.weight)} of ${looked.by}`, trial.seen[looked.step]);
  });
  label();
  addEventListener("keydown", keys);
  return { element, end: () => { stop(); removeEventListener("keydown", keys); } };
}

/** One picture with a line above it, and what the agent saw below. */
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
      blank.textContent = what ? "no picture" : "";
      if (what !== null) seen.textContent = what;
    },
  };
}

/** Steps a second by which a trial takes some ten seconds. */
function pace(steps) {
  return SPEEDS.find((speed) => steps / speed <= 12) ?? SPEEDS.at(-1);
}
