// The ledger: what agents accepted, what is stored, and where everything else went, by identity.

import { all, get, now } from "./client.js";
import { el, notice } from "./dom.js";
import { age, count, moment, plural, waited } from "./format.js";

const RELOAD_MS = 5000;
const TILES = [
  ["accepted_packets", "Accepted", "packets that agents have durably taken in"],
  ["confirmed_packets", "Confirmed", "packets that devices were told are safe in the log, as far as they have said"],
  ["stored_packets", "Stored", "packets in the store, each once"],
  ["missing_packets", "Under way", "accepted, and not stored or set aside yet; lost only if it stays"],
  ["held_packets", "On devices", "packets that devices still hold, as they last said"],
  ["duplicates_suppressed", "Repeats suppressed", "packets that arrived more than once and were stored once"],
  ["dropped_packets", "Dropped by agents", "accepted, then given up by the agent (full buffer), and reported"],
  ["quarantined_packets", "Quarantined", "kept aside with their bytes by the stream job"],
  ["dead_lettered_packets", "Refused", "kept aside with their bytes by the gateway"],
  ["not_accepted_samples", "Never accepted", "samples for which a device had neither disk nor memory; they have no number"],
];
const COLUMNS = [
  ["Device", "device", false], ["Boot", "boot_epoch", true], ["Accepted", "accepted_packets", true],
  ["Confirmed", "confirmed_packets", true], ["Stored", "stored_packets", true], ["Under way", "missing_packets", true],
  ["Held", "held_packets", true], ["Repeats", "duplicates_suppressed", true],
  ["Dropped", "dropped_packets", true], ["Quarantined", "quarantined_packets", true], ["Refused", "dead_lettered_packets", true],
  ["Samples stored", "stored_samples", true], ["Samples refused", "not_accepted_samples", true],
  ["Waiting for", "oldest", true], ["Told", "reported", true],
];
const GAP_WORDS = {
  waiting: "Waiting", open: "Open", closed: "Closed: all of it is stored now",
  explained: "Explained: dropped or set aside with a reason",
};
const REASONS = {
  spool_bytes: "its buffer was full", spool_age: "it was too old", corrupt_spool: "its buffer was damaged", disk_full: "its disk was full",
};
const SHOWN = 200;

export function ledgerView(root, shell, name) {
  if (name?.startsWith("letters")) return opened(root, shell, name.split("/")[1]);
  const stop = new AbortController();
  const place = el("div", { class: "page" }, el("div", { class: "head" }, el("div", {}, el("h1", {}, "Ledger"),
    el("p", { class: "muted lead" }, "Every packet an agent accepted, counted by identity. Nothing is estimated."))));
  const body = el("div", {}, notice("Loading the ledger…"));
  place.append(body);
  root.append(place);
  document.title = "Ledger · Fleetstream";
  const load = async () => {
    const [ledger, gaps, drops, quarantine, letters] = await Promise.all([
      all("/ledger", { limit: 2000 }, stop.signal), get("/ledger/gaps", { limit: SHOWN }, stop.signal),
      get("/ledger/drops", { limit: SHOWN }, stop.signal), get("/quarantine", {}, stop.signal), get("/dead-letters", {}, stop.signal)]);
    draw(body, ledger, gaps, drops, quarantine.items, letters.items);
    shell.link("idle");
  };
  load().catch((error) => shell.failed(error, body));
  const timer = setInterval(() => load().catch((error) => (error.status === 401 ? shell.failed(error) : shell.link("down"))), RELOAD_MS);
  return () => { stop.abort(); clearInterval(timer); };
}

// Few look into letters: their page comes when it is asked for.
function opened(root, shell, id) {
  let leave = null;
  let left = false;
  import("./letters.js").then(({ lettersView }) => { if (!left) leave = lettersView(root, shell, id); }, (error) => shell.failed(error));
  return () => { left = true; leave?.(); };
}

function draw(body, ledger, gaps, drops, quarantine, letters) {
  const scrolled = body.querySelector(".scroll")?.scrollLeft ?? 0;
  const parts = [verdict(ledger), tiles(ledger.totals), table(ledger.items), holes(gaps), dropped(drops),
    el("div", { class: "pair" }, aside("Quarantine", "by the stream job", quarantine), aside("Dead letters", "by the gateway", letters, el("a", { href: "#/ledger/letters" }, "Look into them")))];
  body.replaceChildren(...parts.filter((part) => part !== null));
  body.querySelector(".scroll").scrollLeft = scrolled;
}

function verdict({ totals }) {
  const waiting = totals.missing_packets;
  const given = totals.dropped_packets;
  const oldest = Math.max(0, totals.oldest_waiting_ms ?? 0);
  const parts = [];
  if (!totals.accepted_packets) return notice("No agent has told its account yet.");
  if (!waiting) parts.push("Every accepted packet is accounted for.");
  else parts.push(`${plural(waiting, "packet is", "packets are")} under way${oldest ? `; the oldest has waited ${waited(oldest / 1000)}` : ""}.`);
  if (totals.open_gaps) parts.push(`${plural(totals.open_gaps, "gap is", "gaps are")} older than the limit.`);
  if (given) parts.push(`Agents dropped ${plural(given, "packet")} and reported them.`);
  if (totals.not_accepted_samples) parts.push(`Agents had no room for ${plural(totals.not_accepted_samples, "sample")}.`);
  const bad = given || totals.open_gaps || totals.not_accepted_samples;
  return el("p", { class: `verdict ${bad ? "warn" : waiting ? "wait" : "good"}`, role: "status" },
    el("span", { class: "verdict-mark", "aria-hidden": "true" }, bad ? "!" : waiting ? "…" : "✓"), parts.join(" "));
}

