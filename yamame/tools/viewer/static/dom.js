// Making elements, and asking the server. Text is always text: nothing here parses HTML.

/** An element: h("a", {href: "#/runs", class: "x", onclick: f}, "text", child, …); null and false are left out. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The like in SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.entries(value).forEach(([key, part]) => element.style.setProperty(key, part));
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Parameters of an address; a list is a parameter that is there several times. */
export function queryOf(parameters) {
  return new URLSearchParams(Object.entries(parameters).flatMap(([name, value]) => [value].flat().map((part) => [name, part])));
}

/** What the server says to a GET: an object. Throws an Error whose message is for the page. */
export async function ask(path, parameters = {}, signal = undefined) {
  const query = queryOf(parameters).toString();
  let answer;
  try {
    answer = await fetch(query ? `${path}?${query}` : path, { signal });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    document.getElementById("offline").hidden = false;
    throw new Error("The server does not answer.");
  }
  document.getElementById("offline").hidden = true;
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.error ?? `The server answered ${answer.status}.`);
  return body;
}

/** Call `work` now and then again `seconds` after each end, while the page is looked at; returns how to stop it. */
export function repeat(seconds, work) {
  let stopped = false, timer = 0;
  const turn = async () => {
    if (stopped) return;
    if (!document.hidden) await work().catch(() => {});
    if (!stopped) timer = setTimeout(turn, 1000 * seconds);
  };
  turn();
  return () => { stopped = true; clearTimeout(timer); };
}

/** A page that says why there is nothing to see. */
export function notice(...text) {
  return h("p", { class: "notice" }, ...text);
}
