// Small helpers to build elements; text is always set as text, so nothing a device sends is ever markup.

const SVG = "http://www.w3.org/2000/svg";

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const DARK = matchMedia("(prefers-color-scheme: dark)"); // one for all views: a query lives as long as the page

export function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

export const STATES = {
  live: { label: "Live", hint: "measured within the last 15 s", shape: "M8 3a5 5 0 1 0 0 10a5 5 0 0 0 0-10z" },
  catching_up: { label: "Catching up", hint: "sending what it stored while offline", shape: "M8 3a5 5 0 0 0 0 10z", outline: "M8 3.8a4.2 4.2 0 0 1 0 8.4" },
  delayed: { label: "Delayed", hint: "nothing for more than 15 s", shape: "M8 2.6L14 13H2z" },
  silent: { label: "Silent", hint: "nothing for more than a minute", shape: "M3.5 3.5h9v9h-9z" },
  recording: { label: "Recording", hint: "a recorded drive, replayed", shape: "M5 3l8 5l-8 5z" },
  no_data: { label: "No data", hint: "never sent anything", shape: "M8 3.8a4.2 4.2 0 1 0 0 8.4a4.2 4.2 0 0 0 0-8.4z", hollow: true },
};

export function stateMark(state) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", `shape shape-${state}${STATES[state].hollow ? " hollow" : ""}`);
  svg.setAttribute("aria-hidden", "true");
  for (const [name, d] of [["solid", STATES[state].shape], ["outline", STATES[state].outline]]) {
    if (!d) continue;
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", d);
    path.setAttribute("class", name);
    svg.append(path);
  }
  return svg;
}

export function stateBadge(state) {
  return el("span", { class: `state state-${state}`, title: STATES[state].hint }, stateMark(state), STATES[state].label);
}

// A place that is empty for now: what it means that nothing is there.
export function nothing(title, why) {
  return el("div", { class: "empty", role: "status" }, el("p", { class: "empty-title" }, title), el("p", { class: "muted" }, why));
}

export function notice(message, kind = "notice") {
  return el("p", { class: kind, role: "status" }, message);
}
