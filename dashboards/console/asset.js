// One asset: its latest values and a live chart for each signal. Short ranges draw readings, longer ones windows.

import { all, get, listen, now } from "./client.js";
import { Chart } from "./chart.js";
import { drawCorrected } from "./corrected.js";
import { DARK, el, notice, stateBadge, text } from "./dom.js";
import { exportPanel } from "./exports.js";
import { NOTHING, age, clock, isFlag, moment, number, plural, shownAs, word, zoneName } from "./format.js";
import { HEADLINES, catalogue, label } from "./signals.js";
import { ageS, isBad, qualityText, stateOf } from "./state.js";

const MINUTE = 60000;
const RANGES = [
  { name: "5 min", ms: 5 * MINUTE, widthS: 0 },
  { name: "30 min", ms: 30 * MINUTE, widthS: 10 },
  { name: "2 h", ms: 120 * MINUTE, widthS: 10 },
  { name: "12 h", ms: 720 * MINUTE, widthS: 60 },
  { name: "24 h", ms: 1440 * MINUTE, widthS: 60 },
];
const RELOAD_MS = 15000;
const OVERLAP_MS = 3 * MINUTE; // windows stay open for their grace and change when late data comes
const READINGS_GAP_MS = 5000;

let chosen = 0;

export function assetView(root, shell, name) {
  const stop = new AbortController();
  document.title = `${name} · Fleetstream`;
  const view = new AssetView(root, shell, name, stop.signal);
  view.start().catch((error) => shell.failed(error, view.body));
  return () => stop.abort();
}

class AssetView {
  constructor(root, shell, name, signal) {
    Object.assign(this, { shell, name, signal, cards: new Map(), asset: null });
    this.badge = el("span", {});
    this.facts = el("p", { class: "muted lead" });
    this.ranges = el("div", { class: "segments", role: "group", "aria-label": "Time range" }, ...RANGES.map((range, at) =>
      el("button", { type: "button", "aria-pressed": String(at === chosen), onclick: () => this.choose(at) }, range.name)));
    const { open, panel } = exportPanel(name, shell);
    this.how = el("p", { class: "muted how" });
    this.body = el("div", { class: "cards" }, notice("Loading…"));
    root.append(el("div", { class: "page" },
      el("p", { class: "crumb" }, el("a", { href: "#/fleet" }, "Fleet")),
      el("div", { class: "head" }, el("div", {}, el("h1", {}, name, " ", this.badge), this.facts), el("div", { class: "tools" }, this.ranges, open)),
      panel, this.how, this.body));
  }

  get range() {
    return RANGES[chosen];
  }

  async start() {
    this.catalogue = await catalogue();
    await this.loadLatest();
    this.watchSize();
    this.describe();
    const ticking = setInterval(() => this.tick(), 1000);
    const loading = setInterval(() => this.refresh(), RELOAD_MS);
    this.signal.addEventListener("abort", () => { clearInterval(ticking); clearInterval(loading); });
    await listen({ asset: this.name }, this.signal, (name, data) => this.hear(name, data));
  }

  async loadLatest() {
    const { asset } = await get(`/assets/${encodeURIComponent(this.name)}/latest`, {}, this.signal);
    this.asset = {
      ...asset, recording: asset.state === "recording",
      measuredMs: asset.measured_at ? Date.parse(asset.measured_at) : null,
      receivedMs: asset.received_at ? Date.parse(asset.received_at) : null,
    };
    const first = HEADLINES[asset.kind] ?? [];
    const rank = (value) => (first.includes(value.signal) ? first.indexOf(value.signal) : first.length + (this.catalogue.get(value.signal)?.number ?? 0));
    for (const value of asset.values.sort((a, b) => rank(a) - rank(b))) this.card(value.signal).take(value);
    if (!this.cards.size) this.body.replaceChildren(notice("This asset has not sent anything yet. Its charts appear with the first packet."));
    this.tick();
  }

  card(path) {
    let card = this.cards.get(path);
    if (!card) {
      if (!this.cards.size) this.body.replaceChildren();
      card = new Card(this, path, this.catalogue.get(path) ?? { path, unit: "", text: path, kind: "gauge", resolution: 0 });
      this.cards.set(path, card);
      this.body.append(card.root);
      this.seen?.observe(card.root);
    }
    return card;
  }

