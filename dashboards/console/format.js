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

// Decimals that suit the size, never more than the signal resolves.
export function number(value, resolution = 0) {
  if (value === null || value === undefined || Number.isNaN(value)) return NOTHING;
  const size = Math.abs(value);
  const wanted = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 3;
  const resolved = resolution > 0 ? Math.max(0, Math.round(-Math.log10(resolution))) : wanted;
  const text = value.toFixed(Math.min(wanted, resolved));
  const [whole, fraction] = text.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f").replace("-", "\u2212");
  return fraction === undefined ? grouped : `${grouped}.${fraction}`;
}

const UNITS = { degrees: "°", celsius: "°C", percent: "%" };

export function unit(name) {
  return UNITS[name] ?? name;
}

export function scaled(value, name, resolution) {
  // watts of a turbine read better as kilowatts; the catalogue's unit stays in the tooltip
  if (name === "W" && value !== null && Math.abs(value) >= 10000) return [number(value / 1000, 0.1), "kW"];
  return [number(value, resolution), unit(name)];
}

export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}
