// The map of the catalogue on a canvas: zoom, drag, hover, click; arrow keys, Enter, Esc; and as text.

import { ask } from "./api.js";
import { counted, h, link, number, put, say } from "./dom.js";

let kept = null; // the map of this service: it changes only with the model

async function points(signal) {
  if (kept && Date.now() - kept.at < 60_000) return kept.found;
  const found = await ask("/v1/map", { signal });
  kept = { found, at: Date.now() };
  return found;
}

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function colours() {
  // light-dark() is resolved by the browser on a real element
  const probe = document.body.appendChild(h("span", { class: "unseen" }));
  const found = {};
  for (const name of ["ink", "muted", "accent", "surface", "line"]) {
    probe.style.color = style(`--${name}`);
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

export async function catalogueMap({ signal, id, near = [] }) {
  const map = await points(signal);
  const n = map.items.length;
  const names = map.items.map((item, at) => map.titles[at] ?? String(item));
  const most = Math.max(...map.people, 1);
  const size = map.people.map((users) => 1.6 + 4.4 * Math.sqrt(users / most));
  const place = new Map(map.items.map((item, at) => [String(item), at]));
  const own = id === undefined ? -1 : (place.get(id) ?? -1);
  const close = new Set(near.map((one) => place.get(one)).filter((at) => at !== undefined));
  const view = own < 0 ? { x: 0.5, y: 0.5, zoom: 1 } : { x: map.x[own], y: map.y[own], zoom: 2.4 };
  const home = { ...view };
  let active = own;
  let hover = -1;
  let ink = colours();
  let wide = 0;
  let tall = 0;

  const canvas = h("canvas", { "aria-hidden": "true" });
  const label = `Map of ${counted(n, "item")}. Arrow keys go to the nearest item in a direction, plus and minus zoom, Enter opens an item, Escape goes back to the start.`;
  const frame = h("div", { class: "map", tabindex: "0", role: "application", "aria-label": label }, canvas);
  const note = h("p", { class: "hint", "aria-live": "off" });
  const text = h("div", {});
  const brush = canvas.getContext("2d");

  // the axes have no meaning of their own, so the map fills the frame
  const scale = () => [wide * 0.86 * view.zoom, tall * 0.92 * view.zoom];
  const at = (i) => {
    const [sx, sy] = scale();
    return [wide / 2 + (map.x[i] - view.x) * sx, tall / 2 + (map.y[i] - view.y) * sy];
  };

  function draw() {
    const ratio = window.devicePixelRatio || 1;
    if (!wide || !tall) return;
    canvas.width = wide * ratio;
    canvas.height = tall * ratio;
    brush.setTransform(ratio, 0, 0, ratio, 0, 0);
    brush.clearRect(0, 0, wide, tall);
    const grow = Math.sqrt(view.zoom);
    const dot = (i, colour, alpha, more = 0) => {
      const [x, y] = at(i);
      brush.globalAlpha = alpha;
      brush.fillStyle = colour;
      brush.beginPath();
      brush.arc(x, y, size[i] * grow * 0.8 + more, 0, 7);
      brush.fill();
    };
    for (let i = n - 1; i >= 0; i--) if (i !== own && !close.has(i)) dot(i, own < 0 ? ink.accent : ink.muted, own < 0 ? 0.38 : 0.28);
    for (const i of close) dot(i, ink.accent, 0.75, 0.5);
    if (own >= 0) dot(own, ink.accent, 1, 2.5);
    const first = [...new Set([active, hover, own, ...close])].filter((i) => i >= 0);
    for (const i of [active, hover]) {
      if (i < 0) continue;
      const [x, y] = at(i);
      brush.globalAlpha = 1;
      brush.strokeStyle = ink.accent;
      brush.lineWidth = 2;
      brush.beginPath();
      brush.arc(x, y, size[i] * grow + 4, 0, 7);
      brush.stroke();
    }
    labels(first);
  }

  function labels(first) {
    const taken = [];
    brush.globalAlpha = 1;
    brush.textBaseline = "middle";
    let shown = 0;
    const most = Math.round(8 + (wide * tall) / 22_000);
    const order = [...first, ...Array.from({ length: Math.min(n, 600) }, (_, i) => i)];
    for (const [turn, i] of order.entries()) {
      if (shown >= most) break;
      const [x, y] = at(i);
      if (x < 0 || y < 8 || x > wide || y > tall - 8) continue;
      const strong = i === own || i === active || i === hover;
      brush.font = `${strong ? 650 : 450} ${strong ? 13 : 11.5}px system-ui, sans-serif`;
      const words = names[i].length > 34 ? `${names[i].slice(0, 32)}…` : names[i];
      const width = brush.measureText(words).width;
      const gap = size[i] + 6;
      const left = x + gap + width > wide - 4 ? x - gap - width : x + gap;
      const area = [left - 3, y - 8, left + width + 3, y + 8];
      if (left < 0 || (turn && taken.some((t) => area[0] < t[2] && area[2] > t[0] && area[1] < t[3] && area[3] > t[1]))) continue;
      taken.push(area);
      shown++;
      brush.lineWidth = 3.5;
      brush.strokeStyle = ink.surface;
      brush.lineJoin = "round";
      brush.strokeText(words, left, y);
      brush.fillStyle = strong ? ink.accent : ink.ink;
      brush.fillText(words, left, y);
    }
  }

  function resize() {
    wide = frame.clientWidth;
    tall = frame.clientHeight;
    draw();
  }

  function nearest(x, y, reach) {
    let best = -1;
    let least = reach * reach;
    for (let i = 0; i < n; i++) {
      const [px, py] = at(i);
      const d = (px - x) ** 2 + (py - y) ** 2;
      if (d < least) [best, least] = [i, d];
    }
    return best;
  }

  function zoom(factor, x = wide / 2, y = tall / 2) {
    const before = scale();
    view.zoom = Math.max(1, Math.min(40, view.zoom * factor));
    const after = scale();
    view.x += (x - wide / 2) * (1 / before[0] - 1 / after[0]);
    view.y += (y - tall / 2) * (1 / before[1] - 1 / after[1]);
    draw();
  }

  function walk(dx, dy) {
    if (active < 0) return choose(0);
    let best = -1;
    let least = Infinity;
    for (let i = 0; i < n; i++) {
      const ahead = (map.x[i] - map.x[active]) * dx + (map.y[i] - map.y[active]) * dy;
      const aside = Math.abs((map.x[i] - map.x[active]) * dy) + Math.abs((map.y[i] - map.y[active]) * dx);
      if (i === active || ahead <= aside * 0.5) continue;
      const far = ahead + 2 * aside;
      if (far < least) [best, least] = [i, far];
    }
    if (best >= 0) choose(best);
  }

  function choose(i) {
    active = i;
    const [x, y] = at(i);
    if (x < 20 || y < 20 || x > wide - 20 || y > tall - 20) [view.x, view.y] = [map.x[i], map.y[i]];
    draw();
    say(`${names[i]}, ${counted(map.people[i], "user")}`);
    tell();
  }

  function open(i) {
    if (i >= 0 && i !== own) location.hash = link("item", map.items[i]);
  }

  /** The text alternative: what is nearest to the chosen item, or the most popular ones. */
  function tell() {
    const centre = active >= 0 ? active : 0;
    const far = (i) => (map.x[i] - map.x[centre]) ** 2 + (map.y[i] - map.y[centre]) ** 2;
    const order = Array.from({ length: n }, (_, i) => i)
      .filter((i) => i !== centre)
      .sort((a, b) => far(a) - far(b))
      .slice(0, 10);
    put(
      text,
      h("p", {}, "Nearest on the map to ", h("bdi", {}, names[centre]), ":"),
      h("ol", {}, order.map((i) => h("li", {}, h("a", { href: link("item", map.items[i]) }, h("bdi", {}, names[i]))))),
    );
  }

  frame.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (moves[event.key]) walk(...moves[event.key]);
    else if (event.key === "Enter") open(active);
    else if (event.key === "+" || event.key === "=") zoom(1.5);
    else if (event.key === "-") zoom(1 / 1.5);
    else if (event.key === "Escape") {
      Object.assign(view, home);
      active = own;
      draw();
    } else return;
    event.preventDefault();
  });
  let drag = null;
  const local = (event) => {
    const area = canvas.getBoundingClientRect();
    return [event.clientX - area.left, event.clientY - area.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    drag = { from: local(event), x: view.x, y: view.y, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = local(event);
    if (drag && event.buttons) {
      const [dx, dy] = [x - drag.from[0], y - drag.from[1]];
      if (Math.abs(dx) + Math.abs(dy) > 4) drag.moved = true;
      if (drag.moved) {
        const [sx, sy] = scale();
        [view.x, view.y] = [drag.x - dx / sx, drag.y - dy / sy];
        draw();
      }
      return;
    }
    const found = nearest(x, y, 14);
    if (found !== hover) {
      hover = found;
      canvas.style.cursor = found >= 0 ? "pointer" : "grab";
      draw();
    }
  });
  canvas.addEventListener("pointerleave", () => {
    hover = -1;
    drag = null;
    draw();
  });
  canvas.addEventListener("click", (event) => {
    if (!drag?.moved) {
      const found = nearest(...local(event), 18);
      if (found >= 0) open(found);
    }
    drag = null;
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== frame) return;
      event.preventDefault();
      zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, ...local(event));
    },
    { passive: false },
  );
  const watch = new ResizeObserver(resize);
  watch.observe(frame);
  const recolour = () => {
    ink = colours();
    draw();
  };
  window.addEventListener("themechange", recolour);
  signal?.addEventListener("abort", () => {
    watch.disconnect();
    window.removeEventListener("themechange", recolour);
  });
  note.textContent = `${n < map.of ? `The ${counted(n, "most popular item")} of ${number(map.of)}` : counted(n, "item")}; a larger dot has more users.`;
  if (id !== undefined && own < 0) note.textContent += " This item is not on the map: it has too few users.";
  tell();
  const button = (words, name, act) => h("button", { type: "button", "aria-label": name, onclick: act }, words);
  return h(
    "div",
    {},
    h(
      "div",
      { class: "mapped" },
      frame,
      h(
        "div",
        { class: "zoom" },
        button("+", "Zoom in", () => zoom(1.5)),
        button("−", "Zoom out", () => zoom(1 / 1.5)),
        button("⟲", "Whole map", () => {
          Object.assign(view, { x: 0.5, y: 0.5, zoom: 1 });
          draw();
        }),
      ),
    ),
    note,
    h("details", {}, h("summary", {}, "The map as text"), text),
  );
}
