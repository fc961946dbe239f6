// Windows that late data changed: which, what they first said, what they say now, and when the late packets came.

import { el } from "./dom.js";
import { NOTHING, clock, count, moment, plural } from "./format.js";

const SHOWN = 20;

export function drawCorrected(place, windows, widthS, word) {
  const key = JSON.stringify(windows.map((one) => [one.starts_at, one.revision, one.n]));
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  place.hidden = !windows.length;
  const rows = windows.slice(-SHOWN).reverse().map((one) => {
    const starts = Date.parse(one.starts_at);
    return el("li", {},
      el("b", { title: moment(starts) }, `${clock(starts)} to ${clock(starts + widthS * 1000)}`),
      one.first_n === null ? `: mean ${word(one.mean)} from ${plural(one.n, "sample")}; it was not said before. `
        : `: first said ${one.first_mean === null ? NOTHING : word(one.first_mean)} from ${plural(one.first_n, "sample")} (${moment(Date.parse(one.first_said_at))}), now ${word(one.mean)} from ${count(one.n)}. `,
      `Because packets arrived late, at ${one.late_at.map((at) => clock(Date.parse(at), false)).join(", ")}.`);
  });
  place.replaceChildren(
    el("summary", {}, el("span", { class: "corrected-mark", "aria-hidden": "true" }), `${plural(windows.length, "window")} corrected by late data`),
    el("ul", {}, ...rows), ...(windows.length > SHOWN ? [el("p", { class: "muted" }, `Only the newest ${SHOWN} are told here.`)] : []));
}
