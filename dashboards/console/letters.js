// Dead letters: what was set aside, what its bytes say, and sending it again, repaired where a clock was wrong.
// #/ledger/letters and #/ledger/letters/ID. For administrators; everybody else reads counts on the ledger.

import { get, now, post } from "./client.js";
import { el, notice, text } from "./dom.js";
import { age, count, moment, number, plural, unit } from "./format.js";
import { label } from "./signals.js";

const ROOMS = { gateway: "the gateway", stream_job: "the stream job" };
const PAGE = 100;
const SHOWN_BYTES = 2048;
const LOOK_MS = 1500;

export function words(reason) {
  return reason.replaceAll("_", " ");
}

export function lettersView(root, shell, id) {
  const stop = new AbortController();
  const body = el("div", {}, notice("Loading…"));
  const crumbs = el("p", { class: "crumb" }, el("a", { href: "#/ledger" }, "Ledger"), id ? " / " : null,
    id ? el("a", { href: "#/ledger/letters" }, "Dead letters") : null);
  root.append(el("div", { class: "page" }, crumbs, el("div", { class: "head" }, el("div", {},
    el("h1", {}, id ? "Dead letter" : "Dead letters"),
    el("p", { class: "muted lead" }, "Messages that were set aside with their bytes. Nothing here is lost; sent again, each is stored once."))), body));
  document.title = "Dead letters · Fleetstream";
  const failed = (error) => shell.failed(error, body);
  if (id) showOne(body, id, stop.signal, shell).catch(failed);
  else showList(body, {}, stop.signal).catch(failed);
  return () => stop.abort();
}

async function showList(body, filter, signal) {
  const found = await get("/dead-letters", { limit: PAGE, ...filter }, signal);
  if (found.letters === null) {
    body.replaceChildren(notice("Letters hold what devices measured, so only keys of the role admin read them. The ledger has the counts."));
    return;
  }
  const reasons = [...new Set(found.letters.map((one) => one.reason))].sort();
  const chips = el("div", { class: "chips", role: "group", "aria-label": "Reason" }, ...[null, ...(filter.reason ? [filter.reason] : reasons)].map((reason) =>
    el("button", { type: "button", class: "chip", "aria-pressed": String((filter.reason ?? null) === reason),
      onclick: () => showList(body, reason ? { reason } : {}, signal).catch(() => {}) }, reason ? words(reason) : "All")));
  if (!found.letters.length) { body.replaceChildren(filter.reason ? chips : "", notice("Nothing was set aside.")); return; }
  const rows = el("tbody", {}, ...found.letters.map(row));
  const more = el("button", { type: "button", class: "quiet more", hidden: !found.next }, "Show older ones");
  let cursor = found.next;
  more.addEventListener("click", async () => {
    const next = await get("/dead-letters", { limit: PAGE, ...filter, cursor }, signal);
    rows.append(...next.letters.map(row));
    cursor = next.next;
    more.hidden = !cursor;
  });
  const heads = [["Received", true], ["Device"], ["Reason"], ["Set aside by"], ["Boot, number", true], ["Bytes", true], ["Sent again"]];
  body.replaceChildren(chips, el("section", { class: "panel letters" }, el("h2", {}, "Newest first"),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Dead letters, scrolls sideways" },
      el("table", {}, el("thead", {}, el("tr", {}, ...heads.map(([title, right]) => el("th", { scope: "col", class: right ? "number" : null }, title)))), rows)), more));
}

function row(one) {
  const ms = Date.parse(one.received_at);
  return el("tr", {}, el("td", { class: "number", title: moment(ms) }, `${age((now() - ms) / 1000)} ago`.replace("now ago", "now")),
    el("th", { scope: "row" }, el("a", { href: `#/ledger/letters/${one.id}` }, one.device || "unknown device")),
    el("td", { title: one.detail || null }, words(one.reason)), el("td", {}, ROOMS[one.kept_by] ?? one.kept_by),
    el("td", { class: "number" }, one.seq === null ? "–" : `${count(one.boot_epoch)}, ${count(one.seq)}`),
    el("td", { class: "number" }, count(one.size_bytes)), el("td", {}, one.sent_again ? "Yes" : "No"));
}

