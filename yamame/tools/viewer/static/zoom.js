// Zoom and pan of charts along x, by pointer and by keys.
import { h } from "./dom.js";

const MIN_PIXELS = 4, KEY_STEP = 0.2;

/** A part of x moved by `by`, but not past the ends. */
export function shift([low, high], by, [first, last]) {
  const moved = Math.min(Math.max(by, Math.min(0, first - low)), Math.max(0, last - high));
  return [low + moved, high + moved];
}

/** A part of x `factor` times as wide, about the same middle; null if that is all. */
export function scale([low, high], factor, [first, last]) {
  const middle = (low + high) / 2, half = (factor * (high - low)) / 2;
  const wide = [Math.max(first, middle - half), Math.min(last, middle + half)];
  return wide[0] <= first && wide[1] >= last ? null : wide;
}

/**
 * Listen to gestures on a chart: dragging zooms into a part of x; with Shift, or the middle button, it pans; a double
 * click shows all. Keys: arrows, + and -, Escape.
 *
 * chartOf(): the chart as `draw` returns it, null without one.
 * change(span, isFinal) is called with the part of x to show, null for all, or with a function that returns it from the
 * ends of the axis; it is not final while a pan goes on.
 */
export function watchGestures(element, chartOf, change) {
  const band = h("div", { class: "selection", hidden: true });
  element.after(band);
  let drag = null;
  const pixelOf = ({ clientX }, { left, right }) => Math.min(Math.max(clientX - element.getBoundingClientRect().left, left), right);

  element.addEventListener("pointerdown", (event) => {
    const chart = chartOf();
    if (!chart || event.button > 1) return;
    element.setPointerCapture(event.pointerId);
    drag = { chart, from: pixelOf(event, chart.area), pans: event.shiftKey || event.button === 1, moved: false };
    if (drag.pans) event.preventDefault();
  });
  element.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const { chart: { x, area, span }, from } = drag, to = pixelOf(event, area);
    drag.moved ||= Math.abs(to - from) >= MIN_PIXELS;
    if (!drag.moved) return;
    if (drag.pans) change((extent) => shift(span, x.value(from) - x.value(to), extent), false);
    else {
      band.hidden = false;
      Object.assign(band.style, { left: `${Math.min(from, to)}px`, width: `${Math.abs(to - from)}px`, top: `${area.top}px`, height: `${area.bottom - area.top}px` });
    }
  });
  const end = (event) => {
    if (!drag) return;
    const { chart: { x, area, span }, from, pans, moved } = drag, to = pixelOf(event, area);
    drag = null;
    band.hidden = true;
    if (!moved || event.type === "pointercancel") return;
    change(pans ? (extent) => shift(span, x.value(from) - x.value(to), extent) : [x.value(Math.min(from, to)), x.value(Math.max(from, to))], true);
  };
  element.addEventListener("pointerup", end);
  element.addEventListener("pointercancel", end);
  element.addEventListener("dblclick", () => chartOf() && change(null, true));
  element.addEventListener("keydown", (event) => {
    const span = chartOf()?.span;
    if (!span || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = KEY_STEP * (span[1] - span[0]);
    const moves = {
      ArrowLeft: (extent) => shift(span, -step, extent), ArrowRight: (extent) => shift(span, step, extent),
      "+": (extent) => scale(span, 0.5, extent), "-": (extent) => scale(span, 2, extent), Escape: null,
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    change(moves[event.key], true);
  });
}
