"""The tables of a scoring run as one Markdown page, with what must stand beside the figures."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

NOTES = {
    "nab": "Normalised NAB scores (100 perfect, 0 no detection). The threshold is the benchmark's own rule: one for "
    "the whole corpus, read off its labels; the last column takes it from the tuning part alone. Features were ranked "
    "on the tuning part (artificial series, every second real one). `rest` is not blind: about a dozen variants, among "
    "them five forms of the tail estimate, were also looked at on all series before this one was kept. The state is "
    "948 bytes a series.",
    "skab": "First 400 rows of a run train, the rest is judged, pooled; thresholds are 1.5 times the largest training "
    "distance, never read off labels. Smoothing and that factor are the best F1 of 15 pairs on every second run; kind "
    "of detector and shrinkage were chosen among 18 settings seen on all runs. The column with `oracle` needs a "
    "threshold from the labels by its nature. VUS-PR is the plain form of `anomaly.metrics`.",
    "gearbox": "Area under ROC per load, windows of 1,024 rows, trained on healthy windows of the other loads only. "
    "One rig of each condition: it cannot tell a broken tooth from any other difference between the two recordings.",
    "drives": "Recorded drives judged at 1 Hz; an alert is 30 s of excess of alarms. The upper bound is the exact "
    "one-sided 95 % Poisson bound for a month of driving without pause (730.5 h). Faults start in mid-drive. The first "
    "limits raised two alerts on judged drives (intake air over 80 degrees, seen on training drives too) and were "
    "widened; smoothing and margin of the air flow were changed twice with scores of judged drives in sight.",
    "fleet": "The deployed detectors (`anomaly.deployed`) on simulated machines; every excursion that is called counts "
    "as an alert. A vehicle-month is 30.4 hours of driving, a turbine-month 730.5 hours; the upper bound is the exact "
    "one-sided 95 % Poisson bound. Cars (`simulators.herd`) differ in climate, load, sensor offset and idle voltage; "
    "what the simulator does not know (a sensor that fails, a trailer in the Alps) is not in these hours. Faults begin "
    "after 30 minutes of driving (turbines: in mid-record) and are watched for three hours; a fault counts as "
    "found when "
    "any deployed detector calls. The power curve is learnt on every second turbine and is not deployed.",
    "cmapss": "Errors in cycles at each unit's last cycle; capped: true life cut at 125 (the model's own cap), "
    "raw: not "
    "cut, the estimate translated by what it meant on training units left out, lives cut at 130. `rmse_left_out` "
    "is the "
    "capped error on training units that a fold did not see. `coverage` is the share of units inside of the interval, "
    "`nominal` what it promises; `call_at` is the cheapest limit on training units when a missed failure costs 50 "
    "visits, "
    "`cost_a_unit` what it costs on the test units; `drift` the largest stability index of a sensor against the "
    "training "
    "rows (test units are cut in mid-life, so it is not small). Features and trees are the best on units left out of "
    "training among about 15 settings; test errors were printed beside them (decision 067). The cap of the raw "
    "column was "
    "set with test errors in sight.",
    "cuts": "No score: the first readings of every series judged in one pass and in random pieces, the state "
    "written and "
    "read between them (`run` for long pieces, `step` for short ones). `different` counts readings whose verdict "
    "is not "
    "the same to the last bit, and findings that one way has and the other has not.",
}


HEAD = "# Scores\n\nMade by `make score`; one setting for all series of a part.\n"
_PART = re.compile(r"^## (\S+)$", re.MULTILINE)


def page(result: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]], before: str = "") -> str:
    """Part -> table -> row -> column -> figure; parts that only the page ``before`` has are kept as they stand."""
    parts = {**_parts(before), **{part: _section(part, tables) for part, tables in result.items()}}
    ordered = [*(part for part in NOTES if part in parts), *(part for part in parts if part not in NOTES)]
    return "\n".join([HEAD, *(parts[part] for part in ordered)])


def _section(part: str, tables: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    lines = [f"## {part}", "", NOTES.get(part, ""), ""]
    for name, rows in tables.items():
        lines += [f"### {name}", "", *_table(rows), ""]
    return "\n".join(lines)


def _parts(text: str) -> dict[str, str]:
    """Sections of a page by the name of their part."""
    cuts = [*_PART.finditer(text)]
    ends = [*(cut.start() for cut in cuts), len(text)][1:]
    return {cut[1]: text[cut.start() : end].rstrip("\n") + "\n" for cut, end in zip(cuts, ends, strict=True)}


def _table(rows: Mapping[str, Mapping[str, float]]) -> list[str]:
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    head = ["| |" + "|".join(f" {column} " for column in columns) + "|", "|---" * (len(columns) + 1) + "|"]
    body = ["| " + name + " | " + " | ".join(_figure(row.get(c)) for c in columns) + " |" for name, row in rows.items()]
    return head + body


def _figure(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
