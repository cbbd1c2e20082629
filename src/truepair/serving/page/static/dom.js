// Elements from text. Everything that comes from the service becomes a text node or an attribute, never HTML.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("aria-")) element.setAttribute(name, String(value));
    else if (value === false) continue;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

/** An HTML element with attributes (`onclick` adds a listener) and children. */
export const h = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);

/** The same in SVG. */
export const svg = (tag, attributes, ...children) =>
  filled(document.createElementNS(SVG, tag), attributes, children);

/** Replace what is in an element. */
export function put(element, ...children) {
  element.replaceChildren();
  return filled(element, {}, children);
}

/** Let a screen reader say something. */
export function say(text) {
  document.getElementById("status").textContent = text;
}

const whole = new Intl.NumberFormat("en");

/** A readable number: 12,345; 0.1234; 12.3. */
export function number(value, digits) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value) && digits === undefined) return whole.format(value);
  const size = Math.abs(value);
  return value.toFixed(digits ?? (size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3));
}

/** `1 item`, `3 items`. */
export const counted = (n, noun, plural = `${noun}s`) => `${number(n)} ${n === 1 ? noun : plural}`;

/** The name of an item: its title, else its id. Text of any direction keeps to itself. */
export const named = (card) => h("bdi", {}, card.title ?? String(card.item));

/** An address within the page. */
export const link = (view, id) => `#/${view}/${encodeURIComponent(String(id))}`;

/** Grey bars where rows will be. */
export function skeleton(rows = 6, label = "Loading") {
  return h(
    "div",
    { class: "skeleton", role: "status", "aria-label": label },
    Array.from({ length: rows }, () => h("div", { class: "bone" })),
  );
}

/** What to do when something failed. */
export function failure(error, again) {
  const text = error?.message || "Something failed.";
  return h(
    "div",
    { class: "notice alarm", role: "alert" },
    h("p", {}, text),
    again && h("button", { type: "button", onclick: again }, "Try again"),
  );
}

/** What to do when there is nothing. */
export const nothing = (text, ...more) => h("div", { class: "notice" }, h("p", {}, text), more);

/** A box with a heading. */
export function box(title, ...children) {
  const id = `box-${(box.next = (box.next ?? 0) + 1)}`;
  return h("section", { class: "box", "aria-labelledby": id }, h("h2", { id }, title), children);
}

/** A table of names and values. */
export function pairs(rows, caption) {
  return h(
    "table",
    { class: "pairs" },
    h("caption", { class: "unseen" }, caption),
    h(
      "tbody",
      {},
      rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value))),
    ),
  );
}

/** A table with a header; `numeric` are the places of columns with numbers. */
export function table(caption, header, rows, numeric = []) {
  const kind = (place) => (numeric.includes(place) ? "number" : null);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, header.map((text, place) => h("th", { scope: "col", class: kind(place) }, text)))),
      h(
        "tbody",
        {},
        rows.map((row) => h("tr", {}, row.map((cell, place) => h("td", { class: kind(place) }, cell)))),
      ),
    ),
  );
}
