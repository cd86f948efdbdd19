// A recorded trial and the timestep that is shown.

/** A recording with its frames and decoded attention. */
export class Trial {
  static async load(recording, framesUrl) {
    const trial = new Trial(recording);
    if (recording.frames.sizes.length) {
      const response = await fetch(framesUrl);
      if (!response.ok) throw new Error("The frames are not in memory any more: play the trial again.");
      trial.unpack(await response.blob());
    }
    return trial;
  }

  /** Without an analysis `attention`, `probability`, `mean` and `q` are null and `gammas` is empty. */
  constructor(recording) {
    Object.assign(this, { attention: null, probability: null, mean: null, q: null, gammas: [] }, recording, recording.analysis);
    this.timesteps = this.steps + 1;
    this.urls = [];
    this.total = [0];
    for (const reward of this.reward) this.total.push(this.total.at(-1) + (reward ?? 0));
    const attention = this.attention;
    if (attention) {
      attention.weight = integers(attention.weight);
      attention.key = integers(attention.key);
    }
  }

  unpack(blob) {
    let start = 0;
    for (const size of this.frames.sizes) {
      this.urls.push(URL.createObjectURL(blob.slice(start, start + size, "image/png")));
      start += size;
    }
  }

  release() {
    this.urls.forEach((url) => URL.revokeObjectURL(url));
  }

  /** URL of the frame of a timestep; null without one. */
  frame(timestep) {
    const place = this.frames.of_timestep[timestep];
    return place === null || place === undefined ? null : this.urls[place];
  }

  /** URL of the frame of the final observation of an attempt, if the transition ended one; null otherwise. */
  attemptEndFrame(step) {
    const place = this.frames.of_attempt_end[step];
    return place === undefined ? null : this.urls[place];
  }

  /** First timestep of every attempt. */
  get attemptStarts() {
    return this.attempt.flatMap((number, timestep) => (timestep === 0 || number !== this.attempt[timestep - 1] ? [timestep] : []));
  }

  /** Return of the attempt of a timestep so far. */
  attemptReturn(timestep) {
    const number = this.attempt[timestep];
    return this.total[timestep] - this.total[this.attempt.indexOf(number)];
  }

  /** Attention weights of one head at a timestep, largest first: [{step, weight}]. */
  attended(layer, head, timestep) {
    const { heads, timesteps, kept, weight, key } = this.attention;
    const start = ((layer * heads + head) * timesteps + timestep) * kept;
    const found = [];
    for (let i = start; i < start + kept && weight[i]; i++) found.push({ step: key[i], weight: weight[i] / 65535 });
    return found;
  }

  /** Name or values of the action at a step. */
  actionText(step) {
    if (step >= this.steps) return "";
    const taken = this.actions_taken[step];
    return this.num_choices.length ? taken.map((place) => this.actions[place]).join(", ")
      : `(${taken.map((part) => short(part)).join(", ")})`;
  }
}

/** The current timestep, and a past one that is pinned beside it. */
export class Clock {
  constructor(trial) {
    this.trial = trial;
    this.timestep = 0;
    this.pinned = null;
    this.listeners = [];
  }

  onChange(listener) {
    this.listeners.push(listener);
  }

  start() {
    this.notify();
  }

  go(timestep) {
    const bounded = Math.max(0, Math.min(this.trial.steps, Math.round(timestep)));
    if (bounded === this.timestep) return;
    this.timestep = bounded;
    this.pinned = null;
    this.notify();
  }

  /** Pin a past timestep: {step, weight, by}; null: show the most attended one. */
  pin(past) {
    this.pinned = past;
    this.notify();
  }

  notify() {
    for (const listener of this.listeners) listener(this.timestep, this.pinned);
  }
}

/** Format a number in few characters. */
export function short(number) {
  if (number === null || number === undefined) return "–";
  if (number === 0) return "0";
  const size = Math.abs(number);
  const text = size >= 1e5 || size < 1e-3 ? number.toExponential(1)
    : size >= 100 ? number.toFixed(0) : size >= 10 ? number.toFixed(1) : number.toFixed(2);
  return (text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text).replace("-", "−");
}

export function percent(part) {
  return part >= 0.995 ? "100 %" : part >= 0.1 ? `${(100 * part).toFixed(0)} %` : `${(100 * part).toFixed(1)} %`;
}

function integers(base64) {
  const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  return new Uint16Array(bytes.buffer);
}
