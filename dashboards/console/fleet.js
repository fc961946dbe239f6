// The fleet: every asset with the state and the age of its data, by kind, searched, filtered, sorted, live.

import { Problem, all, listen, now } from "./client.js";
import { STATES, el, notice, stateBadge, stateMark, text } from "./dom.js";
import { age, count, moment, plural, word } from "./format.js";
import { HEADLINES, KIND_NAMES, catalogue, label } from "./signals.js";
import { ageS, isBad, qualityText, stateOf } from "./state.js";

const RELOAD_MS = 15000; // states, new assets, signals outside the headline
const FIRST_ROWS = 150; // of a kind; more on request, so that ten thousand assets do not freeze the page
const MOST_SIGNALS = 8;

let kept = { search: "", state: null, sort: "name", down: false }; // survives a look at one asset

export function fleetView(root, shell) {
  const stop = new AbortController();
  const view = new Fleet(root, shell, stop.signal);
  document.title = "Fleet · Fleetstream";
  view.start().catch((error) => shell.failed(error, root));
  return () => stop.abort();
}

class Fleet {
  constructor(root, shell, signal) {
    Object.assign(this, { root, shell, signal, assets: new Map(), rows: new Map(), shown: new Map() });
    this.field = el("input", {
      type: "search", placeholder: "Search assets", "aria-label": "Search assets by name", value: kept.search,
      oninput: () => { kept.search = this.field.value; this.draw(); },
    });
    this.chips = el("div", { class: "chips", role: "group", "aria-label": "Filter by state of data" });
    this.lists = el("div", { class: "lists" }, notice("Loading the fleet…"));
    this.title = el("p", { class: "muted lead" });
    root.append(el("div", { class: "page" },
      el("div", { class: "head" }, el("div", {}, el("h1", {}, "Fleet"), this.title), el("div", { class: "tools" }, this.field)),
      this.chips, this.lists));
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || /^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) return;
      event.preventDefault();
      this.field.focus();
    }, { signal });
  }

  async start() {
    this.catalogue = await catalogue();
    await this.load();
    const ticking = setInterval(() => this.tick(), 1000);
    const loading = setInterval(() => this.load().catch((error) => this.trouble(error)), RELOAD_MS);
    this.signal.addEventListener("abort", () => { clearInterval(ticking); clearInterval(loading); });
    const kinds = new Set([...this.assets.values()].map((asset) => asset.kind));
    const signals = [...new Set([...kinds].flatMap((kind) => HEADLINES[kind] ?? []))];
    await listen({ signal: signals }, this.signal, (name, data) => this.hear(name, data));
  }

  trouble(error) {
    if (error instanceof Problem && error.status === 401) this.shell.failed(error);
    else this.shell.link("down");
  }

  async load() {
    const signals = [...new Set(Object.values(HEADLINES).flat())];
    const groups = [];
    for (let at = 0; at < signals.length; at += MOST_SIGNALS) groups.push(signals.slice(at, at + MOST_SIGNALS));
    const wanted = this.assets.size ? groups.filter((group) => group.some((path) => this.used?.has(path))) : groups;
    const answers = await Promise.all(wanted.map((signal) => all("/assets", { signal, limit: 2000 }, this.signal)));
    const names = new Set();
    for (const body of answers) for (const item of body.items) { this.take(item); names.add(item.name); }
    for (const name of [...this.assets.keys()]) if (!names.has(name)) this.assets.delete(name);
    this.used = new Set([...this.assets.values()].flatMap((asset) => HEADLINES[asset.kind] ?? []));
    if (!this.used.size) this.used = new Set(signals.slice(0, 1));
    this.draw();
  }

  take(item) {
    const asset = this.assets.get(item.name) ?? { name: item.name, values: new Map(), measuredMs: null, receivedMs: null };
    asset.kind = item.kind;
    asset.devices = item.devices;
    asset.signals = item.signals;
    asset.recording = item.state === "recording";
    // what the stream told meanwhile is newer than this answer
    if (item.measured_at) asset.measuredMs = Math.max(asset.measuredMs ?? 0, Date.parse(item.measured_at));
    if (item.received_at) asset.receivedMs = Math.max(asset.receivedMs ?? 0, Date.parse(item.received_at));
    for (const value of item.values) this.keep(asset, value);
    this.assets.set(item.name, asset);
  }

  keep(asset, value) {
    const ms = Date.parse(value.measured_at);
    const old = asset.values.get(value.signal);
    if (old && old.ms > ms) return;
    asset.values.set(value.signal, { ...value, ms });
  }

  hear(name, data) {
    this.shell.link(name === "down" || name === "bye" ? "down" : "live");
    if (name === "reset") this.load().catch((error) => this.trouble(error));
    if (name === "notice") this.shell.crashed(data.notice);
    if (name !== "values") return;
    for (const value of data.values) {
      const asset = this.assets.get(value.asset);
      if (!asset) continue;
      this.keep(asset, value);
      asset.measuredMs = Math.max(asset.measuredMs ?? 0, Date.parse(value.measured_at));
      asset.receivedMs = Math.max(asset.receivedMs ?? 0, Date.parse(value.received_at));
      this.fill(asset);
    }
  }

  tick() {
    const before = this.counted;
    this.countStates();
    if (before !== this.counted && kept.state) this.draw();
    for (const name of this.rows.keys()) this.fill(this.assets.get(name));
  }

  countStates() {
    const at = now();
    const counts = Object.fromEntries(Object.keys(STATES).map((state) => [state, 0]));
    for (const asset of this.assets.values()) counts[stateOf(asset, at)] += 1;
    const key = JSON.stringify([counts, kept.state]);
    text(this.title, `${plural(this.assets.size, "asset")}, ${count(counts.live)} live`);
    if (key === this.counted) return;
    this.counted = key;
    const focused = this.chips.contains(document.activeElement) ? document.activeElement.dataset.state : null;
    this.chips.replaceChildren(...Object.entries(STATES).filter(([state]) => counts[state] || state === kept.state || state === "live")
      .map(([state, one]) => el("button", {
        type: "button", class: "chip", "data-state": state, "aria-pressed": String(kept.state === state), title: one.hint,
        onclick: () => { kept.state = kept.state === state ? null : state; this.draw(); },
      }, stateMark(state), el("span", {}, one.label), el("b", {}, count(counts[state])))));
    if (focused) this.chips.querySelector(`[data-state="${focused}"]`)?.focus();
  }

  chosen() {
    const wanted = kept.search.trim().toLowerCase();
    const at = now();
    return [...this.assets.values()].filter((asset) =>
      (!wanted || asset.name.toLowerCase().includes(wanted) || asset.devices.some((device) => device.toLowerCase().includes(wanted)))
      && (!kept.state || stateOf(asset, at) === kept.state));
  }

  draw() {
    this.countStates();
    const found = this.chosen();
    this.rows.clear();
    const tables = Object.keys(KIND_NAMES).map((kind) => [kind, found.filter((asset) => asset.kind === kind)])
      .filter(([, assets]) => assets.length).map(([kind, assets]) => this.table(kind, assets));
    if (!tables.length) {
      tables.push(notice(this.assets.size ? "No asset matches." : "There is no asset yet. Enrol a device: fleetstream device enrol --help"));
    }
    const focused = document.activeElement?.dataset?.focus;
    this.lists.replaceChildren(...tables);
    if (focused) this.lists.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
  }

  table(kind, assets) {
    const paths = HEADLINES[kind] ?? [];
    const sorted = this.sorted(assets, paths);
    const most = this.shown.get(kind) ?? FIRST_ROWS;
    const head = el("tr", {}, this.header("State", "state", kind), this.header("Asset", "name", kind),
      ...paths.map((path) => this.header(label(path), path, kind, "number", this.catalogue.get(path)?.text)),
      this.header("Age of data", "age", kind, "number"));
    const body = el("tbody", {}, ...sorted.slice(0, most).map((asset) => this.row(asset, paths)));
    const more = sorted.length > most ? el("button", {
      type: "button", class: "quiet more", onclick: () => { this.shown.set(kind, most + 1000); this.draw(); },
    }, `Show more (${count(sorted.length - most)} not shown)`) : null;
    return el("section", { class: "panel" },
      el("h2", {}, KIND_NAMES[kind], el("span", { class: "muted" }, ` ${count(assets.length)}`)),
      el("table", { class: "fleet" }, el("thead", {}, head), body), more);
  }

  header(title, sort, kind, shape = "", hint = null) {
    const here = kept.sort === sort;
    return el("th", { scope: "col", class: `${shape} col-${sort.replace(/\W/g, "-")}`, "aria-sort": here ? (kept.down ? "descending" : "ascending") : null },
      el("button", {
        type: "button", title: hint, "data-focus": `${kind}:${sort}`,
        onclick: () => { kept = { ...kept, sort, down: here ? !kept.down : shape === "number" && sort !== "age" }; this.draw(); },
      }, title, el("span", { class: "arrow", "aria-hidden": "true" }, here ? (kept.down ? "↓" : "↑") : "")));
  }

  sorted(assets, paths) {
    const at = now();
    const order = Object.keys(STATES);
    const by = {
      name: (asset) => asset.name,
      state: (asset) => order.indexOf(stateOf(asset, at)),
      age: (asset) => ageS(asset.measuredMs, at),
    }[kept.sort] ?? (paths.includes(kept.sort) ? (asset) => asset.values.get(kept.sort)?.value ?? null : (asset) => asset.name);
    const natural = new Intl.Collator("en", { numeric: true });
    const sign = kept.down ? -1 : 1;
    return assets.sort((left, right) => {
      const [a, b] = [by(left), by(right)];
      if (a === null || b === null) return (a === null) - (b === null); // nothing sorts last, whichever way
      return sign * (typeof a === "string" ? natural.compare(a, b) : a - b) || natural.compare(left.name, right.name);
    });
  }

  row(asset, paths) {
    const cells = {
      state: el("td", { class: "col-state" }), age: el("td", { class: "number col-age" }),
      values: paths.map((path) => [path, el("td", { class: "number" })]),
    };
    const address = `#/asset/${encodeURIComponent(asset.name)}`;
    const made = el("tr", { onclick: (event) => { if (!event.target.closest("a") && !getSelection().toString()) location.hash = address; } },
      cells.state, el("th", { scope: "row" }, el("a", { href: address, "data-focus": asset.name }, asset.name)),
      ...cells.values.map(([, cell]) => cell), cells.age);
    this.rows.set(asset.name, cells);
    this.fill(asset);
    return made;
  }

  fill(asset) {
    const cells = asset && this.rows.get(asset.name);
    if (!cells) return;
    const at = now();
    const state = stateOf(asset, at);
    if (cells.state.dataset.state !== state) {
      cells.state.dataset.state = state;
      cells.state.replaceChildren(stateBadge(state));
    }
    text(cells.age, age(ageS(asset.measuredMs, at)));
    cells.age.title = asset.measuredMs === null ? "never sent anything" : `measured ${moment(asset.measuredMs)}`;
    const stale = state !== "live" && state !== "recording";
    for (const [path, cell] of cells.values) this.fillValue(cell, asset.values.get(path), path, stale);
  }

  fillValue(cell, value, path, stale) {
    const signal = this.catalogue.get(path);
    const [shown, unit] = word(value?.value ?? null, signal);
    const bad = value && isBad(value.quality);
    const key = `${shown}|${unit}|${stale}|${bad}`;
    if (cell.dataset.key === key) return;
    cell.dataset.key = key;
    cell.className = `number${stale ? " stale" : ""}${bad ? " bad" : ""}${value ? "" : " nothing"}`;
    cell.title = value ? `${signal?.text ?? path} Measured ${moment(value.ms)}, quality: ${qualityText(value.quality)}` : "no value yet";
    cell.replaceChildren(shown, ...(value && value.value !== null ? [el("span", { class: "unit" }, unit)] : []), ...(bad ? [el("span", { class: "flag" }, "!")] : []));
  }
}
