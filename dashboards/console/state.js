// The state of an asset's data from two ages; the same rule as the API's (api/state.py), for the seconds between answers.

const LIVE_MS = 15000;
const HEARD_MS = 60000;

export function stateOf(asset, nowMs) {
  if (asset.measuredMs === null) return "no_data";
  if (asset.recording) return "recording";
  if (nowMs - asset.measuredMs <= LIVE_MS) return "live";
  if (nowMs - asset.receivedMs <= LIVE_MS) return "catching_up";
  return nowMs - asset.receivedMs <= HEARD_MS ? "delayed" : "silent";
}

export function ageS(ms, nowMs) {
  return ms === null ? null : (nowMs - ms) / 1000;
}

const BAD = new Set(["bad_sensor", "not_finite", "out_of_range"]);

export function isBad(quality) {
  return BAD.has(quality) || quality.startsWith("code_");
}

export function qualityText(quality) {
  return quality.replaceAll("_", " ");
}
