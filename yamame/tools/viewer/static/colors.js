// Colors of lines, distinct on light and dark backgrounds; the first eight also for color-blind readers.

const LIGHT = ["#2563c9", "#d9480f", "#2b8a3e", "#a626a4", "#0b8793", "#b08800", "#c2255c", "#6741d9", "#5c940d", "#5f6b7a"];
const DARK = ["#6ea8fe", "#ff9a5c", "#63d68a", "#e08bf0", "#4fd1dc", "#f0c94a", "#ff86ab", "#b19cff", "#b4d94c", "#aab4c2"];
const RAMP_LIGHT = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [84, 173, 64], [196, 168, 0]];
const RAMP_DARK = [[158, 120, 230], [104, 149, 240], [53, 190, 183], [122, 209, 81], [253, 231, 37]];

/** Colors of the current theme. */
export function theme() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  return { dark: document.documentElement.dataset.theme === "dark", card: of("--card"), text: of("--text"), soft: of("--soft"), line: of("--line") };
}

/** The color of line number `index`. */
export function color(index, dark) {
  const colors = dark ? DARK : LIGHT;
  if (index < colors.length) return colors[index];
  const hue = (index * 137.508) % 360;
  return `hsl(${hue.toFixed(0)} 55% ${dark ? 68 : 42}%)`;
}

/** A shade from 0 to 1 of an ordered family. */
export function shade(share, dark) {
  const ramp = dark ? RAMP_DARK : RAMP_LIGHT;
  const place = share * (ramp.length - 1), index = Math.min(Math.floor(place), ramp.length - 2);
  const mix = ramp[index].map((part, i) => Math.round(part + (place - index) * (ramp[index + 1][i] - part)));
  return `rgb(${mix.join(" ")})`;
}
