// Notes and tags of a run: the only thing that the page writes.
import { getJson, h, putJson } from "./dom.js";

const MAX_TEXT = 10000;

/** A card to read and write them; `close` saves what was typed. */
export async function notesCard(runId, isReadOnly) {
  const path = `/api/runs/${encodeURIComponent(runId)}/notes`;
  const text = h("textarea", { rows: 5, maxlength: MAX_TEXT, "aria-label": "Note", placeholder: "What was tried, and what came of it" });
  const tags = h("input", { type: "text", "aria-label": "Tags", placeholder: "baseline, paper" });
  const save = h("button", { type: "submit", class: "button main" }, "Save"), state = h("span", { class: "soft", role: "status" });
  let saved = { text: "", tags: [], version: "" };
  const tagList = () => [...new Set(tags.value.split(",").map((tag) => tag.trim()).filter(Boolean))];
  const isChanged = () => text.value !== saved.text || tagList().join(",") !== saved.tags.join(",");
  const show = (notes) => { saved = notes; text.value = notes.text; tags.value = notes.tags.join(", "); onInput(); };
  const onInput = () => { save.disabled = !isChanged(); state.textContent = ""; };
  const write = async () => {
    if (save.disabled) return;
    save.disabled = true;
    try {
      show(await putJson(path, { text: text.value, tags: tagList(), version: saved.version }));
      state.textContent = "saved";
    } catch (problem) {
      save.disabled = false;
      state.textContent = problem.message;
    }
  };
  text.disabled = tags.disabled = isReadOnly;
  for (const field of [text, tags]) field.addEventListener("input", onInput);
  const form = h("form", { class: "notes", onsubmit: (event) => { event.preventDefault(); write(); },
    onkeydown: (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) write(); } },
    h("label", {}, "Tags, with commas between them", tags), h("label", {}, "Note", text),
    isReadOnly ? h("p", { class: "soft" }, "Read only: a shared policy, or the viewer was started with --read-only.") : h("div", { class: "save" }, save, state));
  try {
    show(await getJson(path));
  } catch (problem) {
    state.textContent = problem.message;
    onInput();
  }
  return { element: h("section", { class: "card part" }, h("h2", {}, "Notes"), form), close: () => { if (!isReadOnly && isChanged()) write(); } };
}