async function showOne(body, id, signal, shell) {
  const whole = await get(`/dead-letters/${id}`, {}, signal);
  const history = el("div", {});
  const parts = [facts(whole), repair(whole, id, history, shell, signal), history, readings(whole.packet), raw(whole)];
  body.replaceChildren(...parts.filter((part) => part !== null));
  tell(history, whole.resubmissions);
  if (whole.resubmissions.some((one) => !one.stored)) follow(history, id, signal);
}

function facts({ letter, packet }) {
  const said = [
    ["Device", letter.device || "unknown"], ["Reason", words(letter.reason) + (letter.detail ? `: ${letter.detail}` : "")],
    ["Set aside by", ROOMS[letter.kept_by] ?? letter.kept_by], ["Received", moment(Date.parse(letter.received_at))],
    ["Came by", letter.came_by],
    ["Boot, number", packet.seq === null ? "–" : `${count(packet.boot_epoch)}, ${count(packet.seq)}`],
    ["Readings", count(packet.samples)], ["Clock was set", packet.clock_trusted === null ? "–" : packet.clock_trusted ? "Yes" : "No"],
  ];
  return el("section", { class: "panel" }, el("h2", {}, "What came"),
    el("dl", { class: "letter-facts" }, ...said.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))));
}

// Milliseconds to add so that the newest reading was measured when the packet was received; null without readings.
function clockError({ letter, packet }) {
  const times = packet.readings.map((one) => Date.parse(one.measured_at)).filter((ms) => !Number.isNaN(ms));
  return times.length ? Date.parse(letter.received_at) - Math.max(...times) : null;
}

function span(ms) {
  const size = age(Math.abs(ms) / 1000);
  return ms < 0 ? `${size} earlier` : `${size} later`;
}

function repair(whole, id, history, shell, signal) {
  const { letter, packet, obstacle } = whole;
  const off = clockError(whole);
  const wrongClock = off !== null && Math.abs(off) > 60000 && ["future", "far_past", "samples", "too_late"].includes(letter.reason);
  const foreign = letter.reason === "tenant_mismatch";
  const told = el("p", { class: "form-error", role: "alert" });
  const radio = (value, checked, ...words_) => el("label", { class: "choice" }, el("input", { type: "radio", name: "times", value, checked }), el("span", {}, ...words_));
  const other = el("input", { type: "number", name: "seconds", step: "any", value: "0", "aria-label": "Seconds to add to every time", class: "seconds" });
  const form = el("form", { class: "repair" },
    packet.readings.length ? el("fieldset", {}, el("legend", {}, "Times of the readings"),
      radio("keep", !wrongClock, "are right"),
      off === null ? null : radio("received", wrongClock, `were wrong: the newest was measured when the packet was received (${span(off)})`),
      radio("other", false, "were wrong by ", other, " seconds")) : null,
    foreign ? el("label", { class: "choice" }, el("input", { type: "checkbox", name: "take" }), el("span", {}, `The packet names the tenant “${packet.tenant}”; it is ours.`)) : null,
    el("button", { type: "submit", class: "primary" }, "Send again"), told);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    text(told, "");
    const times = form.elements.times?.value ?? "keep";
    const shift = times === "received" ? off : times === "other" ? Math.round(Number(other.value) * 1000) : 0;
    try {
      const done = await post(`/dead-letters/${id}/resubmit`, { shift_ms: shift, take_over: form.elements.take?.checked ?? false });
      tell(history, done.resubmissions, !done.sent);
      follow(history, id, signal);
    } catch (error) {
      if (error.status === 401) shell.failed(error);
      else if (error.name !== "AbortError") text(told, error.message);
    }
  });
  const hint = obstacle ? el("p", { class: "hint" }, `As it is it cannot be stored: ${obstacle}.`) : null;
  return el("section", { class: "panel" }, el("h2", {}, "Send again"), hint, form);
}

