// One alert: what was seen and expected, drawn; what to do, how sure, who did what; and the buttons that move it.

import { Problem, download, get, post } from "./client.js";
import { Chart } from "./chart.js";
import { DARK, el, notice, text } from "./dom.js";
import { clock, moment, number, plural, unit } from "./format.js";
import { causeWord, grade, scrolling, standing, stateWord } from "./alertwords.js";
import { label } from "./signals.js";

const RELOAD_MS = 5000;
const ACTOR = "fleetstream.actor";
const KINDS = {
  opened: "Opened", worsened: "Worse", amended: "Late data changed it", retracted: "Late data took it back", reopened: "Came back",
  escalated: "Escalated: nobody acted", grouped: "Grouped with its storm", ungrouped: "Stands alone again",
};
const CHANGES = { added: "Found later", amended: "Amended", restored: "Stands again", retracted: "Taken back" };
// [what is pressed, the move, needs a name, goes first]
const MOVES = [
  ["Acknowledge", { to_state: "acknowledged" }, false, true], ["Assign to me", { to_state: "assigned" }, true, false],
  ["Start work", { to_state: "in_progress" }, false, false], ["Resolve: it was right", { to_state: "resolved", resolution: "true" }, false, false],
  ["Resolve: false alarm", { to_state: "resolved", resolution: "false" }, false, false],
  ["Resolve: unclear", { to_state: "resolved", resolution: "unclear" }, false, false],
  ["Suppress for a day", { to_state: "suppressed" }, false, false], ["Reopen", { to_state: "reopened" }, false, true],
];

export function alertView(root, shell, id) {
  const stop = new AbortController();
  const view = new AlertView(root, shell, id, stop.signal);
  view.start().catch((error) => shell.failed(error, view.page));
  return () => stop.abort();
}

class AlertView {
  constructor(root, shell, id, signal) {
    Object.assign(this, { shell, id, signal, seen: 0 });
    this.page = el("div", { class: "page" }, notice("Loading the alert…"));
    root.append(this.page);
    document.title = "Alert · Fleetstream";
  }

  async start() {
    const whole = await get(`/alerts/${this.id}`, {}, this.signal);
    this.explanation = await get(`/findings/${whole.alert.finding_id}`, {}, this.signal).catch((error) => {
      if (error instanceof Problem && error.status === 404) return null;
      throw error;
    });
    this.build(whole);
    this.take(whole);
    const timer = setInterval(() => this.reload().catch((error) => (error.status === 401 ? this.shell.failed(error) : this.shell.link("down"))), RELOAD_MS);
    this.signal.addEventListener("abort", () => clearInterval(timer));
  }

  async reload() {
    const whole = await get(`/alerts/${this.id}`, {}, this.signal);
    this.shell.link("idle");
    if (whole.alert.event_no !== this.seen) this.take(whole);
  }

  build({ alert }) {
    this.head = el("h1", {});
    this.lead = el("p", { class: "muted lead" });
    this.actor = el("input", { id: "actor", maxlength: "100", autocomplete: "name", value: sessionStorage.getItem(ACTOR) ?? "" });
    this.note = el("input", { id: "note", maxlength: "2000", autocomplete: "off" });
    this.moves = el("div", { class: "moves" });
    this.said = el("p", { class: "form-error", role: "alert" });
    this.facts = el("dl", { class: "told" });
    this.rest = el("div", {});
    const order = el("button", { type: "button", class: "export-open" }, "Work order");
    order.addEventListener("click", () => download(`/alerts/${this.id}/work-order?form=csv`, {}, `work-order-${this.id}.csv`).catch((error) => this.failed(error)));
    this.page.replaceChildren(
      el("p", { class: "crumb" }, el("a", { href: "#/alerts" }, "Alerts")),
      el("div", { class: "head" }, el("div", {}, this.head, this.lead), el("div", { class: "tools" }, order)),
      el("section", { class: "panel" }, el("h2", {}, "What do you do?"), el("div", { class: "steps" },
        el("label", { for: "actor" }, "Your name", this.actor), el("label", { for: "note" }, "What you found", this.note), this.moves, this.said)),
      ...this.why(), el("section", { class: "panel" }, el("h2", {}, "How sure"), this.facts), this.rest);
    document.title = `${alert.asset ?? alert.device}: ${causeWord(alert.cause)} · Fleetstream`;
  }

  plot(finding, around, spoken) {
    const measure = unit(around.unit);
    const canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": spoken });
    const read = el("span", { class: "read" });
    const chart = new Chart(canvas, {
      onRead: (point) => text(read, point ? `${clock(point.t)}: ${number(point.low)} to ${number(point.high)} ${measure}, mean ${number(point.mid)}` : ""),
    });
    const points = around.points.map((point) => ({ t: Date.parse(point.at), low: point.min, mid: point.mean, high: point.max }));
    const draw = () => chart.set(points, Date.parse(around.from), Date.parse(around.to), around.width_s * 2500,
      { expected: around.expected, span: { from: Date.parse(finding.opened_at), to: Date.parse(finding.closed_at ?? finding.last_at) } });
    const resized = new ResizeObserver(draw);
    resized.observe(canvas);
    DARK.addEventListener("change", draw, { signal: this.signal });
    this.signal.addEventListener("abort", () => resized.disconnect());
    return [canvas, read];
  }

