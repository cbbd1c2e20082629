// A search field with suggestions: arrow keys choose, Enter opens, Esc closes.

import { ask } from "./api.js";
import { h, put, say } from "./dom.js";

let fields = 0;

/**
 * `find(query, signal)` gives rows; `show(row)` their content; `choose(row)` is called with one of them, and
 * `enter(text)`, if there is one, with a text that nobody suggested.
 */
export function searchField({ label, hint, find, show, choose, enter }) {
  const id = `search-${++fields}`;
  let rows = [];
  let active = -1;
  let running = null;
  let timer = 0;
  const list = h("ul", { id: `${id}-list`, role: "listbox", "aria-label": label, hidden: true });
  const input = h("input", {
    id,
    type: "search",
    role: "combobox",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": `${id}-list`,
    placeholder: hint,
    maxlength: 256,
  });

  function close() {
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function mark(place) {
    active = place;
    [...list.children].forEach((row, at) => row.setAttribute("aria-selected", at === place));
    const row = list.children[place];
    if (row) {
      input.setAttribute("aria-activedescendant", row.id);
      row.scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  }

  function take(row) {
    close();
    input.value = "";
    choose(row);
  }

  function fill(found) {
    rows = found;
    put(
      list,
      rows.map((row, at) =>
        h(
          "li",
          {
            id: `${id}-${at}`,
            role: "option",
            "aria-selected": "false",
            onmousedown: (event) => event.preventDefault(),
            onclick: () => take(row),
          },
          show(row),
        ),
      ),
      !rows.length && h("li", { class: "none", role: "option", "aria-disabled": "true" }, "Nothing found"),
    );
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    mark(-1);
    say(rows.length ? `${rows.length} suggestions` : "Nothing found");
  }

  async function look() {
    running?.abort();
    const mine = (running = new AbortController());
    try {
      const found = await find(input.value, mine.signal);
      if (running === mine && document.activeElement === input) fill(found);
    } catch (error) {
      if (error.name !== "AbortError") say(error.message);
    }
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, 120);
  });
  input.addEventListener("focus", look);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) return void look();
      const step = event.key === "ArrowDown" ? 1 : -1;
      if (rows.length) mark((active + step + rows.length + (active < 0 && step < 0 ? 1 : 0)) % rows.length);
    } else if (event.key === "Enter") {
      clearTimeout(timer);
      if (active >= 0) take(rows[active]);
      else if (enter && input.value.trim()) {
        const text = input.value.trim();
        close();
        input.value = "";
        enter(text);
      } else if (rows.length && input.value.trim()) take(rows[0]);
    } else if (event.key === "Escape") {
      if (list.hidden) input.value = "";
      close();
    }
  });
  return h("div", { class: "search" }, h("label", { for: id }, label), h("div", { class: "field" }, input, list));
}

/** Items by title or id. */
export const findItems = async (query, signal) =>
  (await ask(`/v1/items?limit=12&query=${encodeURIComponent(query)}`, { signal })).items;

/** Users by the beginning of their id. */
export const findUsers = async (query, signal) =>
  (await ask(`/v1/users?limit=12&query=${encodeURIComponent(query)}`, { signal })).users;