  watchSize() {
    // only what is on the screen asks for its history
    this.seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const card = this.cards.get(entry.target.dataset.path);
        card.visible = entry.isIntersecting;
        if (card.visible) card.load();
      }
    }, { rootMargin: "200px" });
    const resized = new ResizeObserver(() => { for (const card of this.cards.values()) card.draw(); });
    for (const card of this.cards.values()) this.seen.observe(card.root);
    resized.observe(this.body);
    DARK.addEventListener("change", () => { for (const card of this.cards.values()) card.draw(); }, { signal: this.signal });
    this.signal.addEventListener("abort", () => { this.seen.disconnect(); resized.disconnect(); });
  }

  choose(at) {
    chosen = at;
    [...this.ranges.children].forEach((button, place) => button.setAttribute("aria-pressed", String(place === at)));
    this.describe();
    for (const card of this.cards.values()) { card.reset(); if (card.visible) card.load(); }
  }

  describe() {
    const { widthS } = this.range;
    const what = widthS ? `Windows of ${widthS} s: the line is the mean, the band runs from minimum to maximum, a diamond stands over what late data corrected.` : "Single readings as they arrive.";
    text(this.how, `${what} Hatched: nothing came. Times: ${zoneName()}.`);
  }

  refresh() {
    const failed = (error) => (error.status === 401 ? this.shell.failed(error) : error.name !== "AbortError" && this.shell.link("down"));
    if (this.range.widthS) for (const card of this.cards.values()) if (card.visible) card.load().catch(failed);
    this.loadLatest().catch(failed);
  }

  hear(name, data) {
    this.shell.link(name === "down" || name === "bye" ? "down" : "live");
    if (name === "reset") for (const card of this.cards.values()) { card.reset(); if (card.visible) card.load(); }
    if (name === "notice") this.shell.crashed(data.notice);
    if (name !== "values" || !this.asset) return;
    for (const value of data.values) {
      this.asset.measuredMs = Math.max(this.asset.measuredMs ?? 0, Date.parse(value.measured_at));
      this.asset.receivedMs = Math.max(this.asset.receivedMs ?? 0, Date.parse(value.received_at));
      this.card(value.signal).take(value, true);
    }
    // values that a slow page skipped are in the store: the readings are asked for again
    if (data.skipped) for (const card of this.cards.values()) card.stale = true;
  }

  tick() {
    if (!this.asset) return;
    const at = now();
    const state = stateOf(this.asset, at);
    if (this.badge.dataset.state !== state) { this.badge.dataset.state = state; this.badge.replaceChildren(stateBadge(state)); }
    const { devices, measuredMs } = this.asset;
    const seen = measuredMs === null ? "never sent anything" : `data ${age(ageS(measuredMs, at))} old, measured ${moment(measuredMs)}`;
    text(this.facts, `${devices.length ? `${devices.length > 1 ? "devices" : "device"} ${devices.join(", ")}` : "no device bound now"} · ${plural(this.cards.size, "signal")} · ${seen}`);
    for (const card of this.cards.values()) card.tick(at);
  }
}

class Card {
  constructor(view, path, signal) {
    Object.assign(this, { view, path, signal, value: null, points: [], loadedTo: null, visible: false, loading: false, stale: false });
    this.now = el("b", {});
    this.unit = el("span", { class: "unit" });
    this.age = el("span", { class: "muted" });
    this.flag = el("span", { class: "flag-text" });
    this.canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": `${label(path)}: its history is being asked for` });
    this.shown = shownAs(signal);
    this.read = el("p", { class: "read muted", "aria-live": "polite" });
    this.corrected = el("details", { class: "corrected", hidden: true });
    this.root = el("section", { class: "card", "data-path": path },
      el("header", {}, el("h2", { title: `${path}: ${signal.text}` }, label(path)), el("p", { class: "now" }, this.now, this.unit)),
      this.canvas, el("footer", {}, this.read, this.flag, this.age), this.corrected);
    this.chart = new Chart(this.canvas, {
      stepped: signal.kind === "state", words: isFlag(signal) ? ["No", "Yes"] : null, factor: this.shown.factor,
      resolution: signal.resolution, onRead: (point) => this.tell(point),
    });
  }

  reset() {
    Object.assign(this, { points: [], loadedTo: null });
    this.draw();
  }

  take(value, live = false) {
    const ms = Date.parse(value.measured_at);
    if (this.value && this.value.ms > ms) return;
    const fresh = !this.value || this.value.ms < ms;
    this.value = { ...value, ms };
    const [shown, name] = word(value.value, this.signal);
    text(this.now, shown);
    text(this.unit, value.value === null ? "" : name);
    const bad = isBad(value.quality);
    this.root.classList.toggle("bad", bad);
    text(this.flag, value.quality === "good" ? "" : qualityText(value.quality));
    if (!live || !fresh || this.view.range.widthS || this.loadedTo === null || value.value === null || bad) return;
    this.points.push({ t: ms, low: value.value, mid: value.value, high: value.value });
    this.loadedTo = Math.max(this.loadedTo, ms);
  }

