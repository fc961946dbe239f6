// A small line chart on a canvas: a band from min to max, the mean as a line, gaps as gaps, and a cursor to read values.
//
// A point is {t, low, mid, high}: Unix ms and three numbers. Points further apart than `gapMs` are not joined; the
// stretch between them is hatched at its foot, so that "nothing came" never looks like a value. `expected` {low, high}
// (null: no bound) is drawn as a zone with edges, `span` {from, to} as the stretch of time that is talked about. A point
// that is `marked` was corrected by late data: a hollow diamond stands over it.

import { clock, number } from "./format.js";

const PAD = { left: 34, right: 10, top: 8, bottom: 20 }; // left: at least; the widest number decides
const STEPS_MS = [10e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3, 3600e3, 7200e3, 14400e3, 21600e3];

export class Chart {
  constructor(canvas, { stepped = false, words = null, factor = 1, resolution = 0, onRead = () => {} } = {}) {
    Object.assign(this, { canvas, stepped, words, factor, resolution, onRead, left: PAD.left, points: [], expected: null, span: null, gapMs: Infinity, from: 0, to: 1, cursor: null });
    canvas.addEventListener("pointermove", (event) => this.pointAt(event.offsetX));
    canvas.addEventListener("pointerleave", () => this.setCursor(null));
    canvas.addEventListener("blur", () => this.setCursor(null));
    canvas.addEventListener("keydown", (event) => this.step(event));
  }

  set(points, from, to, gapMs, { expected = null, span = null } = {}) {
    Object.assign(this, { points, from, to, gapMs, expected, span });
    if (this.cursor !== null && this.cursor >= points.length) this.cursor = null;
    this.draw();
  }

  pointAt(x) {
    if (!this.points.length) return;
    const t = this.from + ((x - this.left) / this.inner().w) * (this.to - this.from);
    let best = 0;
    for (let at = 1; at < this.points.length; at += 1) {
      if (Math.abs(this.points[at].t - t) < Math.abs(this.points[best].t - t)) best = at;
    }
    // over a gap there is nothing to read
    this.setCursor(Math.abs(this.points[best].t - t) <= Math.max(this.gapMs, (this.to - this.from) / 80) ? best : null);
  }

  step(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (!(event.key in moves) || !this.points.length) return;
    event.preventDefault();
    const at = (this.cursor ?? this.points.length) + moves[event.key];
    this.setCursor(Math.min(this.points.length - 1, Math.max(0, at)));
  }

  setCursor(at) {
    if (at === this.cursor) return;
    this.cursor = at;
    this.onRead(at === null ? null : this.points[at]);
    this.draw();
  }

  inner() {
    return { w: this.canvas.clientWidth - this.left - PAD.right, h: this.canvas.clientHeight - PAD.top - PAD.bottom };
  }

