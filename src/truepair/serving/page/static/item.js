// An item: facts, neighbours, audience, and its place on the map of the catalogue.

import { ask } from "./api.js";
import { box, counted, failure, h, link, named, nothing, number, pairs, put, skeleton } from "./dom.js";
import { row, rows, score } from "./lists.js";
import { catalogueMap } from "./map.js";
import { findItems, searchField } from "./search.js";

function field() {
  return searchField({
    label: "Find an item",
    hint: "Words of a title, or the beginning of an id",
    find: findItems,
    show: (card) => [named(card), h("span", { class: "note" }, counted(card.people, "user"))],
    choose: (card) => (location.hash = link("item", card.item)),
  });
}

const percent = (share) => `${number(share * 100, share < 0.1 ? 1 : 0)}%`;

async function mapInto(place, signal, id, near) {
  try {
    put(place, await catalogueMap({ signal, id, near }));
  } catch (error) {
    if (error.name === "AbortError") return;
    const none = error.status === 422;
    put(place, none ? nothing(`There is no map of this model: ${error.message}`) : failure(error));
  }
}

function trendingNow({ items, half_life: halfLife }) {
  const times = (card) => h("p", { class: "why" }, `${number(card.times, 1)} times as likely as over all time`);
  return box(
    "Trending now",
    h("p", { class: "under" }, `By events that count half as much after ${halfLife}.`),
    rows("Trending now", items.map((card, at) => row(card, { rank: at + 1, remark: times(card) }))),
  );
}

async function start(page, signal) {
  const place = h("div", {}, skeleton(8, "Drawing the map"));
  const top = h("div", {}, skeleton(8));
  const trending = h("div", {});
  put(
    page,
    h("h1", {}, "Item"),
    h("p", { class: "lead" }, "Look at the catalogue as the model sees it: what is alike is near."),
    field(),
    h("div", { class: "split wide" }, box("Map of the catalogue", place), h("div", { class: "stack" }, trending, box("Most popular", top))),
  );
  const mapped = mapInto(place, signal);
  const [{ items }, now] = await Promise.all([ask("/v1/items?limit=12", { signal }), ask("/v1/trending?k=8", { signal })]);
  if (now.items.length) put(trending, trendingNow(now));
  const best = Math.max(...items.map((card) => card.people), 0);
  put(top, rows("Most popular items", items.map((card, at) => row(card, { rank: at + 1, end: score(card.people, best, "Users") }))));
  await mapped;
  return "Item";
}

function audience(found) {
  const { people, asked, some, also } = found.audience;
  if (!people) return nothing("No user has this item in the training.");
  return [
    h("p", {}, `${counted(people, "user has", "users have")} it. `, some.length < people && "Some of them, sampled at random:"),
    h(
      "ul",
      { class: "chips" },
      some.map((user) => h("li", {}, h("a", { href: link("user", user) }, h("bdi", {}, String(user))))),
    ),
    also.length > 0 && h("h3", {}, "They also have, more often than others"),
    asked < people && h("p", { class: "hint" }, `Counted over ${counted(asked, "user")} of them, sampled at random.`),
    also.length > 0 &&
      rows(
        "What they also have",
        also.map((card) =>
          row(card, {
            remark: h("p", { class: "why" }, `${percent(card.share)} of them, ${percent(card.overall)} of all users`),
          }),
        ),
        false,
      ),
  ];
}

export async function show(page, { id, signal }) {
  if (!id) return start(page, signal);
  put(page, h("h1", {}, "Item"), field(), skeleton(10));
  let found;
  try {
    found = await ask(`/v1/items/${encodeURIComponent(id)}`, { signal });
  } catch (error) {
    if (error.status !== 404) throw error;
    put(page, h("h1", {}, "Item ", h("bdi", {}, id)), field(), nothing("The model does not know this item. Search for another one above."));
    return "Unknown item";
  }
  const facts = Object.entries(found.facts).map(([name, value]) => [h("bdi", {}, name), h("bdi", {}, String(value))]);
  const place = h("div", {}, skeleton(6, "Drawing the map"));
  const best = Math.max(...found.neighbours.map((card) => card.score), 0);
  const rank = found.more_popular + 1;
  put(
    page,
    h(
      "div",
      { class: "head" },
      found.picture && h("img", { class: "large", src: found.picture, alt: "", referrerpolicy: "no-referrer", onerror: (event) => event.target.remove() }),
      h("h1", {}, named(found), found.hidden && h("span", { class: "tag" }, "hidden")),
      h("a", { class: "button", href: `#/try?liked=${encodeURIComponent(String(found.item))}` }, "Try it"),
    ),
    h("p", { class: "lead" }, `${counted(found.people, "user has", "users have")} it: number ${number(rank)} of ${number(found.of)} by popularity.`),
    field(),
    h(
      "div",
      { class: "split" },
      h(
        "div",
        { class: "stack" },
        box(
          "Neighbours",
          h("p", { class: "under" }, "What the model takes to be most like it."),
          found.neighbours.length
            ? rows("Neighbours", found.neighbours.map((card, at) => row(card, { rank: at + 1, end: score(card.score, best, "Similarity") })))
            : nothing("The model has no neighbours for this item: it was not trained with a pair of it, or has no vectors."),
        ),
        box("Facts", pairs([["Id", h("bdi", {}, String(found.item))], ...facts], "Facts about the item")),
      ),
      h("div", { class: "stack" }, box("Place on the map", place), box("Audience", audience(found))),
    ),
  );
  mapInto(place, signal, String(found.item), found.neighbours.map((card) => String(card.item)));
  return found.title ?? `Item ${found.item}`;
}
