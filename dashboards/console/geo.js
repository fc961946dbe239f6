// Web Mercator and the outlines of land: pure geometry, no drawing state.
//
// World units: x and y in [0, 1], north-west is (0, 0). A view is {x, y, k}: the world point at the middle of the
// canvas and how many CSS pixels one world unit takes.

export const MOST_NORTH = 85.05;
export const EARTH_M = 40075016.686; // equator, WGS 84

export function toWorld(latitude, longitude) {
  const lat = Math.min(MOST_NORTH, Math.max(-MOST_NORTH, latitude)) * Math.PI / 180;
  return [longitude / 360 + 0.5, 0.5 - Math.log(Math.tan(Math.PI / 4 + lat / 2)) / (2 * Math.PI)];
}

export function toDegrees(x, y) {
  return [Math.atan(Math.sinh(Math.PI * (1 - 2 * y))) * 180 / Math.PI, (x - 0.5) * 360];
}

// Metres that one CSS pixel covers at the middle of a view.
export function metresPerPixel(view) {
  const [latitude] = toDegrees(view.x, view.y);
  return EARTH_M * Math.cos(latitude * Math.PI / 180) / view.k;
}

// The view that shows all points ([[x, y], …]) with a margin; a single point is shown some kilometres wide.
export function fit(points, width, height, margin = 48) {
  if (!points.length) return { x: 0.5, y: 0.36, k: Math.max(width, 320) };
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const [x, y] of points) {
    left = Math.min(left, x); right = Math.max(right, x);
    top = Math.min(top, y); bottom = Math.max(bottom, y);
  }
  const k = Math.min((width - 2 * margin) / (right - left || 1e-9), (height - 2 * margin) / (bottom - top || 1e-9));
  return { x: (left + right) / 2, y: (top + bottom) / 2, k: clampScale(k) };
}

export function clampScale(k) {
  return Math.min(EARTH_M / 0.5, Math.max(200, k)); // from the whole world to half a metre per pixel
}

// Degrees between two lines of the grid.
export function gridStep(west, east) {
  return [30, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002].find((one) => (east - west) / one >= 8) ?? 0.001;
}

export function meets(shape, box) {
  return shape.left <= box[2] && shape.right >= box[0] && shape.top <= box[3] && shape.bottom >= box[1];
}

// A round length of at most `most` pixels for the scale bar: [metres, pixels].
export function scaleBar(view, most = 110) {
  const perPixel = metresPerPixel(view);
  const ten = 10 ** Math.floor(Math.log10(perPixel * most));
  const metres = [5, 2, 1].map((times) => times * ten).find((length) => length / perPixel <= most) ?? ten;
  return [metres, metres / perPixel];
}

// Outlines as the generator wrote them -> {rings: [Float64Array…], borders: [Float64Array…]} in world units, with boxes.
export function readOutlines(told) {
  const arcs = told.arcs.map((flat) => unfold(flat, told.units));
  const rings = told.land.map((ring) => boxed(joined(ring, arcs)));
  return { rings, borders: told.borders.map((arc) => boxed(arcs[arc])) };
}

export function unfold(flat, units) {
  const points = new Float64Array(flat.length);
  let [x, y] = [0, 0];
  for (let at = 0; at < flat.length; at += 2) {
    x += flat[at];
    y += flat[at + 1];
    [points[at], points[at + 1]] = toWorld(y / units, x / units);
  }
  return points;
}

function joined(ring, arcs) {
  const parts = ring.map((arc) => (arc >= 0 ? arcs[arc] : backwards(arcs[~arc])));
  const points = new Float64Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) { points.set(part, at); at += part.length; }
  return points;
}

function backwards(points) {
  const turned = new Float64Array(points.length);
  for (let at = 0; at < points.length; at += 2) {
    turned[points.length - at - 2] = points[at];
    turned[points.length - at - 1] = points[at + 1];
  }
  return turned;
}

export function boxed(points) {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (let at = 0; at < points.length; at += 2) {
    left = Math.min(left, points[at]); right = Math.max(right, points[at]);
    top = Math.min(top, points[at + 1]); bottom = Math.max(bottom, points[at + 1]);
  }
  return { points, left, top, right, bottom };
}
