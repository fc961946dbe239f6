// A day of one asset as a file: all its signals, with units and quality. Days are those of the zone that is shown.

import { download } from "./client.js";
import { el, text } from "./dom.js";
import { dayBefore, dayStart, zoneName } from "./format.js";

const FORMS = {
  csv: { name: "CSV", media: "text/csv" },
  parquet: { name: "Parquet", media: "application/vnd.apache.parquet" },
};

export function exportPanel(asset, shell) {
  const day = el("input", { type: "date", name: "day", required: true, value: dayBefore(Date.now()), max: dayBefore(Date.now() + 86400000) });
  const form = el("select", { name: "form" }, ...Object.entries(FORMS).map(([value, { name }]) => el("option", { value }, name)));
  const told = el("p", { class: "form-error", role: "alert" });
  const button = el("button", { type: "submit", class: "primary" }, "Download");
  const panel = el("form", { class: "export panel", hidden: true, "aria-label": "Export" },
    el("label", {}, el("span", {}, "Day"), day), el("label", {}, el("span", {}, "As"), form), button,
    el("p", { class: "muted" }, `All signals of this asset from midnight to midnight, ${zoneName()}.`), told);
  panel.addEventListener("submit", async (event) => {
    event.preventDefault();
    const [from, to] = [dayStart(day.value), dayStart(day.value, 1)];
    const wanted = FORMS[form.value];
    button.disabled = true;
    text(told, "");
    text(button, "Preparing…");
    try {
      await download("/readings", { Accept: wanted.media }, `${asset}_${day.value}.${form.value}`,
        { asset, from: from.toISOString(), to: to.toISOString() });
    } catch (error) {
      if (error.status === 401) shell.failed(error);
      else text(told, error.status ? error.message : "The download broke off; ask again.");
    } finally {
      button.disabled = false;
      text(button, "Download");
    }
  });
  const open = el("button", { type: "button", class: "export-open", "aria-expanded": "false", onclick: () => {
    panel.hidden = !panel.hidden;
    open.setAttribute("aria-expanded", String(!panel.hidden));
    if (!panel.hidden) day.focus();
  } }, "Export");
  return { open, panel };
}
