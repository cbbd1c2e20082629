// The service, live: a question every two seconds, the last four minutes as charts.

import { ask } from "./api.js";
import { lines } from "./charts.js";
import { box, failure, h, number, pairs, put, skeleton, table } from "./dom.js";

const EVERY = 2000;
const KEPT = 120;
const FIRST = 30; // points that a chart has room for at the start

/** The time (ms) that a share of requests did not exceed, from how many were at most each bound. */
export function quantile(share, bounds, counts) {
  const total = counts.at(-1) ?? 0;
  if (!total) return null;
  const wanted = share * total;
  const at = counts.findIndex((count) => count >= wanted);
  const low = at > 0 ? bounds[at - 1] : 0;
  const high = bounds[at] ?? low;
  const before = at > 0 ? counts[at - 1] : 0;
  const inside = counts[at] - before;
  return 1000 * (low + (high - low) * (inside ? (wanted - before) / inside : 1));
}

const less = (now, before) => now.map((count, at) => count - (before[at] ?? 0));

/** What happened between two answers of the service. */
function between(now, before) {
  const seconds = now.seconds - before.seconds;
  const counts = less(now.latency.counts, before.latency.counts);
  const products = now.gathered.products - before.gathered.products;
  return {
    requests: (now.requests - before.requests) / seconds,
    errors: (now.refused + now.failed - before.refused - before.failed) / seconds,
    p50: quantile(0.5, now.latency.bounds, counts),
    p99: quantile(0.99, now.latency.bounds, counts),
    events: ((now.events.stored ?? 0) - (before.events.stored ?? 0)) / seconds,
    gathered: products ? (now.gathered.requests - before.gathered.requests) / products : null,
  };
}

function uptime(seconds) {
  const parts = [[86_400, "d"], [3600, "h"], [60, "min"]];
  for (const [size, unit] of parts) if (seconds >= size) return `${number(Math.floor(seconds / size))} ${unit}`;
  return `${Math.floor(seconds)} s`;
}

const ago = (seconds) => (seconds < 120 ? `${Math.round(seconds)} s ago` : `${Math.floor(seconds / 60)} min ago`);

export async function show(page, { signal }) {
  put(page, h("h1", {}, "Service"), skeleton(8));
  let before = await ask("/v1/service", { signal });
  const past = [];
  let shown = FIRST;
  const tiles = h("dl", { class: "figures" });
  const state = h("p", { class: "lead" });
  const routes = h("div", {});
  const inside = h("div", {});
  const alarm = h("div", {});
  const charts = [
    ["Requests a second", ["requests", "errors"], ["requests", "errors"], {}],
    ["Latency in ms", ["p50", "p99"], ["p50", "p99"], {}],
    ["Events a second", ["events"], ["events"], {}],
    ["Lists in one product", ["gathered"], ["lists"], {}],
  ].map(([name, keys, names, options]) => {
    const place = h("div", {});
    const figure = h("figure", { class: "box" }, h("figcaption", {}, name), place);
    return { name, keys, names, options, place, figure };
  });
  put(
    page,
    h("h1", {}, "Service"),
    state,
    alarm,
    tiles,
    h("div", { class: "charts" }, charts.map((one) => one.figure)),
    h("div", { class: "split" }, box("Requests by address", routes), box("Inside", inside)),
  );
  for (const one of charts) {
    one.draw = lines(one.place, {
      label: one.name,
      zero: true,
      tall: 130,
      x: (place) => (place === 0 ? ago((EVERY * shown) / 1000) : "now"),
      ...one.options,
    });
  }

  function fill(now) {
    const last = past.at(-1) ?? {};
    const tile = (value, name, alert) => h("div", { class: `figure ${alert ? "alarm" : ""}` }, h("dd", {}, value), h("dt", {}, name));
    state.textContent = `Running for ${uptime(now.seconds)}; ${number(now.requests)} requests, without those of this page's own watching.`;
    put(
      tiles,
      tile(number(last.requests ?? 0, 1), "requests/s"),
      tile(number(last.p50, 1), "ms, p50"),
      tile(number(last.p99, 1), "ms, p99"),
      tile(number(now.events.stored ?? 0), "events stored"),
      tile(number(now.refused), "refused, 4xx"),
      tile(number(now.failed), "failed, 5xx", now.failed > 0),
    );
    shown = Math.max(FIRST, past.length);
    for (const one of charts) {
      const pad = Array(Math.max(shown - past.length, 0)).fill(null);
      one.draw(one.keys.map((key, at) => ({ name: one.names[at], values: [...pad, ...past.map((point) => point[key])] })));
    }
    put(
      routes,
      table(
        "Requests by address",
        ["Address", "Requests", "Refused", "Failed", "Mean ms"],
        now.routes.map((row) => [h("code", {}, row.route), number(row.requests), number(row.refused), number(row.failed), number(row.mean_ms, 2)]),
        [1, 2, 3, 4],
      ),
    );
    put(
      inside,
      pairs(
        [
          ["Products of lists", number(now.gathered.products)],
          ["Lists in one product, mean", number(now.gathered.products ? now.gathered.requests / now.gathered.products : 0, 2)],
          ["Users folded in", number(now.fold_ins)],
          ["Events stored", number(now.events.stored ?? 0)],
          ["Events that came twice", number(now.events.repeated ?? 0)],
          ["Failed readings of the store", number(now.store_failures)],
          ...now.others.map((one) => [h("span", { title: one.about }, one.name), number(one.value)]),
        ],
        "Inside the service",
      ),
    );
  }

  fill(before);
  const timer = setInterval(async () => {
    if (document.hidden) return;
    try {
      const now = await ask("/v1/service", { signal, quiet: true });
      if (now.seconds <= before.seconds) past.length = 0; // the service was started anew
      else past.push(between(now, before));
      if (past.length > KEPT) past.shift();
      before = now;
      put(alarm);
      fill(now);
    } catch (error) {
      if (error.name !== "AbortError") put(alarm, failure(error));
    }
  }, EVERY);
  signal.addEventListener("abort", () => clearInterval(timer));
  return "Service";
}
