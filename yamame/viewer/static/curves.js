// The Curves view.
import { notice } from "./dom.js";

export async function mount(element) {
  element.append(notice("Not yet."));
}