  draw() {
    const { canvas } = this;
    const ratio = window.devicePixelRatio || 1;
    const [w, h] = [canvas.clientWidth, canvas.clientHeight];
    if (!w || !h) return;
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
      canvas.width = Math.round(w * ratio);
      canvas.height = Math.round(h * ratio);
    }
    const pen = canvas.getContext("2d");
    const style = getComputedStyle(canvas);
    const ink = (name) => style.getPropertyValue(name).trim();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, w, h);
    pen.font = `11px ${style.fontFamily}`;
    const [low, high] = this.bounds();
    const marks = this.marks(low, high);
    this.left = Math.max(PAD.left, ...marks.map(([, told]) => Math.ceil(pen.measureText(told).width) + 10));
    const inner = this.inner();
    const x = (t) => this.left + ((t - this.from) / (this.to - this.from)) * inner.w;
    const y = (v) => PAD.top + (1 - (v - low) / (high - low)) * inner.h;
    this.axes(pen, ink, x, y, marks, inner);
    this.zones(pen, ink, x, y, inner);
    const runs = this.runs();
    this.gaps(pen, ink, x, inner, runs);
    pen.save();
    pen.beginPath();
    pen.rect(this.left, 0, inner.w, h);
    pen.clip();
    for (const run of runs) this.run(pen, ink, x, y, run);
    pen.restore();
    if (this.cursor !== null) this.mark(pen, ink, x, y, inner);
  }

  bounds() {
    let low = Infinity;
    let high = -Infinity;
    for (const point of this.points) {
      if (point.low < low) low = point.low;
      if (point.high > high) high = point.high;
    }
    for (const bound of [this.expected?.low, this.expected?.high]) {
      if (typeof bound === "number") [low, high] = [Math.min(low, bound), Math.max(high, bound)];
    }
    if (low > high) return [0, 1];
    if (this.stepped && low >= 0 && high <= 1) return [-0.1, 1.1];
    const least = Math.max(this.resolution * 4, Math.abs(high) * 1e-3, 1e-9);
    const room = Math.max((high - low) * 0.08, (least - (high - low)) / 2);
    return [low - room, high + room];
  }

  runs() {
    const runs = [];
    let run = [];
    for (const point of this.points) {
      if (run.length && point.t - run[run.length - 1].t > this.gapMs) { runs.push(run); run = []; }
      run.push(point);
    }
    if (run.length) runs.push(run);
    return runs;
  }

  // Values and words of the scale at the left, in the unit shown.
  marks(low, high) {
    if (!this.points.length) return [];
    if (this.words) return this.words.map((told, value) => [value, told]);
    const step = niceStep(((high - low) * this.factor) / Math.max(2, Math.floor(this.inner().h / 25)));
    const made = [];
    for (let at = Math.ceil((low * this.factor) / step); at * step <= high * this.factor; at += 1) {
      made.push([(at * step) / this.factor, axisNumber(at * step, step)]);
    }
    return made;
  }

  axes(pen, ink, x, y, marks, inner) {
    pen.strokeStyle = ink("--grid");
    pen.fillStyle = ink("--muted");
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const [value, told] of marks) {
      line(pen, this.left, y(value), this.left + inner.w, y(value));
      pen.fillText(told, this.left - 6, y(value));
    }
    const wanted = (this.to - this.from) / Math.max(2, Math.floor(inner.w / 90));
    const every = STEPS_MS.find((step) => step >= wanted) ?? 43200e3;
    const offset = new Date(this.to).getTimezoneOffset() * 60000;
    pen.textAlign = "center";
    pen.textBaseline = "alphabetic";
    for (let t = Math.ceil((this.from - offset) / every) * every + offset; t <= this.to; t += every) {
      if (x(t) > this.left + 14 && x(t) < this.left + inner.w - 18) pen.fillText(clock(t, every < 60e3), x(t), PAD.top + inner.h + 15);
    }
    line(pen, this.left, PAD.top + inner.h + 0.5, this.left + inner.w, PAD.top + inner.h + 0.5);
  }

  zones(pen, ink, x, y, inner) {
    const inside = (v) => Math.min(Math.max(v, PAD.top), PAD.top + inner.h);
    if (this.span) {
      const left = Math.max(x(this.span.from), this.left);
      const right = Math.max(Math.min(x(this.span.to), this.left + inner.w), left + 2);
      pen.fillStyle = ink("--span");
      pen.fillRect(left, PAD.top, right - left, inner.h);
    }
    if (!this.expected) return;
    const { low, high } = this.expected;
    const top = typeof high === "number" ? inside(y(high)) : PAD.top;
    const foot = typeof low === "number" ? inside(y(low)) : PAD.top + inner.h;
    pen.fillStyle = ink("--expected");
    pen.fillRect(this.left, top, inner.w, foot - top);
    pen.strokeStyle = ink("--expected-edge");
    pen.setLineDash([5, 4]);
    for (const [bound, at] of [[high, top], [low, foot]]) if (typeof bound === "number") line(pen, this.left, at, this.left + inner.w, at);
    pen.setLineDash([]);
  }

  gaps(pen, ink, x, inner, runs) {
    pen.fillStyle = ink("--gap");
    const foot = PAD.top + inner.h;
    const ends = [];
    let from = this.from;
    for (const run of runs) {
      if (run[0].t - from > this.gapMs) ends.push([from, run[0].t]);
      from = run[run.length - 1].t;
    }
    if (this.points.length && this.to - from > this.gapMs) ends.push([from, this.to]);
    for (const [a, b] of ends) {
      const [left, right] = [Math.max(x(a), this.left) + 1, Math.min(x(b), this.left + inner.w) - 1];
      for (let at = left; at < right; at += 4) pen.fillRect(at, foot - 4, 1.5, 4);
    }
  }

  run(pen, ink, x, y, run) {
    pen.fillStyle = ink("--band");
    pen.beginPath();
    run.forEach((point, at) => (at ? pen.lineTo(x(point.t), y(point.high)) : pen.moveTo(x(point.t), y(point.high))));
    for (let at = run.length - 1; at >= 0; at -= 1) pen.lineTo(x(run[at].t), y(run[at].low));
    pen.fill();
    pen.strokeStyle = ink("--line-ink");
    pen.fillStyle = ink("--line-ink");
    pen.lineWidth = 1.5;
    pen.lineJoin = "round";
    pen.beginPath();
    run.forEach((point, at) => {
      if (!at) pen.moveTo(x(point.t), y(point.mid));
      else {
        if (this.stepped) pen.lineTo(x(point.t), y(run[at - 1].mid));
        pen.lineTo(x(point.t), y(point.mid));
      }
    });
    pen.stroke();
    pen.lineWidth = 1.5;
    for (const point of run) if (point.marked) this.corrected(pen, ink, x(point.t));
    if (run.length === 1) { pen.beginPath(); pen.arc(x(run[0].t), y(run[0].mid), 2, 0, 7); pen.fill(); }
  }

  // A hollow diamond at the top, over what late data changed.
  corrected(pen, ink, x) {
    pen.beginPath();
    pen.moveTo(x, PAD.top - 5);
    pen.lineTo(x + 4, PAD.top - 1);
    pen.lineTo(x, PAD.top + 3);
    pen.lineTo(x - 4, PAD.top - 1);
    pen.closePath();
    pen.strokeStyle = ink("--delayed");
    pen.stroke();
    pen.strokeStyle = ink("--line-ink");
  }

  mark(pen, ink, x, y, inner) {
    const point = this.points[this.cursor];
    pen.strokeStyle = ink("--muted");
    pen.lineWidth = 1;
    line(pen, x(point.t), PAD.top, x(point.t), PAD.top + inner.h);
    pen.fillStyle = ink("--surface");
    pen.strokeStyle = ink("--line-ink");
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(x(point.t), y(point.mid), 3.5, 0, 7);
    pen.fill();
    pen.stroke();
  }
}

function line(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, Math.round(y1) + 0.5);
  pen.lineTo(x2, x1 === x2 ? y2 : Math.round(y2) + 0.5);
  pen.stroke();
}

function niceStep(raw) {
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= raw);
}

function axisNumber(value, step) {
  const size = Math.abs(value) < step / 1e6 ? 0 : value;
  if (step >= 1e6) return `${number(size / 1e6, 1)} M`;
  if (step >= 1e3) return `${number(size / 1e3, step % 1e3 ? 0.1 : 1)} k`;
  // as many decimals as the step has, so that neighbours differ and look alike
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9) + (Number.isInteger(step / 10 ** Math.floor(Math.log10(step) + 1e-9)) ? 0 : 1));
  const [whole, fraction] = size.toFixed(decimals).replace("-", "\u2212").split(".");
  const grouped = whole.length > 4 ? whole.replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f") : whole;
  return fraction === undefined ? grouped : `${grouped}.${fraction}`;
}
