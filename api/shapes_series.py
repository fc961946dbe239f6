"""Readings and charts as columns: times once as a base and offsets, values in the same order."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

AT = "2026-11-21T12:00:00Z"


class ReadingColumns(BaseModel):
    """Readings in [from, to), oldest first. Reading i was measured at ``base`` + ``offsets_ms[i]``."""

    model_config = ConfigDict(frozen=True, json_schema_extra={"examples": [{
        "asset": "car-001", "signal": "Vehicle.Speed", "unit": "km/h", "from": AT, "to": "2026-11-21T12:10:00Z",
        "base": AT, "offsets_ms": [0, 1000], "values": [87.5, None], "qualities": ["good", "not_finite"], "next": None,
    }]})  # fmt: skip

    asset: str
    signal: str
    unit: str
    start: datetime = Field(alias="from")
    end: datetime = Field(alias="to")
    base: datetime
    offsets_ms: list[int]
    values: list[float | None]
    qualities: list[str] | None = Field(description="null: every reading is good")
    next: str | None


class Series(BaseModel):
    """A chart of one signal. ``source`` readings: ``values`` is filled, a null value breaks the line; so does a reading
    of bad quality, whose value is not told here. ``source`` windows: one entry per window with good samples, ``low``,
    ``mean``, ``high``, ``n``, ``revision`` are filled, and where a window is missing an entry of nulls breaks the
    line."""

    model_config = ConfigDict(frozen=True, json_schema_extra={"examples": [{
        "asset": "car-001", "signal": "Vehicle.Speed", "unit": "km/h", "from": AT, "to": "2026-11-21T13:00:00Z",
        "source": "windows", "width_s": 60, "keep": "extremes", "base": AT, "offsets_ms": [0, 60000], "values": None,
        "low": [10.0, None], "mean": [22.5, None], "high": [31.0, None], "n": [60, None], "revision": [1, None],
        "complete": True,
    }]})  # fmt: skip

    asset: str
    signal: str
    unit: str
    start: datetime = Field(alias="from")
    end: datetime = Field(alias="to")
    source: str
    width_s: int | None = Field(description="null for readings")
    keep: str
    base: datetime
    offsets_ms: list[int]
    values: list[float | None] | None
    low: list[float | None] | None
    mean: list[float | None] | None
    high: list[float | None] | None
    n: list[int | None] | None
    revision: list[int | None] | None = Field(description="late corrections, at most of one window in the entry")
    complete: bool = Field(description="false: the range holds more readings than one chart may read; zoom in")


def moment(at: datetime) -> str:
    """RFC 3339 in UTC."""
    return at.isoformat().replace("+00:00", "Z")


def plain(body: dict[str, Any]) -> Response:
    """JSON of plain lists by the standard library's encoder, which is fast because nothing asks back."""
    return Response(json.dumps(body, separators=(",", ":"), allow_nan=False), media_type="application/json")
