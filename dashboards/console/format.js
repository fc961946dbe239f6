// Numbers, ages and times as people read them. What is not there is shown as a dash, never as zero.

export const NOTHING = "–";

let utc = sessionStorage.getItem("zone") === "utc";

export function zoneName() {
  return utc ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone;
}

export function toggleZone() {
  utc = !utc;
  sessionStorage.setItem("zone", utc ? "utc" : "local");
}

function formatter(options) {
  return new Intl.DateTimeFormat("en-GB", { hourCycle: "h23", ...options, ...(utc ? { timeZone: "UTC" } : {}) });
}

export function clock(ms, seconds = true) {
  return formatter({ hour: "2-digit", minute: "2-digit", ...(seconds ? { second: "2-digit" } : {}) }).format(ms);
}

export function moment(ms) {
  const options = { year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" };
  return `${formatter(options).format(ms)} ${zoneName()}`;
}

// The day before a moment as YYYY-MM-DD, and when a day so written begins (days later: the one after), in the zone shown.
export function dayBefore(ms) {
  const at = new Date(ms - 86400000);
  const parts = utc ? [at.getUTCFullYear(), at.getUTCMonth() + 1, at.getUTCDate()] : [at.getFullYear(), at.getMonth() + 1, at.getDate()];
  return parts.map((part) => String(part).padStart(2, "0")).join("-");
}

export function dayStart(text, later = 0) {
  const [year, month, day] = text.split("-").map(Number);
  return utc ? new Date(Date.UTC(year, month - 1, day + later)) : new Date(year, month - 1, day + later);
}

export function age(seconds) {
  if (seconds === null || seconds === undefined) return NOTHING;
  if (seconds < -1) return `${Math.round(-seconds)} s ahead`;
  if (seconds < 0.95) return "now";
  if (seconds < 99.5) return `${Math.round(seconds)} s`;
  if (seconds < 5940) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export function count(number) {
  return number === null || number === undefined ? NOTHING : number.toLocaleString("en-US").replaceAll(",", "\u202f");
}

const PLACE_RESOLUTION = 1e-5; // degrees of a position: a metre, whatever their size
const FAR_M = 1e6; // a signal that may exceed this many metres is a distance driven: shown in km

// Decimals that suit the size, never more than the signal resolves.
export function number(value, resolution = 0) {
  if (value === null || value === undefined || Number.isNaN(value)) return NOTHING;
  const size = Math.abs(value);
  const place = resolution > 0 && resolution <= PLACE_RESOLUTION;
  const wanted = place ? 5 : size >= 1000 ? 0 : size >= 10 || size === 0 ? 1 : size >= 1 ? 2 : 3;
  const resolved = resolution > 0 ? Math.max(0, Math.round(-Math.log10(resolution))) : wanted;
  const text = value.toFixed(Math.min(wanted, resolved));
  const [whole, fraction] = text.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f").replace("-", "\u2212");
  return fraction === undefined ? grouped : `${grouped}.${fraction}`;
}

const UNITS = {
  degrees: "°", "degrees/s": "°/s", Celsius: "°C", percent: "%", "m/s^2": "m/s²", "m^3/h": "m³/h", "l/100km": "l/100 km",
};

export function unit(name) {
  return UNITS[name] ?? name;
}

export function scaled(value, name, resolution) {
  return [number(value, resolution), unit(name)];
}

// How a signal is shown: its unit, by what its values are multiplied for that, and what one digit then means.
export function shownAs(signal) {
  const { unit: name = "", resolution = 0, maximum = 0 } = signal ?? {};
  if (name === "m" && maximum > FAR_M) return { unit: "km", factor: 0.001, resolution: Math.max(resolution / 1000, 0.1) };
  if (name === "By") return { unit: "MiB", factor: 2 ** -20, resolution: 0.1 };
  return { unit: unit(name), factor: 1, resolution: name === "rpm" && maximum > 1000 ? Math.max(resolution, 1) : resolution };
}

// A signal that is only ever 0 or 1 says no or yes.
export function word(value, signal) {
  if (isFlag(signal) && (value === 0 || value === 1)) return [value ? "Yes" : "No", ""];
  const shown = shownAs(signal);
  return [number(value === null || value === undefined ? null : value * shown.factor, shown.resolution), shown.unit];
}

export function isFlag(signal) {
  return signal?.kind === "state" && signal.minimum === 0 && signal.maximum === 1;
}

export function waited(seconds) {
  return seconds < 1 ? "less than a second" : age(seconds);
}

export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}
