// The report of one crash record: legal basis first, then plots, every element with its accuracy, and where each rule
// comes from. Made to be printed.

import { Problem, download, get } from "./client.js";
import { el, notice, text } from "./dom.js";
import { moment, NOTHING } from "./format.js";
import { plot } from "./svgplot.js";

const BASES = [
  ["owner_consent", "The owner or lessee consented"], ["court_order", "A court or another authority ordered it"],
  ["investigation", "An investigation authorised by law"], ["emergency", "Emergency medical response"], ["research", "Traffic safety research"],
];
const PLOTS = [
  ["Speed", ["speed"]], ["Accelerator", ["accelerator", "throttle"]], ["Service brake", ["service_brake"]], ["Brake pedal", ["brake_pedal"]],
  ["Steering", ["steering"]], ["Delta-V", ["delta_v_longitudinal", "delta_v_lateral"]],
];
const OPTIONAL = new Set(["Brake pedal"]);

export function reportView(root, shell, record) {
  const stop = new AbortController();
  const page = el("div", { class: "page report" });
  root.append(page);
  document.title = "Crash record · Fleetstream";
  page.append(door(record, async (headers, told) => {
    try {
      const body = await get(`/edr/records/${record}/report`, {}, stop.signal, headers);
      page.replaceChildren(...drawn(body, headers, record, shell));
      document.title = `Crash record ${body.summary.record_no} of ${vehicle(body.summary)} · Fleetstream`;
    } catch (error) {
      if (error instanceof Problem && error.status !== 401) text(told, error.message);
      else shell.failed(error, page);
    }
  }));
  return () => stop.abort();
}

function door(record, open) {
  const basis = el("select", { id: "basis", name: "basis", required: true }, el("option", { value: "" }, "Choose…"),
    ...BASES.map(([value, words]) => el("option", { value }, words)));
  const field = (id, label, required) => [el("label", { for: id }, label), el("input", { id, name: id, maxlength: "500", required, autocomplete: "off" })];
  const told = el("p", { class: "form-error", role: "alert" });
  const form = el("form", { class: "basis" }, el("h1", {}, "Open a crash record"),
    el("p", { class: "muted" }, "Its data belong to the vehicle’s owner or lessee. Name the legal basis of this request; it goes into the custody log with your key, whatever the answer."),
    el("p", { class: "hash" }, record), el("label", { for: "basis" }, "Legal basis"), basis,
    ...field("reference", "Number or name of the document (not for emergencies)", false), ...field("purpose", "What is it read for?", true),
    ...field("person", "On behalf of whom?", false), told, el("button", { type: "submit", class: "primary" }, "Open and log"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const value = (name) => encodeURIComponent(form.elements[name].value.trim());
    open({ "Legal-Basis": value("basis"), "Legal-Reference": value("reference"), Purpose: value("purpose"), "On-Behalf-Of": value("person") }, told);
  });
  return form;
}

function drawn(body, headers, record, shell) {
  const { summary } = body;
  const told = el("p", { class: "form-error", role: "alert" });
  const fetched = el("button", { type: "button", class: "quiet" }, "Download export");
  fetched.addEventListener("click", () => download(`/edr/records/${record}/export`, headers, `${summary.device ?? record.slice(0, 16)}-${summary.record_no}.fsx`)
    .catch((error) => (error.status === 401 ? shell.failed(error) : text(told, error.message))));
  const print = el("button", { type: "button", class: "primary" }, "Print");
  print.addEventListener("click", () => window.print());
  return [
    el("div", { class: "head" }, el("div", {}, el("h1", {}, `Crash record ${summary.record_no} of ${vehicle(summary)}`),
      el("p", { class: "muted lead" }, `${body.profile_title} (${summary.profile}, version ${summary.profile_version})`)),
    el("div", { class: "tools" }, fetched, print)), told,
    el("p", { class: "regulated" }, el("b", {}, "A telematics record, not the regulated download. "), `This is a ${body.notice}.`,
      summary.trust === "simulated" ? " It was simulated: it is worth nothing as evidence." : ""),
    facts(body), el("div", { class: "plots" }, ...PLOTS.map(([title, names]) => panel(title, names, body.elements)).filter(Boolean)), elements(body),
    el("p", { class: "muted how" }, `Profile status: ${body.profile_status}. “Mark” says how sure the profile’s row is: confirmed, corroborated or unsure. Not available means that the vehicle gave no source; it is never zero.`),
  ];
}

