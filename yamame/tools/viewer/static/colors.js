// Colors of the theme and of ordered families; those of other lines come with their names (yamame/tools/palette.py).

const RAMP_LIGHT = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [84, 173, 64], [196, 168, 0]];
const RAMP_DARK = [[158, 120, 230], [104, 149, 240], [53, 190, 183], [122, 209, 81], [253, 231, 37]];

/** Colors of the current theme. */
export function theme() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  return { dark: document.documentElement.dataset.theme === "dark", card: of("--card"), text: of("--text"), soft: of("--soft"), line: of("--line") };
}

/** A shade from 0 to 1 of an ordered family. */
export function shade(share, dark) {
  const ramp = dark ? RAMP_DARK : RAMP_LIGHT;
  const place = share * (ramp.length - 1), index = Math.min(Math.floor(place), ramp.length - 2);
  const mix = ramp[index].map((part, i) => Math.round(part + (place - index) * (ramp[index + 1][i] - part)));
  return `rgb(${mix.join(" ")})`;
}