// Until the store has what was sent.
async function follow(history, id, signal) {
  while (!signal.aborted) {
    await new Promise((done) => { setTimeout(done, LOOK_MS); });
    try {
      const { resubmissions } = await get(`/dead-letters/${id}`, {}, signal);
      tell(history, resubmissions);
      if (resubmissions.every((one) => one.stored)) return;
    } catch (error) {
      if (error.name === "AbortError" || error.status === 401) return;
    }
  }
}

function tell(place, items, already = false) {
  const said = already ? notice("The store has it already; nothing was sent.") : null;
  if (!items.length) { place.replaceChildren(...(said ? [said] : [])); return; }
  const rows = items.map((one) => el("tr", {}, el("td", { class: "number" }, moment(Date.parse(one.asked_at))), el("td", {}, one.asked_by),
    el("td", { class: "number" }, `${count(one.boot_epoch)}, ${count(one.seq)}${one.rescued ? " (new)" : ""}`),
    el("td", { class: "number" }, one.shift_ms ? span(one.shift_ms) : "as sent"), el("td", { class: "number" }, count(one.samples)),
    el("td", { class: `outcome ${one.stored ? "good" : "wait"}` }, one.stored ? "✓ Stored" : "… On its way")));
  const heads = [["Asked", true], ["By"], ["Boot, number", true], ["Times", true], ["Readings", true], ["What became of it"]];
  place.replaceChildren(...(said ? [said] : []), el("section", { class: "panel", role: "status" }, el("h2", {}, "Sent again ", el("span", { class: "muted" }, "every copy of one number is stored once")),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "What was sent, scrolls sideways" },
      el("table", {}, el("thead", {}, el("tr", {}, ...heads.map(([title, right]) => el("th", { scope: "col", class: right ? "number" : null }, title)))), el("tbody", {}, ...rows)))));
}

function readings(packet) {
  if (!packet.readings.length) return notice(packet.fault ? `Its readings cannot be read (${words(packet.fault)}).` : "It holds no readings.");
  const rows = packet.readings.map((one) => el("tr", {}, el("th", { scope: "row", title: one.signal }, label(one.signal)),
    el("td", { class: "number" }, one.measured_at ? moment(Date.parse(one.measured_at)) : "beyond any calendar"),
    el("td", { class: "number" }, `${number(one.value)} ${one.value === null ? "" : unit(one.unit)}`), el("td", {}, words(one.quality))));
  const doubt = packet.fault ? ` not to be believed: ${words(packet.fault)}` : ` ${plural(packet.readings.length, "reading")}`;
  return el("section", { class: "panel" }, el("h2", {}, "What it says", el("span", { class: "muted" }, doubt)),
    el("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Readings of the packet, scrolls" }, el("table", {},
      el("thead", {}, el("tr", {}, ...[["Signal"], ["Measured", true], ["Value", true], ["Quality"]].map(([title, right]) => el("th", { scope: "col", class: right ? "number" : null }, title)))),
      el("tbody", {}, ...rows))));
}

function raw({ bytes_hex: hex, letter }) {
  const lines = hex.slice(0, SHOWN_BYTES * 2).match(/.{1,64}/g) ?? [];
  const shown = lines.map((line, at) => `${(at * 32).toString(16).padStart(5, "0")}  ${line.match(/.{1,2}/g).join(" ")}`).join("\n");
  const cut = letter.size_bytes > SHOWN_BYTES ? `, the first ${count(SHOWN_BYTES)} are shown` : "";
  return el("details", { class: "panel raw" }, el("summary", {}, `${plural(letter.size_bytes, "byte")}${cut}`), el("pre", { tabindex: "0" }, shown));
}