  tick(at) {
    if (this.value) text(this.age, `${age(ageS(this.value.ms, at))} old`.replace("now old", "now"));
    // a state is told when it changes: it is as good as the asset's newest word
    const told = this.signal.kind === "state" ? this.view.asset.measuredMs : this.value?.ms;
    this.root.classList.toggle("old", this.value !== null && at - told > 15000 && !this.view.asset.recording);
    if (this.stale && this.visible) { this.stale = false; this.loadedTo = null; this.load(); }
    this.draw();
  }

  // A recording is looked at where it was recorded, everything else up to this moment.
  end() {
    return this.view.asset?.recording && this.value ? this.value.ms + 1000 : now();
  }

  async load() {
    if (this.loading) return;
    this.loading = true;
    const { range } = this.view;
    const end = this.end();
    try {
      const start = this.loadedTo === null ? end - range.ms : Math.max(end - range.ms, this.loadedTo - OVERLAP_MS);
      const query = { signal: this.path, from: new Date(start).toISOString(), to: new Date(end + 1000).toISOString() };
      const fresh = range.widthS ? await this.windows(query, range.widthS) : await this.readings(query);
      if (range !== this.view.range) return;
      const edge = fresh.length ? fresh[0].t : Infinity;
      const last = fresh.length ? fresh[fresh.length - 1].t : -Infinity;
      this.points = [...this.points.filter((point) => point.t < edge), ...fresh, ...this.points.filter((point) => point.t > last && point.t >= edge)];
      this.loadedTo = end;
      this.draw();
    } catch (error) {
      if (error.name !== "AbortError") text(this.read, "The history is not available just now.");
      if (error.status === 401) this.view.shell.failed(error);
    } finally {
      this.loading = false;
      if (range !== this.view.range && this.visible) this.load();
    }
  }

  async windows(query, widthS) {
    const { items } = await all(`/assets/${encodeURIComponent(this.view.name)}/windows`, { ...query, width_s: widthS, limit: 5000 }, this.view.signal);
    // a window stands in its middle; the newest may still grow
    return items.map((one) => ({
      t: Date.parse(one.starts_at) + widthS * 500, low: one.min, mid: one.mean, high: one.max, n: one.n,
      marked: one.revision > 0, told: one.revision > 0 ? one : null,
    }));
  }

  async readings(query) {
    const { items } = await all(`/assets/${encodeURIComponent(this.view.name)}/readings`, { ...query, limit: 10000 }, this.view.signal);
    return items.filter((one) => one.value !== null && !isBad(one.quality))
      .map((one) => ({ t: Date.parse(one.measured_at), low: one.value, mid: one.value, high: one.value }));
  }

  gapMs() {
    if (this.view.range.widthS) return this.view.range.widthS * 1500;
    if (this.points.length < 3) return READINGS_GAP_MS;
    // sampled by change or slowly: what counts as a gap depends on how often this signal comes
    const steps = [];
    for (let at = Math.max(1, this.points.length - 200); at < this.points.length; at += 1) steps.push(this.points[at].t - this.points[at - 1].t);
    steps.sort((a, b) => a - b);
    return Math.max(READINGS_GAP_MS, 3 * steps[Math.floor(steps.length * 0.9)]);
  }

  draw() {
    if (!this.visible) return;
    const end = this.end();
    const start = end - this.view.range.ms;
    while (this.points.length && this.points[0].t < start - MINUTE) this.points.shift();
    this.chart.set(this.points, start, end, this.gapMs());
    drawCorrected(this.corrected, this.points.filter((point) => point.marked).map((point) => point.told), this.view.range.widthS, (value) => this.word(value));
    this.canvas.setAttribute("aria-label", this.summary());
    if (this.chart.cursor === null) this.tell(null);
  }

  summary() {
    const what = `${label(this.path)}, last ${this.view.range.name}`;
    if (!this.points.length) return `${what}: no data`;
    const low = Math.min(...this.points.map((point) => point.low));
    const high = Math.max(...this.points.map((point) => point.high));
    return `${what}: from ${this.word(low)} to ${this.word(high)}. Arrow keys read single values.`;
  }

  word(value) {
    return word(value, this.signal).join(" ").trim();
  }

  bare(value) {
    return number(value * this.shown.factor, this.shown.resolution);
  }

  tell(point) {
    this.root.classList.toggle("reading", Boolean(point));
    if (!point) text(this.read, this.points.length ? "" : this.loadedTo === null ? "asking for its history…" : `no data in the last ${this.view.range.name}`);
    else if (this.view.range.widthS) text(this.read, `${clock(point.t)}  ${this.word(point.mid)} (${this.bare(point.low)} … ${this.bare(point.high)}, ${point.n} samples${point.marked ? "; corrected by late data" : ""})`);
    else text(this.read, `${clock(point.t)}  ${point.mid === null ? NOTHING : this.word(point.mid)}`);
  }
}
