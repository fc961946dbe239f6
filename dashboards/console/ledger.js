// The ledger: what agents accepted, what is stored, and where everything else went, by identity.

import { all, get, now } from "./client.js";
import { el, notice } from "./dom.js";
import { age, count, moment, plural, waited } from "./format.js";

const RELOAD_MS = 5000;
const TILES = [
  ["accepted_packets", "Accepted", "packets that agents have durably taken in"],
  ["stored_packets", "Stored", "packets in the store, each once"],
  ["missing_packets", "Under way", "accepted, and not stored or set aside yet; lost only if it stays"],
  ["duplicates_suppressed", "Repeats suppressed", "packets that arrived more than once and were stored once"],
  ["dropped_packets", "Dropped by agents", "accepted, then given up by the agent (full buffer), and reported"],
  ["quarantined_packets", "Quarantined", "kept aside with their bytes by the stream job"],
  ["dead_lettered_packets", "Refused", "kept aside with their bytes by the gateway"],
];
const COLUMNS = [
  ["Device", "device", false], ["Boot", "boot_epoch", true], ["Accepted", "accepted_packets", true],
  ["Stored", "stored_packets", true], ["Under way", "missing_packets", true], ["Repeats", "duplicates_suppressed", true],
  ["Dropped", "dropped_packets", true], ["Quarantined", "quarantined_packets", true], ["Refused", "dead_lettered_packets", true],
  ["Samples stored", "stored_samples", true], ["Oldest waiting", "oldest", true], ["Agent’s word", "reported", true],
];

export function ledgerView(root, shell) {
  const stop = new AbortController();
  const place = el("div", { class: "page" }, el("div", { class: "head" }, el("div", {}, el("h1", {}, "Ledger"),
    el("p", { class: "muted lead" }, "Every packet an agent accepted, counted by identity. Nothing is estimated."))));
  const body = el("div", {}, notice("Loading the ledger…"));
  place.append(body);
  root.append(place);
  document.title = "Ledger · Fleetstream";
  const load = async () => {
    const [ledger, quarantine, letters] = await Promise.all([
      all("/ledger", { limit: 2000 }, stop.signal), get("/quarantine", {}, stop.signal), get("/dead-letters", {}, stop.signal)]);
    draw(body, ledger, quarantine.items, letters.items);
    shell.link("idle");
  };
  load().catch((error) => shell.failed(error, body));
  const timer = setInterval(() => load().catch((error) => (error.status === 401 ? shell.failed(error) : shell.link("down"))), RELOAD_MS);
  return () => { stop.abort(); clearInterval(timer); };
}

function draw(body, ledger, quarantine, letters) {
  const scrolled = body.querySelector(".scroll")?.scrollLeft ?? 0;
  body.replaceChildren(verdict(ledger), tiles(ledger.totals), table(ledger.items),
    el("div", { class: "pair" }, aside("Quarantine", "by the stream job", quarantine), aside("Dead letters", "by the gateway", letters)));
  body.querySelector(".scroll").scrollLeft = scrolled;
}

function verdict({ totals, items }) {
  const waiting = totals.missing_packets;
  const dropped = totals.dropped_packets;
  const oldest = Math.max(0, ...items.filter((row) => row.missing_packets).map((row) => row.oldest_unacked_ms ?? 0));
  const parts = [];
  if (!totals.accepted_packets) return notice("No agent has told its account yet.");
  if (!waiting) parts.push("Every accepted packet is accounted for.");
  else parts.push(`${plural(waiting, "packet is", "packets are")} under way${oldest ? `; the oldest has waited ${waited(oldest / 1000)}` : ""}.`);
  if (dropped) parts.push(`Agents dropped ${plural(dropped, "packet")} and reported them.`);
  return el("p", { class: `verdict ${dropped ? "warn" : waiting ? "wait" : "good"}`, role: "status" },
    el("span", { class: "verdict-mark", "aria-hidden": "true" }, dropped ? "!" : waiting ? "…" : "✓"), parts.join(" "));
}

function tiles(totals) {
  return el("dl", { class: "tiles" }, ...TILES.map(([name, title, hint]) =>
    el("div", { class: totals[name] ? "" : "zero", title: hint }, el("dt", {}, title), el("dd", {}, count(totals[name])))));
}

function table(items) {
  if (!items.length) return notice("There is no device with packets yet.");
  const at = now();
  return el("section", { class: "panel" }, el("h2", {}, "By device and boot", el("span", { class: "muted" }, ` ${count(items.length)}`)),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Ledger by device, scrolls sideways" },
      el("table", { class: "ledger" },
        el("thead", {}, el("tr", {}, ...COLUMNS.map(([title, , number]) => el("th", { scope: "col", class: number ? "number" : "" }, title)))),
        el("tbody", {}, ...items.map((row) => el("tr", {}, ...COLUMNS.map(([, name, number]) => cell(row, name, number, at))))))));
}

function cell(row, name, number, at) {
  if (name === "device") return el("th", { scope: "row" }, row.device);
  if (name === "oldest") return el("td", { class: "number" }, !row.oldest_unacked_ms ? "–" : row.oldest_unacked_ms < 1000 ? "< 1 s" : age(row.oldest_unacked_ms / 1000));
  if (name === "reported") {
    const ms = row.reported_at ? Date.parse(row.reported_at) : null;
    return el("td", { class: "number", title: ms ? moment(ms) : "never" }, ms ? `${age((at - ms) / 1000)}` : "–");
  }
  const quiet = number && row[name] === 0 && !["accepted_packets", "stored_packets", "stored_samples"].includes(name);
  const ranges = name === "missing_packets" && row.missing.length
    ? row.missing.map((one) => (one.first === one.last ? `${one.first}` : `${one.first}–${one.last}`)).join(", ") : null;
  return el("td", { class: `${number ? "number" : ""}${quiet ? " faint" : ""}`, title: ranges && `sequence numbers ${ranges}` }, count(row[name]));
}

function aside(title, by, items) {
  const rows = items.map((item) => el("tr", {}, el("th", { scope: "row" }, item.reason.replaceAll("_", " ")),
    el("td", { class: "number" }, count(item.packets)), el("td", { class: "number" }, count(item.bytes)),
    el("td", { class: "number" }, item.last_received_at ? moment(Date.parse(item.last_received_at)) : "–")));
  return el("section", { class: "panel" }, el("h2", {}, title, el("span", { class: "muted" }, ` ${by}`)),
    items.length ? el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title}, scrolls sideways` }, el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Reason"),
      el("th", { scope: "col", class: "number" }, "Packets"), el("th", { scope: "col", class: "number" }, "Bytes kept"),
      el("th", { scope: "col", class: "number" }, "Last received"))), el("tbody", {}, ...rows))) : notice("Nothing was set aside."));
}
