// Alerts: what needs a person, the gravest and newest first, and how often each detector was right.

import { get, now } from "./client.js";
import { el, nothing, notice } from "./dom.js";
import { age, count, moment } from "./format.js";
import { alertView } from "./alert.js";
import { causeWord, grade, scrolling, standing } from "./alertwords.js";

const RELOAD_MS = 5000;
const MONTH = new Intl.DateTimeFormat("en-GB", { year: "numeric", month: "long", timeZone: "UTC" });

let openOnly = true;

export function alertsView(root, shell, name) {
  if (name) return alertView(root, shell, name);
  const stop = new AbortController();
  const list = el("div", {}, notice("Loading alerts…"));
  const right = el("div", {}, notice("Loading…"));
  const judged = el("section", { class: "panel" }, el("h2", {}, "How often detectors were right ", el("span", { class: "muted" }, "as you resolved their alerts")), right);
  const choices = [["Open", true], ["All", false]].map(([title, only]) => el("button", {
    type: "button", "aria-pressed": String(only === openOnly),
    onclick: (event) => { openOnly = only; press(event.target); load(); },
  }, title));
  const press = (chosen) => choices.forEach((button) => button.setAttribute("aria-pressed", String(button === chosen)));
  root.append(el("div", { class: "page" },
    el("div", { class: "head" }, el("div", {}, el("h1", {}, "Alerts"),
      el("p", { class: "muted lead" }, "One per asset and cause. Open one to see why, and to say what you found.")),
    el("div", { class: "segments", role: "group", "aria-label": "Which alerts" }, ...choices)),
    el("section", { class: "panel" }, list),
    judged));
  document.title = "Alerts · Fleetstream";
  const load = async () => {
    const [alerts, precision] = await Promise.all([
      get("/alerts", { open: openOnly, limit: 200 }, stop.signal), get("/alerts/precision", { months: 12 }, stop.signal)]);
    draw(list, alerts);
    drawPrecision(right, precision.items);
    judged.hidden = false;
    shell.link("idle");
  };
  const timer = setInterval(() => load().catch((error) => (error.status === 401 ? shell.failed(error) : shell.link("down"))), RELOAD_MS);
  load().catch((error) => {
    shell.failed(error, list);
    judged.hidden = true;
    if (error.status === 403) clearInterval(timer); // asking again would not change a role
  });
  return () => { stop.abort(); clearInterval(timer); };
}

function draw(place, { items, next }) {
  if (!items.length) {
    place.replaceChildren(nothing(openOnly ? "No alert is open" : "There was no alert yet",
      "Detectors judge every reading as it is stored. What they find on an asset appears here at once, with its cause, what was expected, and what to do."));
    return;
  }
  const focused = place.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const at = now();
  const rows = [...items].sort((a, b) => b.severity - a.severity).map((alert) => el("tr", { onclick: (event) => { if (!event.target.closest("a")) location.hash = `#/alerts/${alert.alert_id}`; } },
    el("td", {}, grade(alert.severity)),
    el("th", { scope: "row" }, el("a", { href: `#/alerts/${alert.alert_id}`, class: "cause" }, `${alert.asset ?? alert.device}: ${causeWord(alert.cause)}`)),
    el("td", {}, standing(alert)),
    el("td", { class: "number", title: moment(Date.parse(alert.since)) }, age((at - Date.parse(alert.since)) / 1000)),
    el("td", { class: "number", title: moment(Date.parse(alert.last_seen_at)) }, alert.running ? "still there" : age((at - Date.parse(alert.last_seen_at)) / 1000)),
    el("td", { class: "number" }, count(alert.findings)), el("td", { class: "number" }, alert.grouped ? `+ ${count(alert.grouped)}` : "–"),
    el("td", { class: "number" }, alert.level ? `${alert.level} ×` : "–")));
  place.replaceChildren(scrolling("Alerts", [["Grade"], ["What"], ["State"], ["For", true], ["Last seen", true], ["Findings", true], ["Of one storm", true], ["Escalated", true]], rows, "alerts"),
    ...(next ? [notice("Only the newest 200 are shown; the API has them all.")] : []));
  if (focused) place.querySelector(`a[href="${focused}"]`)?.focus();
}

function drawPrecision(place, items) {
  if (!items.length) { place.replaceChildren(nothing("No detector has raised an alert yet", "Once alerts are resolved as right or wrong, each detector is counted here by month.")); return; }
  const percent = (value) => (value === null ? "–" : `${Math.round(value * 100)} %`);
  const rows = items.map((row) => el("tr", {}, el("th", { scope: "row" }, row.detector), el("td", {}, MONTH.format(Date.parse(row.month))),
    el("td", { class: "number" }, count(row.alerts)), el("td", { class: "number" }, count(row.confirmed)), el("td", { class: "number" }, count(row.wrong)),
    el("td", { class: "number" }, count(row.unclear)), el("td", { class: "number" }, count(row.unresolved)),
    el("td", { class: "number", title: row.low === null ? "nobody has judged an alert of it yet" : `95 % interval: ${percent(row.low)} to ${percent(row.high)}` }, percent(row.precision))));
  place.replaceChildren(scrolling("Precision", [["Detector"], ["Month"], ["Alerts", true], ["Right", true], ["Wrong", true], ["Unclear", true], ["Not resolved", true], ["Precision", true]], rows, "precision"));
}
