// The map: where every asset is, with the state of its data; a list of what is in view says the same in words.

import { Problem, get, listen, now } from "./client.js";
import { STATES, el, notice, stateBadge, stateMark, text } from "./dom.js";
import { NOTHING, age, count, moment, number, plural } from "./format.js";
import { fit, toWorld } from "./geo.js";
import { MapCanvas } from "./mapcanvas.js";
import { ageS, stateOf } from "./state.js";

const RELOAD_MS = 15000;
const IN_LIST = 60;
const TRAIL_MS = 15 * 60 * 1000;
const TRAIL_GAP_MS = 60 * 1000;
const LOCATION = "Vehicle.CurrentLocation.";
const SEVERE_FIRST = ["silent", "delayed", "catching_up", "live", "recording", "no_data"];
const NATURAL = new Intl.Collator("en", { numeric: true });

let kept = { view: null, chosen: null, search: "", state: null }; // survives a look at one asset

export function mapView(root, shell) {
  const stop = new AbortController();
  const page = new MapPage(root, shell, stop.signal);
  document.title = "Map · Fleetstream";
  page.start().catch((error) => shell.failed(error, root));
  return () => { stop.abort(); page.map.close(); };
}

class MapPage {
  constructor(root, shell, signal) {
    Object.assign(this, { shell, signal, assets: new Map(), waiting: false });
    this.canvas = el("canvas", {
      tabindex: "0", role: "application",
      "aria-label": "Map of the fleet. Arrow keys move it, plus and minus zoom. The list beside it holds the same assets.",
    });
    this.card = el("section", { class: "map-card", "aria-live": "polite", hidden: true });
    this.field = el("input", {
      type: "search", placeholder: "Search assets", "aria-label": "Search assets by name", value: kept.search,
      oninput: () => { kept.search = this.field.value; this.show(); },
    });
    this.title = el("p", { class: "muted lead" });
    this.chips = el("div", { class: "chips", role: "group", "aria-label": "Filter by state of data" });
    this.list = el("ul", { class: "map-list", "aria-label": "Assets in view" }, notice("Loading the fleet…"));
    const tool = (sign, hint, act) => el("button", { type: "button", title: hint, "aria-label": hint, onclick: act }, sign);
    const tools = el("div", { class: "map-tools", role: "group", "aria-label": "Zoom" },
      tool("+", "Zoom in", () => this.map.zoom(1.6)), tool("\u2212", "Zoom out", () => this.map.zoom(1 / 1.6)),
      tool("Fit", "Show the whole fleet", () => this.whole()));
    root.append(el("div", { class: "map-page" },
      el("div", { class: "map-stage" }, this.canvas, this.card, tools, el("span", { class: "map-source" }, "Outlines: Natural Earth. Places: GeoNames, CC BY 4.0")),
      el("aside", { class: "map-side" },
        el("header", {}, el("h1", {}, "Map"), this.title, this.field, this.chips), this.list)));
    this.map = new MapCanvas(this.canvas, {
      onMove: () => { kept.view = this.map.view; this.later(); },
      onPick: (name) => this.choose(name),
    });
    this.canvas.fleetMap = this.map; // for the benchmark in a browser
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && kept.chosen) this.choose(null);
    }, { signal });
  }

  async start() {
    const outlines = fetch("world.json", { signal: this.signal }).then((answer) => answer.json());
    outlines.then((told) => this.map.land(told)).then(() => fetch("details.json", { signal: this.signal }))
      .then((answer) => answer.json()).then((told) => this.map.detail(told)).catch(() => {}); // the assets are worth showing without it
    await this.load();
    if (kept.view) this.map.look(kept.view);
    else this.whole();
    if (kept.chosen) this.choose(kept.chosen);
    const ticking = setInterval(() => this.show(), 1000);
    const loading = setInterval(() => this.load().catch((error) => this.trouble(error)), RELOAD_MS);
    this.signal.addEventListener("abort", () => { clearInterval(ticking); clearInterval(loading); clearTimeout(this.timer); });
    const signals = [`${LOCATION}Latitude`, `${LOCATION}Longitude`, `${LOCATION}Heading`, "Vehicle.Speed"];
    await listen({ signal: signals }, this.signal, (name, data) => this.hear(name, data));
  }

  trouble(error) {
    if (error instanceof Problem && error.status === 401) this.shell.failed(error);
    else this.shell.link("down");
  }

  async load() {
    const told = await get("/positions", {}, this.signal);
    const names = new Set(told.name);
    for (const name of this.assets.keys()) if (!names.has(name)) this.assets.delete(name);
    told.name.forEach((name, n) => {
      const asset = this.assets.get(name) ?? { name, measuredMs: null, receivedMs: null, positionMs: null };
      asset.kind = told.kind[n];
      asset.recording = told.state[n] === "recording";
      const measured = told.measured_at[n] === null ? null : Date.parse(told.measured_at[n]);
      if (measured !== null && measured >= (asset.measuredMs ?? 0)) {
        asset.measuredMs = measured;
        asset.receivedMs = Date.parse(told.received_at[n]);
      }
      const positionMs = told.position_at[n] === null ? null : Date.parse(told.position_at[n]);
      if (asset.latitude === undefined || (positionMs ?? 0) >= (asset.positionMs ?? 0)) {
        Object.assign(asset, {
          latitude: told.latitude[n], longitude: told.longitude[n], heading: told.heading[n], speed: told.speed[n], positionMs,
        });
        this.put(asset);
      }
      this.assets.set(name, asset);
    });
    this.show();
  }

  put(asset) {
    const known = Number.isFinite(asset.latitude) && Number.isFinite(asset.longitude);
    [asset.x, asset.y] = known ? toWorld(asset.latitude, asset.longitude) : [null, null];
  }

  hear(name, data) {
    this.shell.link(name === "down" || name === "bye" ? "down" : "live");
    if (name === "reset") this.load().catch((error) => this.trouble(error));
    if (name === "notice") this.shell.crashed(data.notice);
    if (name !== "values") return;
    for (const value of data.values) {
      const asset = this.assets.get(value.asset);
      if (!asset || value.value === null) continue;
      const ms = Date.parse(value.measured_at);
      asset.measuredMs = Math.max(asset.measuredMs ?? 0, ms);
      asset.receivedMs = Math.max(asset.receivedMs ?? 0, Date.parse(value.received_at));
      const field = value.signal === "Vehicle.Speed" ? "speed" : value.signal.slice(LOCATION.length).toLowerCase();
      if (field !== "speed" && ms < (asset.positionMs ?? 0)) continue;
      asset[field] = value.value;
      if (field !== "speed") asset.positionMs = ms;
      this.put(asset);
    }
    this.later();
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    this.timer = setTimeout(() => { this.waiting = false; this.show(); }, 200);
  }

  whole() {
    const points = [...this.assets.values()].filter((one) => one.x !== null).map((one) => [one.x, one.y]);
    this.map.look(fit(points, ...this.map.size));
  }

  chosenAssets() {
    const wanted = kept.search.trim().toLowerCase();
    const at = now();
    const found = [];
    for (const asset of this.assets.values()) {
      asset.state = stateOf(asset, at);
      if ((!wanted || asset.name.toLowerCase().includes(wanted)) && (!kept.state || asset.state === kept.state)) found.push(asset);
    }
    return found;
  }

  show() {
    const found = this.chosenAssets();
    const placed = found.filter((asset) => asset.x !== null);
    this.map.set(placed);
    const [left, top, right, bottom] = this.map.box();
    const seen = placed.filter((one) => one.x >= left && one.x <= right && one.y >= top && one.y <= bottom);
    const nowhere = found.length - placed.length;
    text(this.title, `${count(seen.length)} of ${plural(this.assets.size, "asset")} in view${nowhere ? `, ${count(nowhere)} without a position` : ""}`);
    this.drawChips();
    this.drawList(seen);
    this.drawCard();
  }

  drawChips() {
    const counts = Object.fromEntries(Object.keys(STATES).map((state) => [state, 0]));
    for (const asset of this.assets.values()) counts[asset.state] += 1;
    const key = JSON.stringify([counts, kept.state]);
    if (key === this.counted) return;
    this.counted = key;
    const focused = this.chips.contains(document.activeElement) ? document.activeElement.dataset.state : null;
    this.chips.replaceChildren(...Object.entries(STATES).filter(([state]) => counts[state] || state === kept.state)
      .map(([state, one]) => el("button", {
        type: "button", class: "chip", "data-state": state, "aria-pressed": String(kept.state === state), title: one.hint,
        onclick: () => { kept.state = kept.state === state ? null : state; this.show(); },
      }, stateMark(state), el("span", {}, one.label), el("b", {}, count(counts[state])))));
    if (focused) this.chips.querySelector(`[data-state="${focused}"]`)?.focus();
  }

  drawList(seen) {
    const at = now();
    seen.sort((a, b) => SEVERE_FIRST.indexOf(a.state) - SEVERE_FIRST.indexOf(b.state) || NATURAL.compare(a.name, b.name));
    const rows = seen.slice(0, IN_LIST).map((asset) => [asset.name, asset.state, age(ageS(asset.measuredMs, at))]);
    const key = JSON.stringify([rows, kept.chosen, seen.length]);
    if (key === this.listed) return;
    this.listed = key;
    const focused = this.list.contains(document.activeElement) ? document.activeElement.dataset.name : null;
    const items = rows.map(([name, state, old]) => el("li", {}, el("button", {
      type: "button", "data-name": name, "aria-pressed": String(name === kept.chosen), title: STATES[state].label,
      onclick: () => this.choose(name, true),
    }, el("span", { class: `state-${state}` }, stateMark(state)), el("span", {}, name), el("span", { class: "muted" }, old))));
    if (!items.length) items.push(el("li", {}, notice("No asset in view. Zoom out, or show the whole fleet.")));
    if (seen.length > IN_LIST) items.push(el("li", {}, notice(`${count(seen.length - IN_LIST)} more; zoom in or search.`)));
    this.list.replaceChildren(...items);
    if (focused) this.list.querySelector(`[data-name="${CSS.escape(focused)}"]`)?.focus();
  }

  choose(name, move = false) {
    kept.chosen = name;
    const asset = this.assets.get(name);
    this.map.choose(name);
    if (asset && move && asset.x !== null) this.map.look({ x: asset.x, y: asset.y, k: Math.max(this.map.view.k, 3e5) });
    if (asset?.positionMs) this.loadTrail(name).catch((error) => this.trouble(error));
    this.show();
  }

  // The last quarter of an hour, as one line per stretch without a gap.
  async loadTrail(name) {
    const asset = this.assets.get(name);
    const span = { from: new Date(asset.positionMs - TRAIL_MS).toISOString(), to: new Date(asset.positionMs + 1).toISOString() };
    const path = `/assets/${encodeURIComponent(name)}/readings`;
    const [lat, lon] = await Promise.all(["Latitude", "Longitude"].map((part) =>
      get(path, { signal: `${LOCATION}${part}`, ...span, limit: 5000 }, this.signal)));
    const longitudes = new Map(lon.items.map((one) => [one.measured_at, one.value]));
    const runs = [];
    let last = -Infinity;
    for (const one of lat.items) {
      const longitude = longitudes.get(one.measured_at);
      if (one.value === null || longitude === undefined || longitude === null) continue;
      const ms = Date.parse(one.measured_at);
      if (ms - last > TRAIL_GAP_MS) runs.push([]);
      runs.at(-1).push(toWorld(one.value, longitude));
      last = ms;
    }
    if (kept.chosen === name) this.map.choose(name, runs);
  }

  drawCard() {
    const asset = this.assets.get(kept.chosen);
    this.card.hidden = !asset;
    if (!asset) { this.cardKey = null; return; }
    const at = now();
    const standing = asset.positionMs === null && asset.x !== null;
    const facts = [["Data", age(ageS(asset.measuredMs, at)), asset.measuredMs === null ? "never sent anything" : moment(asset.measuredMs)]];
    if (!standing) {
      facts.push(["Speed", asset.speed === null || asset.speed === undefined ? NOTHING : `${number(asset.speed, 0.01)} km/h`, "as last told"]);
      facts.push(["Position", age(ageS(asset.positionMs, at)), asset.positionMs === null ? "none yet" : moment(asset.positionMs)]);
    }
    facts.push(["", asset.x === null ? "no position known" : `${asset.latitude.toFixed(5)}°, ${asset.longitude.toFixed(5)}°`, standing ? "where it was enrolled to stand" : "WGS 84"]);
    const key = JSON.stringify([asset.name, asset.state, facts]);
    if (key === this.cardKey) return;
    this.cardKey = key;
    const held = this.card.contains(document.activeElement) ? document.activeElement.className : null;
    this.card.replaceChildren(
      el("button", { type: "button", class: "quiet close", "aria-label": "Close", onclick: () => this.choose(null) }, "\u00d7"),
      el("h2", {}, asset.name), stateBadge(asset.state),
      el("dl", {}, ...facts.flatMap(([name, value, hint]) => [el("dt", {}, name), el("dd", { title: hint }, value)])),
      el("a", { class: "open", href: `#/asset/${encodeURIComponent(asset.name)}` }, "Open its charts"));
    if (held) this.card.querySelector(`.${held.split(" ").at(-1)}`)?.focus();
  }
}
