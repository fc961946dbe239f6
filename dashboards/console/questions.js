// Fleet questions: pick one, say what it takes, read the answer with units, times and ages, keep it as CSV.

import { all, get } from "./client.js";
import { el, notice } from "./dom.js";
import { NOTHING, age, count, moment, number, plural, unit } from "./format.js";

const WORDS = {
  no_value: "never told it", too_old: "told it too long ago", no_data: "told nothing in that time",
  no_capacity: "have no known capacity", no_nominal: "have no known nominal consumption",
};
const FORMULA = /^[=+\-@\t\r]/;

export function questionsView(root, shell, name) {
  const stop = new AbortController();
  const place = el("div", { class: "page" }, el("div", { class: "head" }, el("div", {}, el("h1", {}, "Questions"),
    el("p", { class: "muted lead" }, "About the whole fleet, answered from what is rolled up already."))));
  const body = el("div", {}, notice("Loading the questions…"));
  place.append(body);
  root.append(place);
  document.title = "Questions · Fleetstream";
  get("/questions", {}, stop.signal)
    .then(({ items }) => draw(body, items, items.find((one) => one.name === name) ?? items[0], shell, stop.signal))
    .catch((error) => shell.failed(error, body));
  return () => stop.abort();
}

function draw(body, questions, chosen, shell, signal) {
  const answer = el("div", { class: "answer" });
  const choice = el("select", { id: "question" }, ...questions.map((one) => el("option", { value: one.name, selected: one === chosen }, one.asks)));
  choice.addEventListener("change", () => { location.hash = `#/questions/${choice.value}`; });
  const fields = fieldsOf(chosen);
  const form = el("form", { class: "ask" }, labelled("question", "Question", choice),
    ...fields.map((field) => field.node), el("button", { type: "submit", class: "primary" }, "Ask"));
  form.addEventListener("submit", (event) => { event.preventDefault(); ask(chosen, fields, answer, shell, signal); });
  body.replaceChildren(form, meaning(chosen), answer);
  if (!chosen.parameters.includes("asset")) ask(chosen, fields, answer, shell, signal);
}

function labelled(id, words, field) {
  return el("div", { class: "ask-field" }, el("label", { for: id }, words), field);
}

// One field per parameter; what is left empty is not said, and the question's own default holds.
function fieldsOf(question) {
  const whole = question.step_s === 86400;
  const made = [];
  const add = (name, words, attributes, read = (value) => value) => {
    const input = el("input", { id: `ask-${name}`, name, autocomplete: "off", ...attributes });
    made.push({ name, input, read, node: labelled(input.id, words, input) });
  };
  if (question.parameters.includes("asset")) add("asset", "Vehicle", { required: true, maxlength: "200" });
  if (question.parameters.includes("fleet")) add("fleet", "Fleet", { placeholder: "all", maxlength: "200" });
  const time = whole ? (value) => `${value}T00:00:00Z` : (value) => `${value}:00Z`;
  const type = whole ? "date" : "datetime-local";
  const step = whole ? "1" : String(question.step_s);
  if (question.step_s) {
    add("from", whole ? "From day (UTC)" : "From (UTC)", { type, step }, time);
    if (!question.width_s) add("to", "To day, not included (UTC)", { type, step }, time);
  }
  if (question.threshold) {
    const words = `Threshold${question.threshold.unit ? `, ${unit(question.threshold.unit)}` : ""}`;
    add("threshold", words, { type: "number", step: "any", placeholder: String(question.threshold.default), title: question.threshold.text });
  }
  if (question.parameters.includes("max_age_s")) {
    add("max_age_s", "Not older than, h", { type: "number", min: "0.01", step: "any", placeholder: "24" }, (value) => Number(value) * 3600);
  }
  return made;
}

function meaning(question) {
  const rows = [["Means", question.semantics], ["The benchmark TSBS computes", question.suite], ["Different because", question.differs],
    ["Answered from", question.source]];
  return el("details", { class: "panel meaning" }, el("summary", {}, "What exactly is asked"),
    el("dl", {}, ...rows.flatMap(([term, text]) => [el("dt", {}, term), el("dd", {}, text)])));
}

async function ask(question, fields, place, shell, signal) {
  const said = {};
  for (const { name, input, read } of fields) if (input.value) said[name] = read(input.value);
  place.setAttribute("aria-busy", "true");
  try {
    show(question, await all(`/questions/${question.name}`, said, signal), place);
  } catch (error) {
    shell.failed(error, place);
  } finally {
    place.removeAttribute("aria-busy");
  }
}

function show(question, body, place) {
  const { vehicles, ...rest } = body.counted;
  const unjudged = Object.entries(rest).filter(([, n]) => n > 0).map(([why, n]) => `${count(n)} ${WORDS[why] ?? why}`);
  const range = body.from ? `${moment(Date.parse(body.from))} to ${moment(Date.parse(body.to))}. ` : `As of ${moment(Date.parse(body.as_of))}. `;
  const line = `${plural(body.items.length, "row")}. ${range}${plural(vehicles, "vehicle")} asked about${unjudged.length ? `; ${unjudged.join(", ")}` : ""}.${body.complete ? "" : ` Not settled yet: what came after ${moment(Date.parse(body.settled_to))} is still being counted; ask again later.`}`;
  const button = el("button", { type: "button", class: "export-open", disabled: !body.items.length }, "Save as CSV");
  button.addEventListener("click", () => save(question.name, csv(body)));
  const parts = [el("div", { class: "answer-head" }, el("p", { role: "status" }, line), button)];
  if (body.items.length) parts.push(table(body, question.asks));
  else parts.push(notice("No vehicle belongs into this answer."));
  place.replaceChildren(el("section", { class: "panel" }, ...parts));
}

function table(body, caption) {
  const numeric = body.columns.map(({ name }) => name !== "measured_at" && body.items.some((item) => typeof item[name] === "number"));
  const heads = body.columns.map((column, at) => el("th", { scope: "col", class: numeric[at] ? "number" : null, title: column.text },
    label(column.name), column.unit && column.name !== "age_s" ? el("span", { class: "unit" }, unit(column.unit)) : null));
  const rows = body.items.map((item) => el("tr", {}, ...body.columns.map(({ name }, at) => cell(name, item[name], numeric[at]))));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows)));
}

function label(name) {
  const words = name.replace(/_(s|h)$/, "").replace("_h_", " ").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function cell(name, value, numeric) {
  if (value === null) return el("td", { class: numeric ? "number nothing" : "nothing" }, NOTHING);
  if (name === "measured_at") return el("td", {}, moment(Date.parse(value)));
  if (name === "age_s") return el("td", { class: "number" }, age(value));
  if (name === "asset") return el("td", {}, el("a", { href: `#/asset/${encodeURIComponent(value)}` }, value));
  if (name === "latitude" || name === "longitude") return el("td", { class: "number" }, value.toFixed(5));
  return el("td", { class: numeric ? "number" : null }, Number.isInteger(value) ? count(value) : numeric ? number(value) : value);
}

function csv({ columns, items }) {
  const write = (value) => {
    const safe = typeof value === "string" && FORMULA.test(value) ? `'${value}` : String(value ?? "");
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const head = columns.map(({ name, unit: of }) => write(of ? `${name} [${of}]` : name));
  return [head, ...items.map((item) => columns.map(({ name }) => write(item[name])))].map((row) => row.join(",")).join("\r\n") + "\r\n";
}

function save(name, content) {
  const address = URL.createObjectURL(new Blob([content], { type: "text/csv" }));
  const link = el("a", { href: address, download: `${name}.csv` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
