// The API with the caller's key. The key lives in sessionStorage: it ends with the tab and is in no address.
//
// The live stream is read with fetch, not EventSource: EventSource cannot send an Authorization header, and a key or
// token in an address would end in logs and histories.

const BASE = "/api/v1";
const KEY = "fleetstream.key";
const LONGEST_PAUSE_MS = 15000;
const SILENT_MS = 40000; // the server says something at least every 15 s

let skewMs = 0;

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `the server answered ${status}`);
    this.status = status;
    this.code = body.code || "";
  }
}

export function key() {
  return sessionStorage.getItem(KEY);
}

export function setKey(text) {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

// The server's clock, so that ages do not depend on this computer's.
export function now() {
  return Date.now() + skewMs;
}

export function serverTime(text) {
  skewMs = Date.parse(text) - Date.now();
}

async function answer(response) {
  if (response.ok) return response;
  let body = {};
  try {
    body = await response.json();
  } catch {
    // a proxy's answer is no problem document; the status says enough
  }
  throw new Problem(response.status, body);
}

function address(path, query) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined) search.append(name, one);
    }
  }
  return `${BASE}${path}${search.size ? `?${search}` : ""}`;
}

export async function get(path, query = {}, signal = undefined, more = {}) {
  const headers = { Authorization: `Bearer ${key()}`, ...more };
  const response = await answer(await fetch(address(path, query), { headers, signal, cache: "no-store" }));
  const body = await response.json();
  if (body.as_of) serverTime(body.as_of);
  return body;
}

export async function post(path, body) {
  const headers = { Authorization: `Bearer ${key()}`, "Content-Type": "application/json" };
  const response = await answer(await fetch(address(path, {}), { method: "POST", headers, body: JSON.stringify(body), cache: "no-store" }));
  return response.json();
}

// An answer that is a file, handed to the browser's own download.
export async function download(path, more, name, query = {}) {
  const headers = { Authorization: `Bearer ${key()}`, ...more };
  const response = await answer(await fetch(address(path, query), { headers, cache: "no-store" }));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export async function all(path, query = {}, signal = undefined, most = 20000) {
  const items = [];
  let cursor = null;
  let body;
  do {
    body = await get(path, { ...query, cursor }, signal);
    items.push(...body.items);
    cursor = body.next;
  } while (cursor && items.length < most);
  return { ...body, items };
}

// Calls back for each event until the signal aborts; comes back by itself, from where it was.
export async function listen(query, signal, on) {
  let last = null;
  let pause = 500;
  while (!signal.aborted) {
    try {
      last = await readStream(query, signal, on, last, () => { pause = 500; }, (id) => { last = id; });
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && (error.status === 401 || error.status === 403)) throw error;
    }
    on("down", {});
    await wait(Math.random() * pause, signal);
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
  }
}

async function readStream(query, signal, on, last, opened, passed) {
  const silence = new AbortController();
  const headers = { Authorization: `Bearer ${key()}`, ...(last ? { "Last-Event-ID": last } : {}) };
  const both = AbortSignal.any([signal, silence.signal]);
  const response = await answer(await fetch(address("/stream", query), { headers, signal: both, cache: "no-store" }));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let timer = setTimeout(() => silence.abort(), SILENT_MS);
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return last;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENT_MS);
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const event = parse(part);
        if (event.id) { last = event.id; passed(last); } // a heartbeat has an id and no event
        if (!event.name) continue;
        opened();
        if (event.data.at) serverTime(event.data.at);
        on(event.name, event.data);
      }
    }
  } finally {
    clearTimeout(timer);
  }
}

function parse(block) {
  const fields = {};
  for (const line of block.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 2);
  }
  return { name: fields.event, id: fields.id, data: fields.event ? JSON.parse(fields.data) : null };
}

function wait(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