function tiles(totals) {
  return el("dl", { class: "tiles" }, ...TILES.map(([name, title, hint]) =>
    el("div", { class: totals[name] ? "" : "zero", title: hint }, el("dt", {}, title),
      el("dd", {}, count(totals[name]), totals[name] === null ? null : el("span", { class: "unit" }, name.endsWith("_samples") ? "samples" : "packets")))));
}

function table(items) {
  if (!items.length) return notice("There is no device with packets yet.");
  const at = now();
  return el("section", { class: "panel" }, el("h2", {}, "By device and boot", el("span", { class: "muted" }, ` ${count(items.length)}, in packets where nothing else is said`)),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Ledger by device, scrolls sideways" },
      el("table", { class: "ledger" },
        el("thead", {}, el("tr", {}, ...COLUMNS.map(([title, , number]) => el("th", { scope: "col", class: number ? "number" : "" }, title)))),
        el("tbody", {}, ...items.map((row) => el("tr", {}, ...COLUMNS.map(([, name, number]) => cell(row, name, number, at))))))));
}

function cell(row, name, number, at) {
  if (name === "device") return el("th", { scope: "row" }, row.device);
  if (name === "oldest") {
    const ms = row.oldest_waiting_ms;
    const hint = ms === null ? "nothing waits, or the agent does not know since when" : null;
    return el("td", { class: "number", title: hint }, ms === null ? "–" : ms < 1000 ? "< 1 s" : age(ms / 1000));
  }
  if (name === "accepted_packets" && !row.reported_at) {
    return el("td", { class: "number", title: "at least: the agent has not told its own account yet" }, `≥ ${count(row[name])}`);
  }
  if (name === "reported") {
    const ms = row.reported_at ? Date.parse(row.reported_at) : null;
    return el("td", { class: "number", title: ms ? moment(ms) : "never" }, ms ? `${age((at - ms) / 1000)}` : "–");
  }
  const quiet = number && row[name] === 0 && !["accepted_packets", "stored_packets", "stored_samples"].includes(name);
  const ranges = name === "missing_packets" && row.missing.length
    ? row.missing.map((one) => (one.first === one.last ? `${one.first}` : `${one.first}–${one.last}`)).join(", ") : null;
  const hint = ranges ? `sequence numbers ${ranges}` : row[name] === null ? "the agent has not said" : null;
  return el("td", { class: `${number ? "number" : ""}${quiet ? " faint" : ""}`, title: hint }, count(row[name]));
}

function span(first, last) {
  return first === last ? `${first}` : `${first}–${last}`;
}

function listing(title, note, label, heads, rows, more) {
  return el("section", { class: "panel" }, el("h2", {}, title, el("span", { class: "muted" }, ` ${note}`)),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${label}, scrolls sideways` },
      el("table", {}, el("thead", {}, el("tr", {}, ...heads.map(([text, number]) => el("th", { scope: "col", class: number ? "number" : "" }, text)))),
        el("tbody", {}, ...rows))), more ? notice(`Only the first ${SHOWN} are shown; the API has them all.`) : null);
}

function holes({ items, next }) {
  if (!items.length) return null;
  const at = now();
  const rows = items.map((gap) => el("tr", {}, el("th", { scope: "row" }, gap.device), el("td", { class: "number" }, count(gap.boot_epoch)),
    el("td", {}, GAP_WORDS[gap.state] ?? gap.state), el("td", { class: "number" }, span(gap.first_seq, gap.last_seq)),
    el("td", { class: "number" }, count(gap.missing_packets)),
    el("td", { class: "number", title: moment(Date.parse(gap.since)) }, age(((gap.ended_at ? Date.parse(gap.ended_at) : at) - Date.parse(gap.since)) / 1000))));
  return listing("Gaps", "holes that stayed for more than one look", "Gaps",
    [["Device"], ["Boot", true], ["State"], ["Numbers", true], ["Missing now", true], ["Stood for", true]], rows, next);
}

function dropped({ items, next }) {
  if (!items.length) return null;
  const rows = items.map((drop) => el("tr", {}, el("th", { scope: "row" }, drop.device), el("td", { class: "number" }, count(drop.boot_epoch)),
    el("td", { class: "number" }, span(drop.first_seq, drop.last_seq)), el("td", {}, REASONS[drop.reason] ?? drop.reason.replaceAll("_", " ")),
    el("td", {}, drop.class), el("td", { class: "number", title: drop.packets === null ? "the agent cannot know" : null }, count(drop.packets)),
    el("td", { class: "number" }, count(drop.samples)), el("td", { class: "number" }, moment(Date.parse(drop.reported_at)))));
  return listing("Dropped by agents", "accepted, then given up and reported", "Dropped by agents",
    [["Device"], ["Boot", true], ["Numbers", true], ["Because"], ["Class"], ["Packets", true], ["Samples", true], ["Reported", true]], rows, next);
}

function aside(title, by, items, link = null) {
  const rows = items.map((item) => el("tr", {}, el("th", { scope: "row" }, item.reason.replaceAll("_", " ")),
    el("td", { class: "number" }, count(item.packets)), el("td", { class: "number" }, count(item.bytes)),
    el("td", { class: "number" }, item.last_received_at ? moment(Date.parse(item.last_received_at)) : "–")));
  return el("section", { class: "panel" }, el("h2", { class: link ? "with-link" : null }, el("span", {}, title, el("span", { class: "muted" }, ` ${by}`)), link),
    items.length ? el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title}, scrolls sideways` }, el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Reason"),
      el("th", { scope: "col", class: "number" }, "Packets"), el("th", { scope: "col", class: "number" }, "Bytes kept"),
      el("th", { scope: "col", class: "number" }, "Last received"))), el("tbody", {}, ...rows))) : notice("Nothing was set aside."));
}
