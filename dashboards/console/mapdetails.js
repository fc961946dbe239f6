// What the map shows beside coasts: borders within countries, rivers, lakes, the names of towns, and degrees at its edge.

import { boxed, gridStep, meets, toDegrees, toWorld, unfold } from "./geo.js";

const CLOSE_K = 1400; // CSS pixels the world is wide from which on states, rivers and lakes help rather than clutter
const MOST_NAMES = 90; // in a sheet four times the canvas
const NAMES_AT_K = 14; // how many of the largest places compete when the world is 256 pixels wide; grows with it
const LINE_PX = 8; // half a name's height, with room
const DEGREES_PX = 66;

// As the generator wrote them -> shapes in world units with boxes, places as {name, x, y}, the largest first.
export function readDetails(told) {
  const shapes = (lines) => lines.map((flat) => boxed(unfold(flat, told.units)));
  const places = told.names.map((name, n) => {
    const [x, y] = toWorld(told.at[2 * n + 1] / told.units, told.at[2 * n] / told.units);
    return { name, x, y };
  });
  return { states: shapes(told.states), rivers: shapes(told.rivers), lakes: shapes(told.lakes), places };
}

export function drawLines(pen, details, box, k, ink, trace) {
  if (k < CLOSE_K) return;
  const path = (shapes) => { pen.beginPath(); for (const shape of shapes) if (meets(shape, box)) trace(shape.points); };
  path(details.lakes);
  pen.fillStyle = ink("--sea");
  pen.fill("evenodd");
  pen.strokeStyle = ink("--coast");
  pen.lineWidth = 0.8;
  pen.stroke();
  path(details.rivers);
  pen.strokeStyle = ink("--river");
  pen.lineWidth = 1.3;
  pen.lineJoin = "round";
  pen.stroke();
  path(details.states);
  pen.setLineDash([4, 3]);
  pen.strokeStyle = ink("--border");
  pen.lineWidth = 1;
  pen.stroke();
  pen.setLineDash([]);
}

// Names of the largest places first, none over another or over `taken` ([left, top, right, bottom] of what comes on top).
export function drawNames(pen, details, box, k, ink, font, at, taken) {
  let named = 0;
  const compete = Math.min(details.places.length, Math.ceil((k / 256) * NAMES_AT_K));
  pen.font = `500 11.5px ${font}`;
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  pen.lineJoin = "round";
  for (let n = 0; n < compete && named < MOST_NAMES; n += 1) {
    const place = details.places[n];
    if (place.x < box[0] || place.x > box[2] || place.y < box[1] || place.y > box[3]) continue;
    const [x, y] = at(place.x, place.y);
    const wide = pen.measureText(place.name).width;
    const spots = [[x + 6, y], [x - 6 - wide, y], [x - wide / 2, y + 13], [x - wide / 2, y - 13]];
    const rects = spots.map(([left, middle]) => [left - 3, middle - LINE_PX, left + wide + 3, middle + LINE_PX]);
    const free = rects.findIndex((rect) => !taken.some((one) => one[0] < rect[2] && one[2] > rect[0] && one[1] < rect[3] && one[3] > rect[1]));
    if (free < 0) continue;
    taken.push(rects[free]);
    named += 1;
    pen.strokeStyle = ink("--land");
    pen.lineWidth = 3;
    pen.strokeText(place.name, ...spots[free]);
    pen.fillStyle = ink("--place");
    pen.fillText(place.name, ...spots[free]);
    pen.beginPath();
    pen.arc(x, y, 2, 0, 2 * Math.PI);
    pen.fill();
  }
}

// Degrees where the grid meets the foot and the left edge of the canvas; `box` and `size` are those of what is seen.
export function drawDegrees(pen, box, [w, h], ink, font) {
  const [north, west] = toDegrees(box[0], box[1]);
  const [south, east] = toDegrees(box[2], box[3]);
  const step = gridStep(west, east);
  const decimals = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
  const told = (value, plus, minus) => `${Math.abs(value).toFixed(decimals)}°${Math.abs(value) < step / 2 ? "" : ` ${value > 0 ? plus : minus}`}`;
  pen.font = `10.5px ${font}`;
  pen.fillStyle = ink("--muted");
  pen.textBaseline = "top";
  pen.textAlign = "center";
  let last = -DEGREES_PX;
  for (let lon = Math.ceil(west / step) * step; lon <= east; lon += step) {
    const x = ((lon / 360 + 0.5 - box[0]) / (box[2] - box[0])) * w;
    if (x < 60 || x > w - 90 || x - last < DEGREES_PX) continue;
    pen.fillText(told(lon, "E", "W"), x, 5);
    last = x;
  }
  pen.textAlign = "left";
  pen.textBaseline = "bottom";
  for (let lat = Math.ceil(Math.max(south, -85) / step) * step; lat <= Math.min(north, 85); lat += step) {
    const y = ((toWorld(lat, 0)[1] - box[1]) / (box[3] - box[1])) * h;
    if (y > 30 && y < h - 44) pen.fillText(told(lat, "N", "S"), 6, y - 2);
  }
}
