// The map's picture: land, borders, trail, assets. Everything is drawn into a sheet larger than the canvas; moving the map
// only copies the sheet, so a pan frame costs the same with ten assets and with ten thousand. The sheet is drawn again
// when the move leaves its margin, and when the hand rests.

import { clampScale, gridStep, meets, metresPerPixel, readOutlines, scaleBar, toDegrees } from "./geo.js";
import { drawDegrees, drawLines, drawNames, readDetails } from "./mapdetails.js";
import { DARK, STATES } from "./dom.js";

const MARGIN = 0.5; // of the canvas, on each side
const CELL_PX = 26; // assets closer than this are told as one number
const SPRITE_PX = 18;
const HIT_PX = 16;
const FAR_PX = 1e5;
const SEVERITY = ["no_data", "recording", "live", "catching_up", "delayed", "silent"]; // the last one shows on top

export class MapCanvas {
  constructor(canvas, { onMove = () => {}, onPick = () => {} } = {}) {
    Object.assign(this, { canvas, onMove, onPick, view: { x: 0.5, y: 0.36, k: 400 }, assets: [], chosen: null, trail: null });
    this.sheet = document.createElement("canvas");
    this.drawn = null;
    this.groups = [];
    this.hands = new Map();
    this.frame = 0;
    this.frames = []; // milliseconds of script per frame, the newest 200; read by the benchmark
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.up(event));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    this.watch = new ResizeObserver(() => this.again());
    this.watch.observe(canvas);
    DARK.addEventListener("change", this.again);
  }

  close() {
    this.watch.disconnect();
    DARK.removeEventListener("change", this.again);
    cancelAnimationFrame(this.frame);
    clearTimeout(this.rest);
  }

  land(told) { this.outlines = readOutlines(told); this.again(); }

  detail(told) { this.details = readDetails(told); this.again(); }

  // assets: [{name, state, x, y, heading}], in world units.
  set(assets) { this.assets = assets; this.again(); }

  choose(name, trail = null) { this.chosen = name; this.trail = trail; this.again(); }

  look(view) {
    this.view = { ...view, k: clampScale(view.k) };
    this.onMove();
    this.again();
  }

  get size() { return [this.canvas.clientWidth, this.canvas.clientHeight]; }

  // World box of what is seen: [left, top, right, bottom].
  box(margin = 0) {
    const [w, h] = this.size;
    const [dx, dy] = [w * (0.5 + margin) / this.view.k, h * (0.5 + margin) / this.view.k];
    return [this.view.x - dx, this.view.y - dy, this.view.x + dx, this.view.y + dy];
  }

  again = () => { this.drawn = null; this.ask(); };

  ask() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      const begun = performance.now();
      this.paint();
      this.frames.push(performance.now() - begun);
      if (this.frames.length > 200) this.frames.shift();
    });
  }

  // --- hands and keys -------------------------------------------------------------------------------------------------

  zoom(factor, px = null, py = null) {
    const [w, h] = this.size;
    const [dx, dy] = [(px ?? w / 2) - w / 2, (py ?? h / 2) - h / 2];
    const k = clampScale(this.view.k * factor);
    this.view = { x: this.view.x + dx / this.view.k - dx / k, y: this.view.y + dy / this.view.k - dy / k, k };
    this.onMove();
    this.again();
  }

  pan(dx, dy) {
    this.view = { ...this.view, x: this.view.x - dx / this.view.k, y: Math.min(1, Math.max(0, this.view.y - dy / this.view.k)) };
    this.onMove();
    this.ask();
    clearTimeout(this.rest);
    this.rest = setTimeout(this.again, 140);
  }

  down(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.hands.set(event.pointerId, { x: event.offsetX, y: event.offsetY, moved: 0 });
  }

  drag(event) {
    const hand = this.hands.get(event.pointerId);
    if (!hand) { this.canvas.style.cursor = this.at(event.offsetX, event.offsetY) ? "pointer" : ""; return; }
    const before = this.spread();
    const [dx, dy] = [event.offsetX - hand.x, event.offsetY - hand.y];
    Object.assign(hand, { x: event.offsetX, y: event.offsetY, moved: hand.moved + Math.abs(dx) + Math.abs(dy) });
    if (this.hands.size === 1) this.pan(dx, dy);
    else if (before > 0) this.zoom(this.spread() / before, event.offsetX, event.offsetY);
  }

  up(event) {
    const hand = this.hands.get(event.pointerId);
    this.hands.delete(event.pointerId);
    if (!hand || hand.moved > 6 || event.type === "pointercancel") return;
    const found = this.at(hand.x, hand.y);
    if (found?.members.length > 1 && metresPerPixel(this.view) > 1.5) this.zoom(3, hand.x, hand.y);
    else this.onPick(found ? found.members[0].name : null);
  }

  spread() {
    const [a, b] = [...this.hands.values()];
    return b ? Math.hypot(a.x - b.x, a.y - b.y) : 0;
  }

  wheel(event) {
    event.preventDefault();
    this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0018)), event.offsetX, event.offsetY);
  }

  key(event) {
    const step = 90;
    const moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (event.key in moves) this.pan(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") this.zoom(1.6);
    else if (event.key === "-") this.zoom(1 / 1.6);
    else return;
    event.preventDefault();
  }

  at(px, py) {
    let best = null;
    let near = HIT_PX;
    for (const group of this.groups) {
      const [x, y] = this.place(group.x, group.y);
      const distance = Math.hypot(x - px, y - py) - (group.members.length > 1 ? group.radius : 0);
      if (distance < near) [best, near] = [group, distance];
    }
    return best;
  }

  place(x, y) {
    const [w, h] = this.size;
    return [(x - this.view.x) * this.view.k + w / 2, (y - this.view.y) * this.view.k + h / 2];
  }

  // --- drawing --------------------------------------------------------------------------------------------------------

  paint() {
    const [w, h] = this.size;
    if (!w || !h) return;
    const ratio = window.devicePixelRatio || 1;
    const { canvas, view } = this;
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
      canvas.width = Math.round(w * ratio);
      canvas.height = Math.round(h * ratio);
      this.drawn = null;
    }
    const reach = this.drawn && Math.max(
      Math.abs(view.x - this.drawn.x) * view.k / w, Math.abs(view.y - this.drawn.y) * view.k / h);
    if (!this.drawn || this.drawn.k !== view.k || reach > MARGIN) this.fillSheet(w, h, ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.drawImage(this.sheet,
      Math.round(((this.drawn.x - view.x) * view.k - w * MARGIN) * ratio),
      Math.round(((this.drawn.y - view.y) * view.k - h * MARGIN) * ratio));
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    drawDegrees(pen, this.box(), this.size, this.ink, this.font);
    this.bar(pen, h);
  }

  fillSheet(w, h, ratio) {
    const [width, height] = [w * (1 + 2 * MARGIN), h * (1 + 2 * MARGIN)];
    Object.assign(this.sheet, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    const pen = this.sheet.getContext("2d", { alpha: false });
    const style = getComputedStyle(this.canvas);
    this.ink = (name) => style.getPropertyValue(name).trim();
    this.font = style.fontFamily;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.drawn = { ...this.view };
    const box = this.box(MARGIN);
    const at = (x, y) => [(x - this.view.x) * this.view.k + width / 2, (y - this.view.y) * this.view.k + height / 2];
    pen.fillStyle = this.ink("--sea");
    pen.fillRect(0, 0, width, height);
    if (this.outlines) this.drawLand(pen, box, at);
    const { k } = this.view;
    if (this.details) drawLines(pen, this.details, box, k, this.ink, (points) => trace(pen, points, at));
    this.drawGrid(pen, box, at, width, height);
    this.groups = grouped(this.assets, box, k, this.chosen);
    if (this.details) drawNames(pen, this.details, box, k, this.ink, this.font, at, this.groups.map((one) => extent(at(one.x, one.y), one)));
    this.drawTrail(pen, at);
    this.drawAssets(pen, at, ratio);
  }

  drawLand(pen, box, at) {
    pen.beginPath();
    for (const ring of this.outlines.rings) if (meets(ring, box)) trace(pen, ring.points, at);
    pen.fillStyle = this.ink("--land");
    pen.fill("evenodd");
    pen.strokeStyle = this.ink("--coast");
    pen.lineWidth = 1;
    pen.stroke();
    pen.beginPath();
    for (const border of this.outlines.borders) if (meets(border, box)) trace(pen, border.points, at);
    pen.strokeStyle = this.ink("--border");
    pen.stroke();
  }

  drawGrid(pen, box, at, width, height) {
    const [north, west] = toDegrees(box[0], box[1]);
    const [south, east] = toDegrees(box[2], box[3]);
    const step = gridStep(west, east);
    pen.beginPath();
    for (let lon = Math.ceil(west / step) * step; lon <= east; lon += step) {
      const [x] = at(lon / 360 + 0.5, 0);
      pen.moveTo(x, 0);
      pen.lineTo(x, height);
    }
    for (let lat = Math.ceil(Math.max(south, -85) / step) * step; lat <= Math.min(north, 85); lat += step) {
      const angle = lat * Math.PI / 180;
      const [, y] = at(0, 0.5 - Math.log(Math.tan(Math.PI / 4 + angle / 2)) / (2 * Math.PI));
      pen.moveTo(0, y);
      pen.lineTo(width, y);
    }
    pen.strokeStyle = this.ink("--graticule");
    pen.lineWidth = 1;
    pen.stroke();
  }

  drawTrail(pen, at) {
    if (!this.trail?.length) return;
    pen.beginPath();
    for (const run of this.trail) run.forEach(([x, y], n) => pen[n ? "lineTo" : "moveTo"](...at(x, y)));
    pen.strokeStyle = this.ink("--accent");
    pen.lineWidth = 2.5;
    pen.lineJoin = "round";
    pen.stroke();
  }

  drawAssets(pen, at, ratio) {
    const sprites = new Map(SEVERITY.map((state) => [state, this.sprite(state, ratio)]));
    const half = SPRITE_PX / 2;
    for (const group of this.groups) {
      const [x, y] = at(group.x, group.y);
      if (group.members.length > 1) this.bubble(pen, x, y, group);
      else pen.drawImage(sprites.get(group.state), x - half, y - half, SPRITE_PX, SPRITE_PX);
      if (group.members.some((one) => one.name === this.chosen)) this.ring(pen, x, y, group);
    }
  }

  sprite(state, ratio) {
    const made = document.createElement("canvas");
    made.width = made.height = Math.round(SPRITE_PX * ratio);
    const pen = made.getContext("2d");
    pen.scale(made.width / SPRITE_PX, made.width / SPRITE_PX);
    pen.translate(1, 1);
    const shape = new Path2D(STATES[state].shape);
    pen.lineJoin = "round";
    pen.strokeStyle = this.ink("--surface");
    pen.lineWidth = 3;
    pen.stroke(shape);
    pen.fillStyle = pen.strokeStyle = this.ink(colourOf(state));
    if (STATES[state].hollow) { pen.lineWidth = 1.8; pen.stroke(shape); } else pen.fill(shape);
    if (STATES[state].outline) { pen.lineWidth = 1.7; pen.stroke(new Path2D(STATES[state].outline)); }
    return made;
  }

  bubble(pen, x, y, group) {
    pen.beginPath();
    pen.arc(x, y, group.radius, 0, 2 * Math.PI);
    pen.fillStyle = this.ink("--surface");
    pen.fill();
    pen.lineWidth = 2.5;
    pen.strokeStyle = this.ink(colourOf(group.state));
    if (group.state === "silent" || group.state === "delayed") pen.setLineDash(group.state === "silent" ? [5, 2.5] : [9, 2]);
    pen.stroke();
    pen.setLineDash([]);
    pen.fillStyle = this.ink("--ink");
    pen.font = `600 11px ${this.font}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    const n = group.members.length;
    pen.fillText(n >= 10000 ? `${Math.round(n / 1000)}k` : String(n), x, y + 0.5);
  }

  ring(pen, x, y, group) {
    pen.beginPath();
    pen.arc(x, y, group.members.length > 1 ? group.radius + 5 : 13, 0, 2 * Math.PI);
    pen.strokeStyle = this.ink("--accent");
    pen.lineWidth = 2.5;
    pen.stroke();
  }

  bar(pen, h) {
    const [metres, pixels] = scaleBar(this.view);
    pen.strokeStyle = pen.fillStyle = this.ink("--muted");
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(14, h - 20);
    pen.lineTo(14, h - 14);
    pen.lineTo(14 + pixels, h - 14);
    pen.lineTo(14 + pixels, h - 20);
    pen.stroke();
    pen.font = `11px ${this.font}`;
    pen.textAlign = "left";
    pen.textBaseline = "alphabetic";
    pen.fillText(metres >= 1000 ? `${metres / 1000} km` : `${metres} m`, 18, h - 18);
  }
}

function extent([x, y], group) {
  const half = group.members.length > 1 ? group.radius + 2 : SPRITE_PX / 2;
  return [x - half, y - half, x + half, y + half];
}

export function colourOf(state) {
  return { catching_up: "--catching", no_data: "--none" }[state] ?? `--${state}`;
}

// Assets of the box, those that would overlap told together; the chosen one is never hidden in a group and comes last.
export function grouped(assets, box, k, chosen = null) {
  const cells = new Map();
  const size = CELL_PX / k;
  let alone = null;
  for (const asset of assets) {
    if (asset.x < box[0] || asset.x > box[2] || asset.y < box[1] || asset.y > box[3]) continue;
    if (asset.name === chosen) { alone = groupOf([asset]); continue; }
    const cell = `${Math.floor(asset.x / size)}:${Math.floor(asset.y / size)}`;
    const members = cells.get(cell);
    if (members) members.push(asset);
    else cells.set(cell, [asset]);
  }
  const groups = apart([...cells.values()].map(groupOf), k);
  groups.sort((a, b) => SEVERITY.indexOf(a.state) - SEVERITY.indexOf(b.state));
  return alone ? [...groups, alone] : groups;
}

function groupOf(members) {
  const n = members.length;
  const worst = members.reduce((rank, one) => Math.max(rank, SEVERITY.indexOf(one.state)), 0);
  return {
    members, state: SEVERITY[worst], radius: n > 1 ? 9 + Math.min(10, Math.log10(n) * 4) : 4,
    x: members.reduce((sum, one) => sum + one.x, 0) / n, y: members.reduce((sum, one) => sum + one.y, 0) / n,
  };
}

// Groups on both sides of a cell's edge become one when their marks would overlap; the larger one takes the smaller.
function apart(groups, k) {
  const size = 2 * CELL_PX / k;
  const kept = new Map();
  for (const group of groups.sort((a, b) => b.members.length - a.members.length)) {
    const [column, row] = [Math.floor(group.x / size), Math.floor(group.y / size)];
    let host = null;
    for (let n = 0; n < 9 && !host; n += 1) {
      const near = kept.get(`${column - 1 + (n % 3)}:${row - 1 + Math.floor(n / 3)}`) ?? [];
      host = near.find((one) => Math.hypot(one.x - group.x, one.y - group.y) * k < one.radius + group.radius);
    }
    if (host) { host.members.push(...group.members); continue; }
    const cell = `${column}:${row}`;
    if (kept.has(cell)) kept.get(cell).push(group);
    else kept.set(cell, [group]);
  }
  return [...kept.values()].flat().map((group) => groupOf(group.members));
}

function trace(pen, points, at) {
  for (let n = 0; n < points.length; n += 2) {
    let [x, y] = at(points[n], points[n + 1]);
    x = Math.min(FAR_PX, Math.max(-FAR_PX, x));
    y = Math.min(FAR_PX, Math.max(-FAR_PX, y));
    if (n) pen.lineTo(x, y);
    else pen.moveTo(x, y);
  }
}
