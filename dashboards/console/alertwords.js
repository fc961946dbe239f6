// How alerts are put into words and tables, for the list and for one alert.

import { el } from "./dom.js";

const GRADES = { 1: ["·", "Note"], 2: ["!", "Warning"], 3: ["!!", "Alarm"], 4: ["!!!", "Critical"] };
const STATES = {
  new: "New", acknowledged: "Acknowledged", assigned: "Assigned", in_progress: "In progress", resolved: "Resolved",
  reopened: "Reopened", suppressed: "Suppressed", retracted: "Retracted",
};
const FOUND = { true: "the detector was right", false: "the detector was wrong", unclear: "nobody can say" };

export function grade(severity) {
  const [mark, word] = GRADES[severity];
  return el("span", { class: `grade grade-${severity}` }, el("b", { "aria-hidden": "true" }, mark), word);
}

export function stateWord(state) {
  return STATES[state] ?? state;
}

export function standing(alert) {
  const found = alert.resolution ? `: ${FOUND[alert.resolution]}` : "";
  return `${stateWord(alert.state)}${found}${alert.assignee ? `, with ${alert.assignee}` : ""}`;
}

export function causeWord(cause) {
  const words = cause.replaceAll(/[_-]/g, " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

export function scrolling(label, columns, rows, kind = "") {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${label}, scrolls sideways` },
    el("table", { class: kind }, el("thead", {}, el("tr", {}, ...columns.map(([title, right]) => el("th", { scope: "col", class: right ? "number" : null }, title)))),
      el("tbody", {}, ...rows)));
}
