// Crashes: notices as they come, the records that are held, and who read them. What a record says is on its own page,
// after its reader has named a legal basis.

import { Problem, get, listen } from "./client.js";
import { el, nothing, notice, text } from "./dom.js";
import { moment, number } from "./format.js";
import { reportView } from "./crashreport.js";

const WORDS = { delta_v: "velocity change", restraint: "restraint fired", vru: "person struck", sustained_deceleration: "hard braking", last_stop: "last stop" };
const CHAIN = { first: "first record", follows: "follows the record before", apart: "the record before is not held here" };

export function words(name) {
  return WORDS[name] ?? name.replaceAll("_", " ");
}

export function crashView(root, shell, name) {
  if (name) return reportView(root, shell, name);
  const stop = new AbortController();
  const notices = el("div", {}, notice("Loading notices…"));
  const records = el("div", {}, notice("Loading records…"));
  const custody = el("section", { class: "panel", hidden: true });
  root.append(el("div", { class: "page" },
    el("div", { class: "head" }, el("div", {}, el("h1", {}, "Crashes"),
      el("p", { class: "muted lead" }, "Telematics records in the format of an event data recorder. Every read, this page included, is in the custody log."))),
    el("section", { class: "panel" }, el("h2", {}, "Notices ", el("span", { class: "muted" }, "where help may be needed")), notices),
    el("section", { class: "panel" }, el("h2", {}, "Records ", el("span", { class: "muted" }, "opening one needs a legal basis")), records),
    custody));
  document.title = "Crashes · Fleetstream";
  const show = () => get("/edr/notices", { limit: 50 }, stop.signal).then((body) => drawNotices(notices, body.items, shell)).catch(refusedIn(notices, shell));
  show();
  get("/edr/records", { limit: 200 }, stop.signal).then((body) => drawRecords(records, body.items)).catch(refusedIn(records, shell));
  get("/edr/custody", { limit: 50 }, stop.signal).then((body) => drawCustody(custody, body.items)).catch(() => {});
  const heard = (name, data) => {
    if (name === "hello") shell.link("live");
    if (name === "down") shell.link("down");
    if (name === "notice" || name === "reset") show(data);
  };
  listen({}, stop.signal, heard).catch(() => {});
  return () => stop.abort();
}

function refusedIn(place, shell) {
  return (error) => {
    if (error instanceof Problem && error.status === 403) place.replaceChildren(notice(error.message));
    else shell.failed(error, place);
  };
}

function table(columns, rows) {
  const head = columns.map(([title, right]) => el("th", { scope: "col", class: right ? "number" : null }, title));
  return el("div", { class: "scroll", tabindex: "0" }, el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows)));
}

function drawNotices(place, items, shell) {
  if (!items.length) { place.replaceChildren(nothing("No crash was reported", "A vehicle that senses one tells it within seconds, on its priority lane; every open page then says so at its top.")); return; }
  const rows = items.map((item) => {
    const where = el("td", {});
    const ask = el("button", { type: "button", class: "quiet" }, "Where?");
    ask.addEventListener("click", () => tellPlace(where, item.event_id, shell));
    where.append(ask);
    return el("tr", {}, el("td", {}, moment(Date.parse(item.received_at))), el("th", { scope: "row" }, item.asset ?? item.device),
      el("td", {}, words(item.trigger)), el("td", { class: "number" }, item.speed_kmh === null ? "not available" : `${number(item.speed_kmh, 0.1)} km/h`),
      el("td", {}, item.restraints.length ? item.restraints.map(words).join(", ") : "–"),
      el("td", {}, item.source === "simulated" ? "simulated" : item.source.replaceAll("_", " ")), where);
  });
  place.replaceChildren(table([["Received"], ["Asset"], ["Trigger"], ["Speed", true], ["Restraints"], ["Source"], ["Where to look"]], rows));
}

async function tellPlace(cell, event, shell) {
  try {
    const found = await get(`/edr/notices/${event}/position`);
    if (found.latitude === null) text(cell, "the device knew no position");
    else {
      const age = found.position_age_ms === null ? "" : ` (${number(found.position_age_ms / 1000, 0.1)} s old)`;
      text(cell, `${found.latitude.toFixed(5)}, ${found.longitude.toFixed(5)}${age}`);
    }
  } catch (error) {
    if (error instanceof Problem && error.status !== 401) text(cell, error.status === 404 ? "not arrived yet" : error.message);
    else shell.failed(error, cell);
  }
}

function drawRecords(place, items) {
  if (!items.length) { place.replaceChildren(nothing("No record is held", "Five seconds before a crash and what followed are sealed on the device, signed, and arrive here; opening one asks for a legal basis and is written down.")); return; }
  const rows = items.map((item) => el("tr", { class: item.replaced ? "stale" : null },
    el("td", {}, moment(Date.parse(item.received_at))),
    el("th", { scope: "row" }, el("a", { href: `#/crash/${item.record}` }, `${item.asset ?? item.device}, record ${item.record_no}`)),
    el("td", {}, words(item.trigger)), el("td", {}, item.profile),
    el("td", {}, `${item.complete ? "complete" : "incomplete"}${item.locked ? ", locked" : ""}${item.replaced ? ", replaced by a later one" : ""}`),
    el("td", {}, CHAIN[item.chain] ?? item.chain), el("td", {}, item.trust === "root" ? "trusted" : "simulated: no evidence")));
  place.replaceChildren(table([["Received"], ["Record"], ["Trigger"], ["Profile"], ["State"], ["Chain"], ["Signature"]], rows));
}

function drawCustody(place, items) {
  const rows = items.map((item) => el("tr", {}, el("td", { class: "number" }, String(item.entry_no)), el("td", {}, moment(Date.parse(item.at))),
    el("td", {}, `${item.role} ${item.actor || item.key_id}`), el("td", {}, item.action), el("td", { title: item.subject }, item.subject.slice(0, 12)),
    el("td", {}, item.basis.replaceAll("_", " ") || "–"), el("td", {}, [item.purpose, item.reference].filter(Boolean).join(" · ") || "–"),
    el("td", { class: item.outcome === "refused" ? "bad" : null }, item.outcome === "refused" ? `refused: ${item.reason.replaceAll("_", " ")}` : "allowed")));
  place.replaceChildren(el("h2", {}, "Custody ", el("span", { class: "muted" }, "who read, or was refused to read, what")),
    table([["Entry", true], ["When"], ["Who"], ["Action"], ["Record"], ["Legal basis"], ["Purpose"], ["Answer"]], rows));
  place.hidden = false;
}
