// The model: scores, training, settings, data, and the log of promotions.

import { ask, sure } from "./api.js";
import { interval, lines } from "./charts.js";
import { box, counted, failure, h, nothing, number, pairs, put, say, skeleton, table } from "./dom.js";

const WORDS = { ndcg: "NDCG", mrr: "MRR", map: "MAP", hit: "Hit rate", recall: "Recall", precision: "Precision" };

function metricName(name) {
  const [part, metric] = name.includes(" ") ? name.split(" ") : ["", name];
  const [kind, k] = metric.split("@");
  return [`${WORDS[kind] ?? kind}${k ? `@${k}` : ""}`, part];
}

function metrics(rows) {
  if (!rows.length) return nothing("The model file has no scores. truepair fit … --test 0.2 writes some, with intervals.");
  const most = Math.max(...rows.map((row) => row.interval?.[1] ?? row.value), 1e-9) * 1.05;
  return [
    h(
      "table",
      { class: "scores" },
      h("caption", { class: "unseen" }, "Scores of the model"),
      h("thead", {}, h("tr", {}, ["Metric", "Mean", "95% interval", ""].map((text) => h("th", { scope: "col" }, text || h("span", { class: "unseen" }, "Picture"))))),
      h(
        "tbody",
        {},
        rows.map((row) => {
          const [name, part] = metricName(row.name);
          const [low, high] = row.interval ?? [null, null];
          return h(
            "tr",
            {},
            h("th", { scope: "row" }, name, part && h("span", { class: "part" }, part)),
            h("td", { class: "number" }, number(row.value, 4)),
            h("td", { class: "number" }, low === null ? "–" : `${number(low, 4)} – ${number(high, 4)}`),
            h("td", { class: "drawn" }, interval(row.value, low, high, most)),
          );
        }),
      ),
    ),
    h("p", { class: "hint" }, "The interval is a bootstrap over users."),
  ];
}

function curves(curve, epoch) {
  if (!curve?.loss?.length) return nothing("There is no training curve: a closed form is solved, not trained, and files of earlier versions have none.");
  const epochs = (place) => `epoch ${place + 1}`;
  const parts = [["Loss", curve.loss], ...(curve.validation ? [["Validation score", curve.validation]] : [])];
  return [
    h(
      "div",
      { class: "charts" },
      parts.map(([name, values]) => {
        const place = h("div", {});
        queueMicrotask(() => lines(place, { label: `${name} by epoch`, x: epochs })([{ name, values }]));
        return h("figure", {}, h("figcaption", {}, name), place);
      }),
    ),
    epoch && h("p", { class: "hint" }, `The model is that of epoch ${epoch}.`),
    h(
      "details",
      {},
      h("summary", {}, "The numbers"),
      table(
        "Training by epoch",
        ["Epoch", ...parts.map(([name]) => name)],
        curve.loss.map((_, at) => [at + 1, ...parts.map(([, values]) => number(values[at], 4))]),
        [0, 1, 2],
      ),
    ),
  ];
}

const shown = (value) =>
  value === null || value === undefined ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value);

function automatic(found) {
  if (!found) return nothing("All settings were given or are defaults: nothing was searched for.");
  if (found.skipped) return nothing(`Automatic settings were skipped, and fixed ones used: ${found.skipped}`);
  const trials = found.trials ?? [];
  const names = [...new Set(trials.flatMap((trial) => Object.keys(trial)))].filter((name) => name !== "seconds");
  const best = Math.max(...trials.map((trial) => trial.score ?? -Infinity));
  return [
    h("p", {}, `${counted(trials.length, "run")} on held-out pairs chose by ${found.metric ?? "the metric"}, in ${number(found.seconds ?? 0, 0)} s.`),
    pairs(Object.entries(found.chosen ?? {}).map(([name, value]) => [name, shown(value)]), "Chosen settings"),
    trials.length > 0 &&
      h(
        "details",
        {},
        h("summary", {}, "All runs"),
        table(
          "Runs of the automatic choice",
          names,
          trials.map((trial) => names.map((name) => (name === "score" && trial.score === best ? h("strong", {}, shown(trial[name])) : shown(trial[name])))),
          names.map((_, at) => at),
        ),
      ),
    found.repeat && h("p", { class: "hint" }, "To repeat without the search:"),
    found.repeat && h("pre", { tabindex: "0" }, h("code", {}, found.repeat)),
  ];
}

function time(text) {
  const moment = new Date(text);
  return Number.isNaN(moment.getTime()) ? String(text) : moment.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
}

