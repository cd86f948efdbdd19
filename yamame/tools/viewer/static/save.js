// Saves charts as files.
import { svg } from "./dom.js";
import { short } from "./format.js";

const HEAD = 30, ROW = 18;

/** The chart with its title above and its legend below, on the background of the page. */
function framed(chart, title, legend, colors) {
  const width = +chart.getAttribute("width"), height = +chart.getAttribute("height");
  const columns = Math.max(1, Math.floor(width / 220)), rows = Math.ceil(legend.length / columns);
  const total = HEAD + height + rows * ROW + 10;
  const inner = chart.cloneNode(true);
  inner.setAttribute("y", HEAD);
  return svg("svg", { xmlns: "http://www.w3.org/2000/svg", width, height: total, viewBox: `0 0 ${width} ${total}`, "font-family": chart.getAttribute("font-family"), "font-size": 11 },
    svg("rect", { width, height: total, fill: colors.card }),
    svg("text", { x: 14, y: 21, fill: colors.text, "font-size": 14, "font-weight": 600 }, title),
    inner,
    legend.map(({ label, color }, index) => {
      const x = 16 + (index % columns) * ((width - 24) / columns), y = HEAD + height + 10 + Math.floor(index / columns) * ROW;
      return [svg("rect", { x, width: 12, height: 4, y: y - 5, rx: 2, fill: color }), svg("text", { x: x + 18, y, fill: colors.soft }, short(label, 31))];
    }));
}

export function saveSvg(chart, title, legend, colors) {
  const text = new XMLSerializer().serializeToString(framed(chart, title, legend, colors));
  save(new Blob([text], { type: "image/svg+xml" }), `${fileName(title)}.svg`);
}

/** At twice the size on the screen. */
export async function savePng(chart, title, legend, colors) {
  const frame = framed(chart, title, legend, colors);
  const text = new XMLSerializer().serializeToString(frame), image = new Image();
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  try {
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [2 * frame.getAttribute("width"), 2 * frame.getAttribute("height")];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    save(await new Promise((done) => canvas.toBlob(done, "image/png")), `${fileName(title)}.png`);
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** Every logged value of the metrics, from the server. */
export async function saveCsv(title, parameters) {
  const response = await fetch(`/api/curves.csv?${parameters}`);
  if (!response.ok) throw new Error(`The server answered ${response.status}.`);
  save(await response.blob(), `${fileName(title)}.csv`);
}

function save(blob, name) {
  const url = URL.createObjectURL(blob), link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const fileName = (title) => title.toLowerCase().replace(/[^a-z0-9]+/g, "_").replace(/^_|_$/g, "") || "curve";