  why() {
    if (!this.explanation) return [notice("Its finding is not held any more: late data took it back.")];
    const { finding, around, also = [], corrections = [], peers, contributions } = this.explanation;
    const measure = unit(finding.unit);
    const [canvas, read] = this.plot(finding, around, this.spoken(finding, around));
    const points = around.points;
    const key = (name, words) => el("span", {}, el("i", { class: `key-${name}` }), words);
    const rows = contributions.map((one) => el("tr", {}, el("th", { scope: "row" }, label(one.signal)), el("td", {}, el("meter", { class: "share", min: "0", max: "1", value: String(one.share) }, "")), el("td", { class: "number" }, `${Math.round(one.share * 100)} %`)));
    return [
      el("section", { class: "panel" }, el("h2", {}, label(finding.signal), el("span", { class: "muted" }, ` ${measure}`)),
        el("div", { class: "explain" }, canvas, el("p", { class: "legend" }, key("mean", "measured"), key("expected", "expected"), key("span", "the finding"), read),
          peers ? el("p", { class: "muted" }, `Meanwhile on ${plural(peers.assets, "other asset")} of its kind: ${number(peers.median)} ${measure} in the middle${peers.assets > 4 ? `, most from ${number(peers.low)} to ${number(peers.high)}` : ""}.`) : null,
          points.length ? null : el("p", { class: "muted" }, "Nothing of this signal is stored for that time."))),
      ...(finding.retracted_at ? [notice("Readings that came late contradict this finding; it was taken back.")] : []),
      ...also.filter((one) => one.points.length).map((one) => this.beside(finding, one)),
      ...(corrections.length ? [this.corrected(finding, corrections)] : []),
      el("section", { class: "panel" }, el("h2", {}, "What to do"), el("p", { class: "todo" }, finding.advice || "The detector knows no advice; look at the signal and its neighbours.")),
      ...(rows.length > 1 ? [el("section", { class: "panel" }, el("h2", {}, "Which signals carried it"), scrolling("Contributions", [["Signal"], ["Share"], ["", true]], rows))] : []),
    ];
  }

  beside(finding, around) {
    const [canvas, read] = this.plot(finding, around, `${label(around.signal)} in the same time, ${plural(around.points.length, "window")} drawn`);
    return el("section", { class: "panel beside" }, el("h2", {}, label(around.signal), el("span", { class: "muted" }, ` ${unit(around.unit)}, in the same time`)),
      el("div", { class: "explain" }, canvas, el("p", { class: "legend" }, read)));
  }

  corrected(finding, corrections) {
    const rows = corrections.map((one) => el("tr", {}, el("td", {}, moment(Date.parse(one.corrected_at))), el("td", {}, CHANGES[one.kind] ?? one.kind),
      el("td", { class: "wrap" }, one.reason), el("td", { class: "wrap" }, one.opened_at ? `since ${moment(Date.parse(one.opened_at))}${one.closed_at ? ` until ${moment(Date.parse(one.closed_at))}` : ""}, ${one.observed === null ? "" : `${number(one.observed)} ${unit(finding.unit)}`}` : "nothing")));
    return el("section", { class: "panel" }, el("h2", {}, "What late readings changed"), scrolling("Corrections", [["When"], ["What"], ["Why"], ["It had said"]], rows));
  }

  spoken(finding, around) {
    const seen = finding.observed === null ? "" : `seen ${number(finding.observed)} ${unit(finding.unit)}, `;
    return `${label(finding.signal)}: ${seen}expected ${this.band(around.expected, finding.unit)}, ${plural(around.points.length, "window")} drawn`;
  }

  band({ low, high }, name) {
    if (low === null && high === null) return "no band";
    if (low === null) return `at most ${number(high)} ${unit(name)}`;
    return high === null ? `at least ${number(low)} ${unit(name)}` : `${number(low)} to ${number(high)} ${unit(name)}`;
  }

  take(whole) {
    const { alert } = whole;
    const finding = this.explanation?.finding;
    this.seen = alert.event_no;
    this.head.replaceChildren(`${alert.asset ?? alert.device}: ${causeWord(alert.cause)} `, grade(alert.severity));
    const seen = finding?.observed == null ? "" : `${number(finding.observed)} ${unit(finding.unit)} seen, ${this.band(this.explanation.around.expected, finding.unit)} expected. `;
    this.lead.replaceChildren(`${seen}Since ${moment(Date.parse(alert.since))}${alert.running ? ", and still there" : ""}. `, el("b", { class: "standing" }, standing(alert)));
    this.moves.replaceChildren(...MOVES.filter(([, move]) => whole.moves.includes(move.to_state)).map(([words, move, named, first]) =>
      el("button", { type: "button", class: `step${first ? " first" : ""}`, onclick: () => this.move(move, named) }, words)));
    this.drawFacts(alert);
    this.rest.replaceChildren(...this.drawRest(whole));
  }

