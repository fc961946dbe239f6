"""The tables of a scoring run as one Markdown page, with what must stand beside the figures."""

from __future__ import annotations

import math
from collections.abc import Mapping

NOTES = {
    "nab": "Normalised NAB scores (100 perfect, 0 no detection). The threshold is the benchmark's own rule: one for "
    "the whole corpus, read off its labels. `rest` are the series on which no parameter was chosen; the last column "
    "takes the threshold from the tuning part alone. The detector's state is 948 bytes a series.",
    "skab": "First 400 rows of a run train, the rest is judged, pooled; thresholds are twice the largest training "
    "distance, never read off labels. The column with `oracle` needs a threshold from the labels by its nature. "
    "VUS-PR is the plain form of `anomaly.metrics`.",
    "gearbox": "Area under ROC per load, windows of 1,024 rows, trained on healthy windows of the other loads only.",
    "drives": "Recorded drives judged at 1 Hz; an alert is 30 s of excess of alarms. The upper bound is the exact "
    "one-sided 95 % Poisson bound for a month of driving without pause (730.5 h). Faults start in mid-drive.",
    "cmapss": "Errors in cycles at each unit's last cycle; capped: true life cut at 125 (the model's own cap), raw: "
    "not cut. `coverage` is the share of units inside of the interval, `nominal` what the interval promises.",
}


def page(result: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]) -> str:
    """Part -> table -> row -> column -> figure, in the order given."""
    lines = ["# Scores", "", "Made by `make score`; one setting for all series of a part.", ""]
    for part, tables in result.items():
        lines += [f"## {part}", "", NOTES.get(part, ""), ""]
        for name, rows in tables.items():
            lines += [f"### {name}", "", *_table(rows), ""]
    return "\n".join(lines)


def _table(rows: Mapping[str, Mapping[str, float]]) -> list[str]:
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    head = ["| |" + "|".join(f" {column} " for column in columns) + "|", "|---" * (len(columns) + 1) + "|"]
    body = ["| " + name + " | " + " | ".join(_figure(row.get(c)) for c in columns) + " |" for name, row in rows.items()]
    return head + body


def _figure(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
