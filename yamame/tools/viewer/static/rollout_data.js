// One recorded trial, and the moment of it that is looked at.

/** A trial as the server told it, with its pictures and a quick way into its attention. */
export class Trial {
  static async of(told, picturesAt) {
    const trial = new Trial(told);
    if (told.pictures.sizes.length) {
      const answer = await fetch(picturesAt);
      if (!answer.ok) throw new Error("The pictures are not there any more: play the trial again.");
      trial.unpack(await answer.blob());
    }
    return trial;
  }

  constructor(told) {
    Object.assign(this, told);
    this.moments = this.steps + 1;
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
    let begin = 0;
    for (const size of this.pictures.sizes) {
      this.urls.push(URL.createObjectURL(blob.slice(begin, begin + size, "image/png")));
      begin += size;
    }
  }

  forget() {
    this.urls.forEach((url) => URL.revokeObjectURL(url));
  }

  /** Address of the picture of a moment, or of what a transition led to at the end of an attempt; null without one. */
  picture(moment) {
    const place = this.pictures.of_moment[moment];
    return place === null || place === undefined ? null : this.urls[place];
  }

  end(step) {
    const place = this.pictures.of_end[step];
    return place === undefined ? null : this.urls[place];
  }

  /** Moments at which an attempt begins. */
  get begins() {
    return this.attempt.flatMap((number, moment) => (moment === 0 || number !== this.attempt[moment - 1] ? [moment] : []));
  }

  /** What one attempt has earned before a moment. */
  earned(moment) {
    const number = this.attempt[moment];
    const begin = this.attempt.indexOf(number);
    return this.total[moment] - this.total[begin];
  }

  /** The weights that one head gave at a moment, heaviest first: [{step, weight}]. */
  looked(layer, head, moment) {
    const { heads, moments, kept, weight, key } = this.attention;
    const begin = ((layer * heads + head) * moments + moment) * kept;
    const found = [];
    for (let i = begin; i < begin + kept && weight[i]; i++) found.push({ step: key[i], weight: weight[i] / 65535 });
    return found;
  }

  /** What was chosen at a step, in words. */
  choice(step) {
    if (step >= this.steps) return "";
    const taken = this.actions_taken[step];
    return this.choices.length ? taken.map((place) => this.actions[place]).join(", ")
      : `(${taken.map((part) => short(part)).join(", ")})`;
  }
}

/** The present moment, and the past one that is looked at beside it. */
export class Clock {
  constructor(trial) {
    this.trial = trial;
    this.moment = 0;
    this.pinned = null;
    this.listeners = [];
  }

  onChange(listener) {
    this.listeners.push(listener);
  }

  begin() {
    this.tell();
  }

  go(moment) {
    const bounded = Math.max(0, Math.min(this.trial.steps, Math.round(moment)));
    if (bounded === this.moment) return;
    this.moment = bounded;
    this.pinned = null;
    this.tell();
  }

  /** Look at a past moment: {step, weight, by}; null: at what is looked at most. */
  pin(past) {
    this.pinned = past;
    this.tell();
  }

  tell() {
    for (const listener of this.listeners) listener(this.moment, this.pinned);
  }
}

/** A number in few characters. */
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
