// A user: what they have beside what they are offered, by one model or two, with reasons.

import { ask } from "./api.js";
import { box, counted, failure, h, link, nothing, put, skeleton } from "./dom.js";
import { reasons, row, rows, score } from "./lists.js";
import { findUsers, searchField } from "./search.js";

const BASES = {
  model: ["Trained", "The vector of training: no event has come that it does not know."],
  events: ["Moved by events", "Folded in with what the user did since the training."],
  popularity: ["Popular items", "Nothing is known about the user, so these are popular items."],
};

function field() {
  const go = (id) => (location.hash = link("user", id));
  return searchField({
    label: "Find a user",
    hint: "Beginning of an id",
    find: findUsers,
    show: (found) => [h("bdi", {}, String(found.user)), h("span", { class: "note" }, counted(found.items, "item"))],
    choose: (found) => go(found.user),
    enter: go,
  });
}

async function start(page, signal) {
  const some = h("div", {}, skeleton(2));
  put(
    page,
    h("h1", {}, "User"),
    h("p", { class: "lead" }, "See what a user has, what the model offers them, and why."),
    field(),
    h("h2", { class: "small" }, "Some users"),
    some,
  );
  const { users } = await ask("/v1/users?limit=16", { signal });
  put(
    some,
    h(
      "ul",
      { class: "chips" },
      users.map(({ user, items }) =>
        h("li", {}, h("a", { href: link("user", user) }, h("bdi", {}, String(user)), h("span", { class: "note" }, counted(items, "item")))),
      ),
    ),
  );
  return "User";
}

function history(user) {
  const events = user.events.map((card) => row(card, { tag: card.kind }));
  const items = user.items.map((card) => row(card));
  if (!events.length && !items.length) {
    return nothing("Nothing is known about this user yet. Their first event shows here, and changes the list at once.");
  }
  return [
    events.length > 0 && h("h3", {}, `Since the training: ${counted(user.n_events, "event")}`),
    events.length > 0 && rows("Events, newest first", events, false),
    items.length > 0 && h("h3", {}, `In the training: ${counted(user.n_items, "item")}`),
    items.length > 0 && rows("Items of the training", items, false),
    user.n_items > items.length && h("p", { class: "hint" }, `The first ${items.length} are shown.`),
  ];
}

function offered(list, shared, both) {
  const [basis, meaning] = BASES[list.basis] ?? [list.basis, ""];
  const best = Math.max(...list.items.map((card) => card.score), 0);
  const remark = both && shared.size ? `${shared.size} of ${list.items.length} in both lists` : null;
  return box(
    h("bdi", {}, list.model),
    h("p", { class: "facts" }, h("span", { class: "chip", title: meaning }, basis), remark && h("span", { class: "note" }, remark)),
    list.items.length
      ? rows(
          `List of ${list.model}`,
          list.items.map((card) =>
            row(card, {
              rank: card.rank,
              remark: reasons(card),
              tag: both && !shared.has(String(card.item)) ? "only here" : null,
              end: score(card.score, best),
            }),
          ),
        )
      : nothing("There is no item left to offer."),
  );
}

export async function show(page, { id, signal }) {
  if (!id) return start(page, signal);
  const past = h("div", {}, skeleton(8));
  const lists = h("div", { class: "lists" }, skeleton(8));
  const summary = h("p", { class: "lead" }, "…");
  const again = h("button", { type: "button" }, "Refresh");
  put(
    page,
    h("div", { class: "head" }, h("h1", {}, "User ", h("bdi", {}, id)), again),
    summary,
    field(),
    h("div", { class: "side" }, lists, h("div", { class: "past" }, box("History", h("div", { class: "tall", tabindex: "0", role: "region", "aria-label": "History" }, past)))),
  );
  const address = `/v1/users/${encodeURIComponent(id)}`;

  async function fill() {
    const [user, found] = await Promise.all([ask(address, { signal }), ask(`${address}/lists?k=12`, { signal })]);
    summary.textContent = user.known
      ? `${counted(user.n_items, "item")} in the training, ${counted(user.n_events, "event")} since.`
      : user.n_events
        ? `Not in the training; ${counted(user.n_events, "event")} since.`
        : "Not in the training, and without events.";
    put(past, history(user));
    const sets = found.lists.map((list) => new Set(list.items.map((card) => String(card.item))));
    const shared = new Set([...sets[0]].filter((item) => sets.every((set) => set.has(item))));
    const both = sets.length > 1;
    lists.classList.toggle("two", both);
    put(lists, found.lists.map((list) => offered(list, shared, both)));
  }

  again.addEventListener("click", () => fill().catch((error) => put(lists, failure(error, fill))));
  await fill();
  return `User ${id}`;
}
