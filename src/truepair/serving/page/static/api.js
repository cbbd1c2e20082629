// Questions to the service. A token is asked for when one is needed, and kept in this tab.

const KEY = "truepair-token";

export class ServiceError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

// integers beyond 2^53 stay text: the service compares ids as text
const exact = (key, value, context) =>
  typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source
    ? context.source
    : value;

async function once(path, options) {
  const headers = { accept: "application/json" };
  const token = sessionStorage.getItem(KEY);
  if (token) headers.authorization = `Bearer ${token}`;
  if (options.body !== undefined) headers["content-type"] = "application/json";
  const sent = {
    method: options.method ?? (options.body === undefined ? "GET" : "POST"),
    headers,
    signal: options.signal,
    body: options.body === undefined ? undefined : JSON.stringify(options.body),
  };
  let answer;
  try {
    answer = await fetch(path, sent);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServiceError(0, "The service cannot be reached. Check that it runs, then try again.");
  }
  const text = await answer.text();
  let found = null;
  try {
    found = JSON.parse(text, exact);
  } catch {
    throw new ServiceError(answer.status, `The service answered ${answer.status} without JSON.`);
  }
  if (!answer.ok) throw new ServiceError(answer.status, found?.error ?? `The service answered ${answer.status}.`);
  return found;
}

let asking = null;

function newToken(reason) {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("token-dialog");
    const input = document.getElementById("token");
    document.getElementById("token-reason").textContent = reason;
    input.value = "";
    const done = (value) => {
      dialog.onclose = null;
      dialog.close();
      asking = null;
      resolve(value);
    };
    document.getElementById("token-form").onsubmit = (event) => {
      event.preventDefault();
      done(input.value.trim() || null);
    };
    document.getElementById("token-cancel").onclick = () => done(null);
    dialog.onclose = () => done(null);
    dialog.showModal();
  });
  return asking;
}

/** The JSON of an address; a ServiceError with the text of the service if it refuses. */
export async function ask(path, options = {}) {
  for (;;) {
    try {
      return await once(path, options);
    } catch (error) {
      const denied = error.status === 401 || (error.status === 403 && options.elevate);
      if (!denied || options.quiet) throw error;
      const token = await newToken(error.message);
      if (!token) throw error;
      sessionStorage.setItem(KEY, token);
    }
  }
}

/** A question that is answered by yes or no. */
export function sure(title, text, yes) {
  return new Promise((resolve) => {
    const dialog = document.getElementById("confirm-dialog");
    document.getElementById("confirm-title").textContent = title;
    document.getElementById("confirm-text").textContent = text;
    const agree = document.getElementById("confirm-yes");
    agree.textContent = yes;
    const done = (value) => {
      dialog.onclose = null;
      dialog.close();
      resolve(value);
    };
    agree.onclick = () => done(true);
    document.getElementById("confirm-no").onclick = () => done(false);
    dialog.onclose = () => done(false);
    dialog.showModal();
  });
}
