// Action distribution and state of the trial at the current timestep.
import { h } from "./dom.js";
import { percent, short } from "./rollout_data.js";

/** Probabilities as bars; for continuous actions the mode and its standard deviation. */
export function actionPanel(clock) {
  const { trial } = clock;
  const rows = trial.actions.map((name, place) => (trial.probability ? bar(name, place) : track(name, place)));
  const element = h("section", { class: "r-card r-actions" },
    h("h2", {}, "Action", h("small", {}, trial.probability ? "probability · ● taken" : "mode ± std · ● taken")),
    h("div", { class: "r-bars" }, rows.map((row) => row.element)));
  clock.onChange((timestep) => {
    const taken = timestep < trial.steps ? trial.actions_taken[timestep] : [];
    for (const row of rows) row.show(timestep, taken);
  });
  return { element };

  function bar(name, place) {
    const fill = h("i", {}), value = h("output", {});
    const row = h("div", { class: "r-bar", "data-action": name }, h("span", { title: name }, name), h("div", { class: "r-track" }, fill), value);
    return {
      element: row,
      show(timestep, taken) {
        const probability = trial.probability[timestep][place] ?? 0;
        fill.style.setProperty("width", `${100 * probability}%`);
        value.textContent = percent(probability);
        row.classList.toggle("taken", taken.includes(place));
      },
    };
  }

  function track(name, place) {
    const fill = h("i", { class: "spread" }), middle = h("i", { class: "mode" }), dot = h("i", { class: "dot" }), value = h("output", {});
    const [least, most] = trial.action_bounds[place];
    const share = (number) => (100 * ((number ?? least) - least)) / (most - least || 1), at = (number) => `${share(number)}%`;
    const row = h("div", { class: "r-bar", "data-action": name }, h("span", { title: `${name}, from ${short(least)} to ${short(most)}` }, name), h("div", { class: "r-track ruled", style: { "--zero": at(0) } }, fill, middle, dot), value);
    return {
      element: row,
      show(timestep, taken) {
        const [low, mean, high] = [trial.low, trial.mean, trial.high].map((of) => of[timestep][place]);
        fill.style.setProperty("left", at(low));
        fill.style.setProperty("width", `${share(high) - share(low)}%`);
        middle.style.setProperty("left", at(mean));
        dot.hidden = taken.length === 0;
        if (taken.length) dot.style.setProperty("left", at(taken[place]));
        value.textContent = short(taken.length ? taken[place] : mean);
      },
    };
  }
}

/** Action, reward, returns and sub-goals. */
export function factPanel(clock) {
  const { trial } = clock;
  const several = trial.attempt.at(-1) > 1;
  const values = {};
  const fact = (key, label) => h("div", {}, h("dt", {}, label), values[key] = h("dd", {}));
  const list = h("dl", { class: "r-facts" }, fact("action", "action"), fact("reward", "reward"),
    several ? fact("attempt", "return of the attempt") : null, fact("total", several ? "return of the trial" : "return"),
    trial.success ? fact("success", "success") : null);
  const goals = trial.sub_goals.map((text) => h("li", {}, text));
  const element = h("section", { class: "r-card r-now" }, list,
    goals.length ? h("div", { class: "r-goals" }, h("h2", {}, "Instruction"), h("ol", {}, goals)) : null,
    trial.truncated ? h("p", { class: "r-truncated" }, `Only the first ${trial.steps.toLocaleString("en")} steps of the trial are shown.`) : null);
  clock.onChange((timestep) => {
    const last = timestep === trial.steps;
    values.action.textContent = last ? "end of the trial" : trial.actionText(timestep);
    values.reward.textContent = last ? "–" : short(trial.reward[timestep]);
    values.reward.classList.toggle("good", !last && trial.reward[timestep] > 0);
    values.reward.classList.toggle("bad", !last && trial.reward[timestep] < 0);
    values.total.textContent = short(trial.total[timestep]);
    if (several) values.attempt.textContent = short(trial.attemptReturn(timestep));
    if (trial.success) values.success.textContent = trial.success.slice(0, timestep).some(Boolean) ? "yes" : "not yet";
    goals.forEach((goal, place) => {
      goal.classList.toggle("done", place < trial.goals_completed[timestep]);
      goal.classList.toggle("active", place === trial.goals_completed[timestep]);
    });
  });
  return { element };
}
