// Shows Markdown as elements: headings, paragraphs, lists, tables, code and images. HTML in it is text.
import { h } from "./dom.js";

/** imageUrl(name): the address of an image file, null if there is none. Links are shown as text. */
export function markdown(text, imageUrl) {
  const lines = text.split(/\r?\n/), blocks = [];
  const take = (test) => { const taken = []; while (lines.length && test(lines[0])) taken.push(lines.shift()); return taken; };
  while (lines.length) {
    const line = lines[0], heading = line.match(/^(#{1,6}) +(.*)$/), image = line.match(/^!\[([^\]]*)\]\(([^)\s]+)\)\s*$/);
    if (!line.trim()) lines.shift();
    else if (heading) { lines.shift(); blocks.push(h(`h${Math.min(6, heading[1].length + 1)}`, {}, inline(heading[2]))); }
    else if (line.startsWith("```")) {
      lines.shift();
      blocks.push(h("pre", {}, take((one) => !one.startsWith("```")).join("\n")));
      lines.shift();
    } else if (image) {
      lines.shift();
      const url = imageUrl(image[2]);
      blocks.push(url ? h("img", { src: url, alt: image[1], loading: "lazy" }) : h("p", { class: "soft" }, `${image[1]} (${image[2]} is not there)`));
    } else if (line.startsWith("|")) blocks.push(table(take((one) => one.startsWith("|"))));
    else if (/^[-*] /.test(line)) blocks.push(h("ul", {}, take((one) => /^[-*] /.test(one)).map((one) => h("li", {}, inline(one.slice(2))))));
    else blocks.push(h("p", {}, inline([lines.shift(), ...take((one) => one.trim() && !/^(#|```|\||[-*] |!\[)/.test(one))].join(" "))));
  }
  return h("div", { class: "markdown" }, blocks);
}

function table(lines) {
  const rows = lines.map((line) => line.replace(/^\|/, "").replace(/\|\s*$/, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|")));
  const [head, ...body] = rows.filter((row) => !row.every((cell) => /^:?-+:?$/.test(cell)));
  const cells = (row, tag) => h("tr", {}, row.map((cell) => h(tag, {}, inline(cell))));
  return h("div", { class: "scroll" }, h("table", { class: "facts-table" },
    head.some(Boolean) && h("thead", {}, cells(head, "th")), h("tbody", {}, body.map((row) => cells(row, "td")))));
}

/** Code and bold text. */
function inline(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).filter(Boolean).map((part) =>
    part.startsWith("`") && part.length > 2 ? h("code", {}, part.slice(1, -1)) : /^\*\*.+\*\*$/.test(part) ? h("strong", {}, part.slice(2, -2)) : part);
}