function vehicle(summary) {
  return summary.asset ?? summary.device ?? "a vehicle not named";
}

function facts(body) {
  const { summary, event } = body;
  const rows = [
    ["Device", summary.device ?? "not told on this basis"], ["Source", summary.source.replaceAll("_", " ")], ["Trigger", summary.trigger.replaceAll("_", " ")],
    ["Time zero", event.time_zero_rule.replaceAll("_", " ")], ["Event", `${event.event_number}${event.since_previous_us === null ? "" : `, ${event.since_previous_us / 1e6} s after the one before`}`],
    ["End of event", event.end_after_us === null ? "not reached" : `${event.end_after_us / 1000} ms after time zero`],
    ["Ignition cycle", String(event.ignition_cycle_crash)], ["State", `${summary.complete ? "complete" : "incomplete"}${summary.locked ? `, locked by ${event.lock_reason.replaceAll("_", " ")}` : ""}`],
    ["Received", summary.received_at ? moment(Date.parse(summary.received_at)) : "not told on this basis"], ["Signature", `${body.algorithm}, key ${body.key_id}, ${summary.trust === "root" ? "ends in a trusted root" : "simulated"}`],
    ["Chain", { first: "first record", follows: "follows the record before", apart: "the record before is not held here" }[summary.chain]],
    ["SHA-256", summary.record], ["Custody entry", String(body.custody_entry)],
  ];
  return el("dl", { class: "facts" }, ...rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function accuracy(element) {
  const { kind, value } = element.accuracy;
  if (kind === "none") return NOTHING;
  return `±${value} ${kind === "absolute" ? element.unit : kind === "percent" ? "% of value" : "% of range"}`;
}

function panel(title, names, all) {
  const listed = names.map((name) => all.find((element) => element.name === name)).filter(Boolean);
  const found = listed.filter((element) => element.status === "recorded");
  if (!listed.length && OPTIONAL.has(title)) return null;
  const unit = listed[0]?.unit ?? "";
  const legend = found.map((element, index) => el("span", { class: `key key-${index}` }, element.title,
    el("span", { class: "muted" }, `${element.states.length ? "" : ` ${accuracy(element)}`}${element.clamped ? ", clamped to its range" : ""}`)));
  return el("figure", { class: "panel figure" }, el("figcaption", {}, el("b", {}, title), unit ? el("span", { class: "unit" }, unit) : null, ...legend),
    found.length ? plot(title, found, unit) : el("p", { class: "absent" }, listed.length ? "Not available: the vehicle gave no source." : "This profile does not list it."));
}

function values(element) {
  if (element.status !== "recorded") return "not available";
  const there = element.values.filter((value) => value !== null);
  const shown = (value) => (typeof value === "number" ? String(Math.round(value * 1e6) / 1e6).replace("-", "\u2212") : value.replaceAll("_", " "));
  if (element.values.length === 1) return there.length ? `${shown(there[0])} ${element.unit}` : "no sample";
  const missing = element.values.length - there.length;
  const range = typeof there[0] === "number" ? `, ${shown(Math.min(...there))} to ${shown(Math.max(...there))} ${element.unit}` : "";
  return `${there.length} samples${range}${missing ? `, ${missing} not fresh` : ""}`;
}

function elements(body) {
  const columns = ["Element", "Value", "Accuracy", "Resolution", "Needed", "Table", "Mark"];
  const rows = body.elements.map((element) => el("tr", { class: element.status === "recorded" ? null : "faint" },
    el("th", { scope: "row", title: [element.name, element.note].filter(Boolean).join(": ") }, element.title),
    el("td", {}, values(element), element.saturated_from_ms === null ? "" : `, saturated from ${element.saturated_from_ms} ms`, element.clamped ? ", clamped" : ""),
    el("td", {}, accuracy(element)), el("td", {}, element.states.length ? NOTHING : `${element.resolution} ${element.unit}`),
    el("td", { title: element.condition }, element.presence.replaceAll("_", " ")), el("td", {}, element.table), el("td", {}, element.mark)));
  return el("section", { class: "panel all" }, el("h2", {}, "Every element of the profile"),
    el("div", { class: "scroll", tabindex: "0" }, el("table", {}, el("thead", {}, el("tr", {}, ...columns.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...rows))));
}
