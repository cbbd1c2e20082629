// Views by address: #/user/ID, #/item/ID, #/try?liked=ID, #/model, #/service.

import { failure, put, say } from "./dom.js";
import * as item from "./item.js";
import * as model from "./model.js";
import * as user from "./user.js";
import * as service from "./service.js";
import * as session from "./session.js";

const VIEWS = { user, item, try: session, model, service };
const main = document.getElementById("main");
let leave = null;
let first = true;

function where() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const cut = path.indexOf("/");
  const view = cut < 0 ? path : path.slice(0, cut);
  let id = cut < 0 ? "" : path.slice(cut + 1);
  try {
    id = decodeURIComponent(id);
  } catch {
    // a % that encodes nothing: the text as it is
  }
  return { view: view in VIEWS ? view : "user", id, query: new URLSearchParams(query ?? "") };
}

async function show() {
  leave?.abort();
  const mine = (leave = new AbortController());
  const { view, id, query } = where();
  for (const tab of document.querySelectorAll("nav a")) {
    if (tab.dataset.view === view) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  const moved = !first;
  first = false;
  const page = document.createElement("div");
  page.className = `view ${view}`;
  put(main, page);
  window.scrollTo(0, 0);
  try {
    const title = await VIEWS[view].show(page, { id, query, signal: mine.signal });
    if (mine.signal.aborted) return;
    document.title = `${title} · truepair`;
    if (moved && !main.contains(document.activeElement)) main.focus({ preventScroll: true });
    say(title);
  } catch (error) {
    if (error.name !== "AbortError" && !mine.signal.aborted) put(page, failure(error, show));
  }
}

function theme() {
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => localStorage.getItem("truepair-theme");
  const draw = () => {
    const now = chosen() ?? (dark.matches ? "dark" : "light");
    if (chosen()) document.documentElement.dataset.theme = now;
    button.textContent = now === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Use ${now === "dark" ? "light" : "dark"} colours`);
    window.dispatchEvent(new Event("themechange"));
  };
  button.addEventListener("click", () => {
    const now = chosen() ?? (dark.matches ? "dark" : "light");
    localStorage.setItem("truepair-theme", now === "dark" ? "light" : "dark");
    draw();
  });
  dark.addEventListener("change", draw);
  draw();
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", show);
theme();
show();
