// Try it: pick items, like or dislike them, and watch the list change.

import { ask } from "./api.js";
import { box, failure, h, link, named, nothing, put, say, skeleton } from "./dom.js";
import { reasons, row, rows, score } from "./lists.js";
import { findItems, searchField } from "./search.js";

const LENGTH = 12;

/** How an item moved since the last list. */
function move(before, item, rank) {
  if (!before.size) return null;
  const was = before.get(String(item));
  if (was === undefined) return h("span", { class: "move new" }, "new");
  if (was === rank) return null;
  const up = was > rank;
  return h("span", { class: `move ${up ? "up" : "down"}` }, h("span", { "aria-hidden": "true" }, up ? "▲" : "▼"), h("span", { class: "unseen" }, up ? "up " : "down "), Math.abs(was - rank));
}

export async function show(page, { query, signal }) {
  const picked = new Map(); // id as text -> {card, liked}
  let before = new Map();
  let running = null;
  const choice = h("div", {});
  const ideas = h("div", {}, skeleton(2));
  const list = h("div", { "aria-live": "polite" }, skeleton(8));

  function remember() {
    const address = new URLSearchParams();
    for (const [id, { liked }] of picked) address.append(liked ? "liked" : "disliked", id);
    history.replaceState(null, "", `#/try${picked.size ? `?${address}` : ""}`);
  }

  function set(card, liked) {
    picked.set(String(card.item), { card, liked });
    say(`${card.title ?? card.item}: ${liked ? "liked" : "disliked"}`);
    changed();
  }

  function changed() {
    remember();
    page.classList.toggle("empty", !picked.size);
    put(
      choice,
      picked.size
        ? h(
            "ul",
            { class: "picked", "aria-label": "Your items" },
            [...picked.values()].map(({ card, liked }) =>
              h(
                "li",
                {},
                h("a", { class: "title", href: link("item", card.item) }, named(card)),
                h(
                  "span",
                  { class: "buttons", role: "group", "aria-label": card.title ?? String(card.item) },
                  h("button", { type: "button", "aria-pressed": liked, onclick: () => set(card, true) }, "Like"),
                  h("button", { type: "button", "aria-pressed": !liked, onclick: () => set(card, false) }, "Dislike"),
                  h(
                    "button",
                    {
                      type: "button",
                      class: "quiet",
                      "aria-label": `Remove ${card.title ?? card.item}`,
                      onclick: () => {
                        picked.delete(String(card.item));
                        changed();
                      },
                    },
                    "×",
                  ),
                ),
              ),
            ),
          )
        : nothing("Pick an item below or search for one. The list on the other side changes at once."),
    );
    return offer().catch((error) => error.name !== "AbortError" && put(list, failure(error, offer)));
  }

  async function offer() {
    running?.abort();
    const mine = (running = new AbortController());
    signal.addEventListener("abort", () => mine.abort());
    const by = (liked) => [...picked.values()].filter((one) => one.liked === liked).map((one) => one.card.item);
    const body = { liked: by(true), disliked: by(false), k: LENGTH, explain: 3 };
    const { items } = await ask("/v1/session/recommendations", { body, signal: mine.signal });
    const wanted = new Set(items.flatMap((one) => [one.item, ...(one.because ?? []).map((reason) => reason.item)]));
    const titles = await ask("/v1/titles", { body: { items: [...wanted] }, signal: mine.signal });
    const cards = new Map(titles.items.map((card) => [String(card.item), card]));
    const best = Math.max(...items.map((one) => one.score), 0);
    const shown = items.map((one) => ({
      ...cards.get(String(one.item)),
      ...one,
      because: (one.because ?? []).map((reason) => ({ ...cards.get(String(reason.item)), ...reason })),
    }));
    put(
      list,
      shown.length
        ? rows(
            "Your list",
            shown.map((card) =>
              row(card, { rank: card.rank, remark: reasons(card), tag: move(before, card.item, card.rank), end: score(card.score, best) }),
            ),
          )
        : nothing("There is no item left to offer."),
    );
    before = new Map(items.map((one) => [String(one.item), one.rank]));
  }

  put(
    page,
    h("h1", {}, "Try it"),
    h("p", { class: "lead" }, "Pick items; see your list. Nothing is stored."),
    h(
      "div",
      { class: "split" },
      h(
        "div",
        { class: "stack own" },
        searchField({
          label: "Add an item",
          hint: "Words of a title, or the beginning of an id",
          find: findItems,
          show: (card) => named(card),
          choose: (card) => set(card, true),
        }),
        box("Your items", choice),
      ),
      h("div", { class: "offered" }, box("Your list", list)),
      h("div", { class: "ideas" }, box("Popular items", ideas)),
    ),
  );
  const given = [...query.getAll("liked"), ...query.getAll("disliked")];
  const [popular, known] = await Promise.all([
    ask("/v1/items?limit=14", { signal }),
    given.length ? ask("/v1/titles", { body: { items: given }, signal }) : { items: [] },
  ]);
  const disliked = new Set(query.getAll("disliked"));
  for (const card of known.items) picked.set(String(card.item), { card, liked: !disliked.has(String(card.item)) });
  put(
    ideas,
    h(
      "ul",
      { class: "chips" },
      popular.items.map((card) =>
        h("li", {}, h("button", { type: "button", onclick: () => set(card, true) }, h("span", { "aria-hidden": "true" }, "+ "), h("span", { class: "unseen" }, "Like "), named(card))),
      ),
    ),
  );
  await changed();
  return "Try it";
}
