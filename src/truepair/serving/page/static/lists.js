// Rows of items: rank, picture, title, reasons, score. Arrow keys walk through a list.

import { h, link, named, number } from "./dom.js";

function picture(card) {
  if (!card.picture) return null;
  return h("img", {
    class: "picture",
    src: card.picture,
    alt: "",
    loading: "lazy",
    referrerpolicy: "no-referrer",
    width: 40,
    height: 56,
    onerror: (event) => event.target.remove(),
  });
}

/** `because of A, B and C`, each a link. */
export function reasons(card) {
  const cards = (card.because ?? []).filter((one) => one.weight > 0);
  if (!cards.length) return null;
  const parts = [];
  cards.forEach((one, at) => {
    if (at) parts.push(at === cards.length - 1 ? " and " : ", ");
    parts.push(h("a", { href: link("item", one.item), title: `weight ${number(one.weight)}` }, named(one)));
  });
  return h("p", { class: "why" }, "because of ", parts);
}

/** One row; `remark` is content below the title, `end` at the end of the row. */
export function row(card, { rank, remark, end, tag } = {}) {
  return h(
    "li",
    {},
    rank !== undefined && h("span", { class: "rank", "aria-label": `Rank ${rank}` }, rank),
    picture(card),
    h(
      "div",
      { class: "body" },
      h("a", { class: "title", href: link("item", card.item) }, named(card)),
      tag && h("span", { class: "tag" }, tag),
      remark,
    ),
    end,
  );
}

/** A score as a number over a bar. */
export function score(value, best, label = "Score") {
  const share = best > 0 ? Math.max(0, Math.min(1, value / best)) : 0;
  const bar = h("span", { class: "level" }, h("span", {}));
  bar.firstChild.style.inlineSize = `${Math.round(share * 100)}%`;
  return h("span", { class: "score" }, h("span", { class: "unseen" }, `${label} `), number(value), bar);
}

/** A list of rows. Up, Down, Home and End move between the titles. */
export function rows(label, children, ordered = true) {
  const list = h(ordered ? "ol" : "ul", { class: "rows", "aria-label": label }, children);
  list.addEventListener("keydown", (event) => {
    const titles = [...list.querySelectorAll(":scope > li a.title")];
    const here = titles.findIndex((title) => title.closest("li") === event.target.closest("li"));
    const places = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: titles.length - 1 };
    const next = titles[places[event.key]];
    if (here < 0 || !(event.key in places)) return;
    event.preventDefault();
    next?.focus();
  });
  return list;
}
