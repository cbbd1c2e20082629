// Small charts in SVG, drawn for the width that they have.

import { h, number, put, svg } from "./dom.js";

const LEFT = 44;
const BOTTOM = 20;
const TOP = 8;

/** Round steps between low and high, about three. */
function ticks(low, high) {
  const span = high - low || Math.abs(high) || 1;
  const power = 10 ** Math.floor(Math.log10(span / 3));
  const step = [1, 2, 5, 10].map((times) => times * power).find((one) => span / one <= 4) ?? power * 10;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(Math.abs(at) < step / 1e6 ? 0 : at);
  return found;
}

/**
 * A chart of lines: `series` are {name, values}, null where there is none; `x(place)` names a place. It fills
 * the element `into`, and returns a function that draws it anew with other series.
 */
export function lines(into, { label, x, tall = 150, zero = false }) {
  let now = [];
  const key = h("p", { class: "key" });
  const frame = h("div", { class: "chart" });
  put(into, frame, key);

  function draw() {
    const wide = frame.clientWidth || 320;
    const every = now.flatMap((one) => one.values).filter((value) => value !== null && Number.isFinite(value));
    const n = Math.max(...now.map((one) => one.values.length), 2);
    let low = every.length ? Math.min(...every) : 0;
    let high = every.length ? Math.max(...every) : 1;
    if (zero) low = Math.min(0, low);
    if (high - low < 1e-12) high = low + (zero ? 1 : Math.abs(low) * 0.1 || 1);
    if (zero) high = ticks(low, high * 1.34).findLast((tick) => tick < high * 1.34 && tick >= high) ?? high * 1.05;
    const px = (place) => LEFT + (place / (n - 1)) * (wide - LEFT - 6);
    const py = (value) => TOP + (1 - (value - low) / (high - low)) * (tall - TOP - BOTTOM);
    const grid = ticks(low, high).map((value) => [
      svg("line", { x1: LEFT, x2: wide - 6, y1: py(value), y2: py(value), class: "grid" }),
      svg("text", { x: LEFT - 6, y: py(value) + 4, class: "tick end" }, String(Number(value.toPrecision(3)))),
    ]);
    const paths = now.map((one, at) => {
      let path = "";
      let pen = false;
      one.values.forEach((value, place) => {
        const there = value !== null && Number.isFinite(value);
        if (there) path += `${pen ? "L" : "M"}${px(place).toFixed(1)} ${py(value).toFixed(1)}`;
        pen = there;
      });
      return svg("path", { d: path || "M0 0", class: `line line-${at}` });
    });
    const last = every.length ? now.map((one) => `${one.name} ${number(one.values.findLast((v) => v !== null))}`).join(", ") : "no values yet";
    put(
      frame,
      svg(
        "svg",
        { viewBox: `0 0 ${wide} ${tall}`, width: wide, height: tall, role: "img", "aria-label": `${label}: ${last}` },
        grid,
        svg("text", { x: LEFT, y: tall - 4, class: "tick" }, x(0)),
        svg("text", { x: wide - 6, y: tall - 4, class: "tick end" }, x(n - 1)),
        paths,
      ),
    );
    put(key, now.length > 1 && now.map((one, at) => h("span", { class: `name-${at}` }, one.name)));
  }

  const watch = new ResizeObserver(() => frame.isConnected && draw());
  watch.observe(into);
  return (series) => {
    now = series;
    draw();
  };
}

/** A value within its interval, on a scale from 0 to `most`. */
export function interval(value, low, high, most) {
  const part = (name, from, to) => {
    const found = h("span", { class: name });
    found.style.insetInlineStart = `${(100 * Math.max(0, from)) / most}%`;
    if (to !== undefined) found.style.inlineSize = `${(100 * (to - from)) / most}%`;
    return found;
  };
  return h("span", { class: "interval", "aria-hidden": "true" }, low !== null && part("span", low, high), part("dot", value));
}