  drawFacts(alert) {
    const believed = this.explanation?.believed;
    const judged = believed ? believed.confirmed + believed.wrong : 0;
    const finding = this.explanation?.finding;
    const rows = [
      ["Detector", alert.detector],
      ["Its record with you", judged ? `right in ${believed.confirmed} of ${plural(judged, "judged alert")}${believed.unclear ? `, ${believed.unclear} unclear` : ""}` : "nobody has judged an alert of it yet"],
      ["On a healthy machine", finding?.probability == null ? "the detector cannot tell how rare this is" : `about 1 in ${number(Math.round(1 / Math.max(finding.probability, 1e-12)))} readings`],
      ["Score", finding ? `${number(finding.score)}, alarm above ${number(finding.threshold)}` : "–"],
      ["Lasted", finding ? `${plural(finding.readings, "reading")} in alarm` : "–"],
      ["Readings", finding?.readings_lost ? "some came too late to be judged" : "all of them were judged"],
    ];
    this.facts.replaceChildren(...rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
  }

  drawRest({ events, items, children, alert }) {
    const panel = (title, label, columns, rows) => el("section", { class: "panel" }, el("h2", {}, title), scrolling(label, columns, rows));
    const when = (at) => el("td", {}, moment(Date.parse(at)));
    const history = [...events].reverse().map((event) => el("tr", {}, when(event.at),
      el("td", {}, event.kind === "moved" ? stateWord(event.to_state) : KINDS[event.kind] ?? event.kind), el("td", {}, event.resolution ?? "–"),
      el("td", {}, event.assignee ?? "–"), el("td", {}, event.by_whom.replace(/^key:[0-9a-z]+\//, "")), el("td", { class: "wrap" }, event.note || "–")));
    const findings = items.map((item) => el("tr", { class: item.holds ? null : "stale" }, when(item.opened_at), el("td", {}, grade(item.severity)),
      el("th", { scope: "row" }, label(item.signal)), el("td", {}, item.detector), el("td", {}, !item.holds ? "taken back" : item.closed_at ? "over" : "still there")));
    const grouped = children.map((child) => el("tr", {}, el("td", {}, grade(child.severity)),
      el("th", { scope: "row" }, el("a", { href: `#/alerts/${child.alert_id}` }, `${child.asset ?? "–"}: ${causeWord(child.cause)}`)), el("td", {}, stateWord(child.state))));
    const similar = (this.explanation?.similar ?? []).map((one) => el("tr", {}, when(one.resolved_at),
      el("th", { scope: "row" }, el("a", { href: `#/alerts/${one.alert_id}` }, one.asset ?? "–")), el("td", {}, one.detector), el("td", {}, one.resolution), el("td", { class: "wrap" }, one.note || "–")));
    return [
      alert.root ? el("p", { class: "notice" }, "One of many that began together: ", el("a", { href: `#/alerts/${alert.root}` }, "see the first of them")) : null,
      grouped.length ? panel("Grouped with it", "Grouped alerts", [["Grade"], ["What"], ["State"]], grouped) : null,
      panel("Findings", "Findings", [["Began"], ["Grade"], ["Signal"], ["Detector"], ["State"]], findings),
      similar.length ? panel("Cases like it", "Cases like it", [["Resolved"], ["Asset"], ["Detector"], ["Found"], ["Note"]], similar) : null,
      panel("History", "History", [["When"], ["What"], ["Found"], ["With"], ["Who"], ["Note"]], history),
    ].filter(Boolean);
  }

  async move(move, named) {
    const actor = this.actor.value.trim();
    if (named && !actor) { text(this.said, "Say who you are first: the alert is assigned to that name."); this.actor.focus(); return; }
    if (actor) sessionStorage.setItem(ACTOR, actor);
    text(this.said, "");
    try {
      const whole = await post(`/alerts/${this.id}/transitions`, { ...move, actor, note: this.note.value.trim(), event_no: this.seen, ...(named ? { assignee: actor } : {}) });
      this.note.value = "";
      this.take(whole);
    } catch (error) {
      this.failed(error);
      if (error instanceof Problem && error.status === 409) this.reload().catch(() => {});
    }
  }

  failed(error) {
    if (error instanceof Problem && error.status !== 401) text(this.said, error.message);
    else if (error instanceof Problem) this.shell.failed(error);
    else text(this.said, "The server did not answer; nothing was changed. Try again.");
  }
}
