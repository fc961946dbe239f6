"""Small builders of Grafana panels: plain dictionaries in the shape of Grafana 11's dashboard JSON (schema 39).

A panel knows its title, what it tells, its SQL and its unit; where it lies on the board is decided by ``lay_out``.
Every panel refers to the data source by its fixed uid, so a renamed data source breaks nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

DATASOURCE_UID = "fleetstream-postgres"
DATASOURCE = {"type": "grafana-postgresql-datasource", "uid": DATASOURCE_UID}
COLUMNS = 24
GAP_MS = 180_000
"""Of lines through windows of one minute: none is drawn over more than three without one. Lines of a grouped time have
their gaps from the query (``$__timeGroupAlias(…, NULL)``), since the distance of their points is the board's choice."""

UNITS = {
    "km/h": "velocitykmh", "m/s": "velocityms", "rpm": "rotrpm", "Celsius": "celsius", "percent": "percent",
    "V": "volt", "A": "amp", "kW": "kwatt", "kWh": "kwatth", "kPa": "pressurekpa", "bar": "pressurebar",
    "degrees": "degree", "m/s^2": "accMS2", "Hz": "hertz", "m": "lengthm", "l": "litre", "s": "s", "h": "h",
    "By": "bytes", "": "none",
}  # fmt: skip
"""Unit of the catalogue to Grafana's id; any other unit is written behind the number as it is."""


def grafana_unit(unit: str) -> str:
    return UNITS.get(unit, f"suffix: {unit}")


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; ``sql`` may use Grafana's macros and the board's variables. ``steps``: (from value, colour)."""

    kind: str
    title: str
    text: str
    sql: str
    unit: str = ""
    width: int = 12
    height: int = 8
    steps: tuple[tuple[float | None, str], ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    custom: dict[str, Any] = field(default_factory=dict)
    repeat: str | None = None
    overrides: tuple[dict[str, Any], ...] = ()


def number(
    title: str, text: str, sql: str, unit: str = "", *, steps: tuple[tuple[float | None, str], ...] = ()
) -> Panel:
    """One large number; no row and null are shown as a dash, never as zero."""
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value" if steps else "none", "graphMode": "none", "textMode": "value",
    }  # fmt: skip
    return Panel("stat", title, text, sql, unit, width=4, height=4, steps=steps, options=options)


def lines(title: str, text: str, sql: str, unit: str = "", *, width: int = 12, bars: bool = False,
          repeat: str | None = None) -> Panel:  # fmt: skip
    """Values over time with gaps shown as gaps."""
    custom = {
        "drawStyle": "bars" if bars else "line", "lineWidth": 1, "fillOpacity": 60 if bars else 8, "showPoints": "auto",
        "pointSize": 3, "spanNulls": False, "insertNulls": False if bars or "$__timeGroup" in sql else GAP_MS,
        "stacking": {"mode": "normal" if bars else "none"},
    }  # fmt: skip
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "none"},
    }
    return Panel("timeseries", title, text, sql, unit, width=width, options=options, custom=custom, repeat=repeat)


def rows(title: str, text: str, sql: str, *, width: int = 24, height: int = 9,
         units: dict[str, str] | None = None) -> Panel:  # fmt: skip
    """A table; ``units`` names the unit of a column."""
    overrides = tuple(
        {"matcher": {"id": "byName", "options": column}, "properties": [{"id": "unit", "value": grafana_unit(unit)}]}
        for column, unit in (units or {}).items()
    )
    options = {"showHeader": True, "cellHeight": "sm", "footer": {"show": False, "reducer": ["sum"], "fields": ""}}
    return Panel("table", title, text, sql, width=width, height=height, options=options, overrides=overrides)


def as_json(panel: Panel, number_: int, x: int, y: int) -> dict[str, Any]:
    """The panel at its place, as Grafana stores it."""
    steps = panel.steps or ((None, "text"),)
    made: dict[str, Any] = {
        "id": number_, "type": panel.kind, "title": panel.title, "description": panel.text, "datasource": DATASOURCE,
        "gridPos": {"h": panel.height, "w": panel.width, "x": x, "y": y}, "options": panel.options,
        "fieldConfig": {
            "defaults": {
                "unit": grafana_unit(panel.unit), "noValue": "–", "custom": panel.custom,
                "color": {"mode": "thresholds" if panel.steps else "palette-classic"},
                "thresholds": {"mode": "absolute", "steps": [{"value": v, "color": c} for v, c in steps]},
            },
            "overrides": list(panel.overrides),
        },
        "targets": [{
            "refId": "A", "datasource": DATASOURCE, "rawQuery": True, "editorMode": "code", "rawSql": panel.sql.strip(),
            "format": "time_series" if panel.kind == "timeseries" else "table",
        }],
    }  # fmt: skip
    if panel.repeat:
        made |= {"repeat": panel.repeat, "repeatDirection": "h", "maxPerRow": 2}
    return made


def lay_out(groups: Sequence[Sequence[Panel]]) -> list[dict[str, Any]]:
    """Panels from left to right and downwards, each group from a new line on."""
    placed: list[dict[str, Any]] = []
    y = 0
    for group in groups:
        x = tallest = 0
        for panel in group:
            if x + panel.width > COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            placed.append(as_json(panel, len(placed) + 1, x, y))
            x, tallest = x + panel.width, max(tallest, panel.height)
        y += tallest
    return placed


def query_variable(name: str, label: str, sql: str, *, many: bool = False) -> dict[str, Any]:
    """A choice of the board whose values come from the store."""
    return {
        "name": name, "label": label, "type": "query", "datasource": DATASOURCE, "query": sql, "definition": sql,
        "refresh": 1, "sort": 1, "multi": many, "includeAll": many, "allValue": None, "hide": 0, "skipUrlSync": False,
        "regex": "", "options": [], "current": {},
    }  # fmt: skip


def board(
    uid: str, title: str, text: str, groups: Sequence[Sequence[Panel]], variables: Sequence[dict[str, Any]] = (),
    *, since: str = "now-1h", refresh: str = "10s", least: str = "10s",
) -> dict[str, Any]:  # fmt: skip
    """A whole board. ``uid`` is fixed for ever: links and bookmarks hang on it. ``least``: no point of a line
    stands for less time, so that a point narrower than a window is not taken for a gap."""
    return {
        "uid": uid, "title": title, "description": text, "tags": ["fleetstream"], "schemaVersion": 39, "version": 1,
        "editable": True, "graphTooltip": 1, "timezone": "utc", "time": {"from": since, "to": "now"},
        "refresh": refresh, "annotations": {"list": []}, "links": [_menu()], "templating": {"list": list(variables)},
        "panels": [{**panel, "interval": least} for panel in lay_out(groups)],
    }  # fmt: skip


def _menu() -> dict[str, Any]:
    return {
        "title": "Fleetstream", "type": "dashboards", "tags": ["fleetstream"], "asDropdown": True, "includeVars": True,
        "keepTime": True, "icon": "external link", "targetBlank": False, "tooltip": "", "url": "",
    }  # fmt: skip