function duration(seconds) {
  const units = [[86_400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
  const [size, unit] = units.find(([one]) => seconds >= one) ?? [1, "second"];
  return counted(Number((seconds / size).toPrecision(3)), unit);
}

const span = (one) => (one ? `${number(one.mean, 4)} [${number(one.low, 4)}, ${number(one.high, 4)}]` : "–");

function decision(one) {
  const facts = [
    ["Candidate", one.candidate && span(one.candidate)],
    ["Running", one.running && span(one.running)],
    ["Difference", one.difference && span(one.difference)],
    ["Best before", one.best_score && `${span(one.best_score)}, version ${one.best}`],
    ["p", one.p === null || one.p === undefined ? null : number(one.p, 3)],
    ["Users judged", one.people],
    ["Users needed", one.needed],
    ["Margin", one.margin === null || one.margin === undefined ? null : `${+(100 * one.margin).toFixed(1)}%`],
    ["New events", one.new_events],
    ["Judged by events", one.judged_events],
    ["Seconds", one.seconds === null || one.seconds === undefined ? null : number(one.seconds, 1)],
  ].filter(([, value]) => value !== null && value !== undefined);
  return h(
    "li",
    {},
    h(
      "p",
      { class: "facts" },
      h("span", { class: `chip ${one.decision === "failed" || one.decision === "refused" ? "alarm" : ""}` }, one.decision),
      one.version !== null && one.version !== undefined && h("span", {}, `version ${one.version}`),
      h("time", { class: "note", datetime: one.time }, time(one.time)),
    ),
    h("p", {}, one.reason),
    facts.length > 0 && h("details", {}, h("summary", {}, one.metric ? `The numbers, ${one.metric}` : "The numbers"), pairs(facts.map(([name, value]) => [name, shown(value)]), "Numbers of the decision")),
  );
}

async function promotions(place, signal, logged) {
  const none = "This service does not retrain its model. truepair serve --retrain 6h does, and logs each decision here.";
  if (!logged) return void put(place, nothing(none));
  let found;
  try {
    found = await ask("/v1/model/decisions", { signal });
  } catch (error) {
    if (error.name === "AbortError") return;
    put(place, error.status === 404 ? nothing(none) : failure(error));
    return;
  }
  const running = found.running ?? {};
  const planned = [
    running.every_seconds && `every ${duration(running.every_seconds)}`,
    running.every_events && `after ${counted(running.every_events, "new event")}`,
  ].filter(Boolean);
  const facts = [
    ["Served", running.version === 0 ? "the model file" : `version ${shown(running.version)}`],
    ["Retraining", planned.join(", ") || "none is planned: start with --retrain 6h"],
    ["Takes over", running.margin === undefined ? null : `a candidate that loses less than ${+(100 * running.margin).toFixed(1)}% of the score, against the served and the best former model`],
    ["Next", running.next ? time(running.next) : null],
    ["Now", running.training ? "a candidate is being trained" : null],
    ["Trainings since the start", running.trainings],
    ["Failed trainings", running.failures],
  ].filter(([, value]) => value !== null && value !== undefined);
  const former = (running.versions ?? []).length > 1;
  const back = h("button", { type: "button", disabled: !former }, "Roll back");
  back.addEventListener("click", async () => {
    const agreed = await sure("Roll back?", "The former model is served from the next request on. An admin token is needed where there are tokens.", "Roll back");
    if (!agreed) return;
    try {
      await ask("/v1/model/rollback", { body: {}, elevate: true, signal });
      say("Rolled back");
      await promotions(place, signal, true);
    } catch (error) {
      place.prepend(failure(error));
    }
  });
  put(
    place,
    pairs(facts.map(([name, value]) => [name, shown(value)]), "What is served"),
    h("p", { class: "buttons" }, back, !former && h("span", { class: "hint" }, "There is no former model.")),
    found.decisions?.length ? h("ol", { class: "log", "aria-label": "Decisions, newest first" }, found.decisions.map(decision)) : nothing("No decision yet: the first one follows the first retraining."),
  );
}

export async function show(page, { signal }) {
  put(page, h("h1", {}, "Model"), skeleton(10));
  const found = await ask("/v1/model", { signal });
  const facts = found.facts ?? {};
  const log = h("div", { class: "spaced" }, skeleton(3));
  const settings = Object.entries(found.parameters ?? {}).map(([name, value]) => [name, shown(value)]);
  const data = [
    ["Users", number(found.users)],
    ["Items", number(found.items)],
    ["Pairs", number(found.pairs)],
    ["Density", `${number((100 * found.pairs) / Math.max(found.users * found.items, 1), 2)}%`],
    ["User ids", found.user_ids],
    ["Item ids", found.item_ids],
    ...(facts.dislikes ? [["Dislikes", number(facts.dislikes)]] : []),
    ...Object.entries(facts.weights ?? {}).map(([name, value]) => [`Weight, ${name}`, number(value)]),
    ...(facts.updates?.length ? [["Updates", number(facts.updates.length)]] : []),
    ["Kinds of events", Object.entries(found.kinds ?? {}).map(([kind, weight]) => `${kind} ${weight}`).join(", ")],
    ["Columns of the item table", found.item_columns?.join(", ") ?? "no table: start with --items TABLE for titles"],
  ];
  const figure = (value, name) => h("div", { class: "figure" }, h("dd", {}, value), h("dt", {}, name));
  const used = found.parameters ?? {};
  put(
    page,
    h("h1", {}, "Model"),
    h("p", { class: "lead" }, h("bdi", {}, found.name ?? "")),
    h(
      "dl",
      { class: "figures" },
      figure(number(found.users), "users"),
      figure(number(found.items), "items"),
      figure(number(found.pairs), "pairs"),
      figure(String(used.encoder ?? "–"), "encoder"),
      facts.engine && figure(facts.engine, "engine"),
    ),
    h(
      "div",
      { class: "split" },
      h("div", { class: "stack" }, box("Scores", metrics(facts.metrics ?? [])), box("Training", curves(facts["training curve"], facts.epoch)), box("Promotions", log)),
      h(
        "div",
        { class: "stack" },
        box("Chosen automatically", automatic(facts.automatic)),
        box("Data", pairs(data, "Facts about the data"), facts.reading && h("details", {}, h("summary", {}, "Reading"), h("ul", {}, facts.reading.map((step) => h("li", {}, step))))),
        box("Settings", h("details", {}, h("summary", {}, counted(settings.length, "setting")), pairs(settings, "Settings in effect"))),
        box("Versions", pairs(Object.entries(facts.versions ?? {}).map(([name, value]) => [name, shown(value)]), "Versions of packages")),
      ),
    ),
  );
  promotions(log, signal, found.decisions);
  return "Model";
}
