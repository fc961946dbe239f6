// Small plots of a crash record as SVG: sharp on paper, no library, no inline style. Nothing is drawn where nothing was
// recorded: a gap stays a gap, and a channel without a source is said in words instead of an empty axis.

const NS = "http://www.w3.org/2000/svg";
const WIDTH = 560;
const HEIGHT = 210;
const LEFT = 58;
const RIGHT = 12;
const TOP = 14;
const BOTTOM = 34;

function svg(tag, attributes, ...children) {
  const made = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function ticks(low, high, wanted) {
  const rough = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(Math.abs(at) < step / 1e6 ? 0 : at);
  return found;
}

function label(value) {
  return String(Math.round(value * 1000) / 1000).replace("-", "\u2212");
}

// The times (ms) and values of an element; states become their index.
export function points(element) {
  const value = (one) => (one === null ? null : element.states.length ? element.states.indexOf(one) : one);
  return element.values.map((one, index) => ({ ms: element.first_ms + index * element.step_ms, value: value(one) }));
}

function extent(elements) {
  const all = elements.flatMap((element) => points(element).filter((point) => point.value !== null).map((point) => point.value));
  const states = elements[0].states.length;
  if (states) return [-0.25, states - 0.75];
  const low = Math.min(0, ...all);
  const high = Math.max(0, ...all);
  const room = (high - low || 1) * 0.06;
  return [low < 0 ? low - room : 0, high + room];
}

function path(found, x, y, stepped) {
  let d = "";
  let before = null;
  for (const { ms, value } of found) {
    if (value === null) { before = null; continue; }
    if (before === null) d += `M${x(ms)} ${y(value)}`;
    else d += stepped ? `H${x(ms)}V${y(value)}` : `L${x(ms)} ${y(value)}`;
    before = value;
  }
  return d;
}

// One plot of elements with the same unit; the caller has left out those that are not available.
export function plot(title, elements, unit) {
  const spans = elements.map((element) => [element.first_ms, element.first_ms + (element.values.length - 1) * element.step_ms]);
  const from = Math.min(...spans.map((span) => span[0]));
  const to = Math.max(0, ...spans.map((span) => span[1]));
  const [low, high] = extent(elements);
  const round = (number) => Math.round(number * 100) / 100;
  const x = (ms) => round(LEFT + ((ms - from) / (to - from || 1)) * (WIDTH - LEFT - RIGHT));
  const y = (value) => round(TOP + ((high - value) / (high - low)) * (HEIGHT - TOP - BOTTOM));
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "plot", role: "img", "aria-label": described(title, elements, unit) });
  const states = elements[0].states;
  const levels = states.length ? states.map((_, index) => index) : ticks(low, high, 4);
  for (const level of levels) {
    drawing.append(
      svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(level), y2: y(level), class: level === 0 && !states.length ? "axis" : "grid" }),
      svg("text", { x: LEFT - 6, y: y(level) + 4, class: "tick end" }, states.length ? states[level].replaceAll("_", " ") : label(level)));
  }
  const seconds = to - from > 2000;
  for (const at of ticks(from, to, 6)) {
    drawing.append(
      svg("line", { x1: x(at), x2: x(at), y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4, class: "grid" }),
      svg("text", { x: x(at), y: HEIGHT - BOTTOM + 17, class: "tick middle" }, label(seconds ? at / 1000 : at)));
  }
  drawing.append(svg("text", { x: WIDTH - RIGHT, y: HEIGHT - 3, class: "tick end" }, `${seconds ? "s" : "ms"} from time zero`));
  if (from < 0) drawing.append(svg("line", { x1: x(0), x2: x(0), y1: TOP, y2: HEIGHT - BOTTOM, class: "zero" }));
  elements.forEach((element, index) => {
    if (element.saturated_from_ms !== null) {
      const at = x(element.saturated_from_ms);
      drawing.append(
        svg("line", { x1: at, x2: at, y1: TOP, y2: HEIGHT - BOTTOM, class: "limit" }),
        svg("text", { x: at + 4, y: TOP + 9, class: "tick limit-text" }, `saturated from ${label(element.saturated_from_ms)} ms`));
    }
    drawing.append(svg("path", { d: path(points(element), x, y, element.states.length > 0), class: `line line-${index}` }));
    for (const { ms, value } of points(element)) {
      if (value !== null && element.values.length <= 60) drawing.append(svg("circle", { cx: x(ms), cy: y(value), r: 1.8, class: `dot dot-${index}` }));
    }
  });
  return drawing;
}

function described(title, elements, unit) {
  const parts = elements.map((element) => {
    const there = points(element).filter((point) => point.value !== null);
    if (!there.length) return `${element.title}: no sample`;
    const shown = (point) => (element.states.length ? element.states[point.value] : `${label(point.value)} ${unit}`);
    return `${element.title}: ${there.length} samples, first ${shown(there[0])}, last ${shown(there.at(-1))}`;
  });
  return `${title}. ${parts.join("; ")}`;
}
