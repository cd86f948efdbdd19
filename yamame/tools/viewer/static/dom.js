// Creates elements and reads from the server. Text is never parsed as HTML.

/** An element: h("a", {href: "#/runs", class: "x", onclick: f}, "text", child, …); null and false are left out. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Like `h`, in SVG. */
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

/** Query parameters; a list becomes a repeated parameter. */
export function queryOf(parameters) {
  return new URLSearchParams(Object.entries(parameters).flatMap(([name, value]) => [value].flat().map((part) => [name, part])));
}

/** GET a JSON object. Throws an Error whose message is shown on the page. */
export async function getJson(path, parameters = {}, signal = undefined) {
  const query = queryOf(parameters).toString();
  return request(query ? `${path}?${query}` : path, { signal });
}

/** PUT a JSON object and return the answer. The header is one that pages of other sites cannot send. */
export async function putJson(path, content) {
  return request(path, { method: "PUT", headers: { "content-type": "application/json", "x-yamame-view": "1" }, body: JSON.stringify(content) });
}

async function request(url, options) {
  let response;
  try {
    response = await fetch(url, options);
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    document.getElementById("offline").hidden = false;
    throw new Error("The server does not answer.");
  }
  document.getElementById("offline").hidden = true;
  const body = await response.clone().json().catch(async () => ({ error: response.ok ? null : (await response.text()).slice(0, 300) }));
  if (!response.ok) throw new Error(body.error ?? `The server answered ${response.status}.`);
  return body;
}

/** Call `work` now and again `seconds` after each end while the page is visible; returns a function that stops it. */
export function repeat(seconds, work) {
  let stopped = false, timer = 0;
  const tick = async () => {
    if (stopped) return;
    if (!document.hidden) await work().catch(() => {});
    if (!stopped) timer = setTimeout(tick, 1000 * seconds);
  };
  tick();
  return () => { stopped = true; clearTimeout(timer); };
}

/** The text of a file. Throws an Error whose message is shown on the page. */
export async function getText(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error((await response.json().catch(() => ({}))).error ?? `The server answered ${response.status}.`);
  return response.text();
}

/** A message in place of content. */
export function notice(...text) {
  return h("p", { class: "notice" }, ...text);
}
