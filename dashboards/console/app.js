// Sign in, the bar, and which view is shown: #/fleet, #/map, #/asset/NAME, #/alerts, #/alerts/ID, #/ledger, #/questions/NAME, #/crash, #/crash/RECORD. A view is {mount, unmount}.

import { Problem, get, key, setKey } from "./client.js";
import { el, notice, text } from "./dom.js";
import { toggleZone, zoneName } from "./format.js";
import { alertsView } from "./alerts.js";
import { assetView } from "./asset.js";
import { crashView } from "./crash.js";
import { fleetView } from "./fleet.js";
import { ledgerView } from "./ledger.js";
import { mapView } from "./map.js";
import { questionsView } from "./questions.js";

const main = document.getElementById("main");
const bar = document.getElementById("bar");
const VIEWS = { fleet: fleetView, map: mapView, asset: assetView, alerts: alertsView, ledger: ledgerView, questions: questionsView, crash: crashView };
const LINKS = {
  live: ["Live", "the stream is open"],
  down: ["Reconnecting", "the stream is closed; what you see may be old"],
  idle: ["", ""],
};

let leave = null;

const shell = {
  link(state) {
    const node = document.getElementById("link");
    node.className = `link-state link-${state}`;
    node.title = LINKS[state][1];
    text(node, LINKS[state][0]);
  },
  // A crash somewhere in the fleet: said on every page that hears the live stream, until somebody looks.
  crashed(notice) {
    const node = document.getElementById("alarm");
    node.replaceChildren(`Crash reported by ${notice.asset ?? notice.device}.`, el("a", { href: "#/crash" }, "Where to look"));
    node.hidden = false;
  },
  // What to do with an error of any request: back to the door, or tell it in place.
  failed(error, place = main) {
    if (error.name === "AbortError") return;
    if (error instanceof Problem && error.status === 401) signOut("This key is not valid any more.");
    else place.replaceChildren(notice(told(error), "notice bad"));
  },
};

function told(error) {
  if (error instanceof Problem) return error.message;
  if (/fetch|network|load failed/i.test(error.message)) return "The server does not answer; this page tries again by itself.";
  console.error(error); // a fault of the page, not of the line: said as what it is
  return `This page cannot show that answer (${error.message}); reload it, and tell who runs it if that does not help.`;
}

function takeKeyFromAddress() {
  const found = /^#key=(fsk_[0-9a-z]+_[A-Za-z0-9_-]+)$/.exec(location.hash);
  if (!found) return;
  setKey(found[1]);
  history.replaceState(null, "", `${location.pathname}#/fleet`);
}

function signOut(reason = "") {
  setKey(null);
  leave?.();
  leave = null;
  bar.hidden = true;
  showDoor(reason);
}

function showDoor(reason) {
  const field = el("input", {
    type: "password", id: "key", name: "key", autocomplete: "current-password", required: true, spellcheck: "false",
    placeholder: "fsk_…", "aria-describedby": "key-help",
  });
  const told = el("p", { class: "form-error", role: "alert" }, reason);
  const form = el("form", { class: "door" },
    el("img", { src: "icon.svg", alt: "", width: "40", height: "40" }),
    el("h1", {}, "Fleetstream"),
    el("p", { class: "muted", id: "key-help" }, "Sign in with an API key of your organisation. It is kept for this tab only."),
    el("label", { for: "key" }, "API key"), field, told,
    el("button", { type: "submit", class: "primary" }, "Sign in"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    setKey(field.value.trim());
    try {
      await enter();
    } catch (error) {
      setKey(null);
      text(told, error instanceof Problem ? error.message : "The server does not answer; try again in a moment.");
    }
  });
  main.replaceChildren(form);
  document.title = "Sign in · Fleetstream";
  field.focus();
}

async function enter() {
  const me = await get("/whoami");
  text(document.getElementById("tenant"), me.tenant);
  document.getElementById("tenant").title = `role: ${me.role}`;
  bar.hidden = false;
  show();
}

function show() {
  const [name, ...rest] = location.hash.replace(/^#\//, "").split("/");
  const view = VIEWS[name] ? name : "fleet";
  leave?.();
  if (view === "crash") document.getElementById("alarm").hidden = true;
  shell.link("idle");
  for (const link of bar.querySelectorAll("nav a")) {
    const here = link.dataset.view === (view === "asset" ? "fleet" : view);
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  text(document.getElementById("zone"), zoneName());
  main.replaceChildren();
  leave = VIEWS[view](main, shell, rest.length ? decodeURIComponent(rest.join("/")) : null);
}

async function start() {
  takeKeyFromAddress();
  if (!key()) {
    showDoor("");
    return;
  }
  try {
    await enter();
  } catch (error) {
    if (error instanceof Problem && error.status !== 401) main.replaceChildren(notice(told(error), "notice bad"));
    else signOut(error instanceof Problem ? error.message : "The server does not answer; try again in a moment.");
  }
}

window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#key=")) start();
  else if (key() && location.hash !== "#main") { show(); main.focus({ preventScroll: true }); window.scrollTo(0, 0); }
});
document.getElementById("out").addEventListener("click", () => signOut(""));
document.getElementById("zone").addEventListener("click", () => { toggleZone(); show(); });
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
start();
