"""A fleet from a CSV file: every line checked for its form, errors named by line and column. Pure.

Columns: ``device`` and ``asset`` must be there; ``asset_kind``, ``device_kind``, ``since`` (RFC 3339), ``latitude`` and
``longitude`` (WGS 84 degrees, of what does not move) and ``groups`` (several with ``;``) may be. An empty cell says
nothing, so it changes nothing.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from contracts.errors import Rejected
from contracts.names import check_device
from contracts.registry import ASSET_KINDS, KINDS

REQUIRED: Final = ("device", "asset")
COLUMNS: Final = (*REQUIRED, "asset_kind", "device_kind", "since", "latitude", "longitude", "groups")
MOST_LINES: Final = 20_000
MOST_BYTES: Final = 4 * 1024 * 1024
MOST_TOLD: Final = 1_000
"""Errors that one answer tells; a file with more is wrong as a whole."""

IMPORT: Final = "SELECT import_fleet(%(tenant)s, %(rows)s::jsonb, %(dry_run)s) AS report"


@dataclass(frozen=True, slots=True)
class LineError:
    """What is wrong with one cell. Lines count from 1, the header is line 1."""

    line: int
    column: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Line:
    """One device and what it measures; None: the file does not say."""

    line: int
    device: str
    asset: str
    asset_kind: str | None
    device_kind: str | None
    since: str | None
    latitude: float | None
    longitude: float | None
    groups: tuple[str, ...]


def read_fleet(data: bytes) -> tuple[list[Line], list[LineError]]:
    """Lines that are in form, and what is wrong with the others (at most MOST_TOLD)."""
    lines: list[Line] = []
    errors: list[LineError] = []
    devices: dict[str, int] = {}
    assets: dict[str, Line] = {}
    try:
        for number, row in _rows(data):
            try:
                line = _line(number, row)
                _meet(line, devices, assets)
                lines.append(line)
            except _Bad as bad:
                errors.append(LineError(number, *bad.args))
            if len(errors) >= MOST_TOLD:
                break
    except _BadFile as bad:
        errors.append(LineError(*bad.args))
    if not lines and not errors:
        errors.append(LineError(2, "device", "empty_file", "the file names no device"))
    return lines, errors


def as_json(lines: list[Line]) -> str:
    """For ``IMPORT``."""
    return json.dumps([asdict(line) for line in lines])


class _Bad(Exception):
    """(column, reason, detail)"""


class _BadFile(Exception):
    """(line, column, reason, detail)"""


def _rows(data: bytes) -> Iterator[tuple[int, Mapping[str, str]]]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _BadFile(line, "", "not_utf8", "the file is not UTF-8 text") from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        _check_header(header)
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if reader.line_num > MOST_LINES + 1:
                raise _BadFile(reader.line_num, "", "too_many_lines", f"at most {MOST_LINES} lines in one file")
            if len(row) != len(header):
                detail = f"{len(row)} cells where the header has {len(header)}"
                raise _BadFile(reader.line_num, "", "bad_line", detail)
            yield reader.line_num, {name: cell.strip() for name, cell in zip(header, row, strict=True)}
    except csv.Error as error:
        raise _BadFile(reader.line_num, "", "bad_csv", str(error)) from error


def _check_header(header: list[str]) -> None:
    for name in REQUIRED:
        if name not in header:
            hint = "; cells are separated by commas" if ";" in "".join(header) else ""
            raise _BadFile(1, name, "missing_column", f"the first line must name the column {name}{hint}")
    for name in header:
        if name not in COLUMNS:
            raise _BadFile(1, name[:50], "unknown_column", "the columns are " + ", ".join(COLUMNS))
        if header.count(name) > 1:
            raise _BadFile(1, name, "doubled_column", "a column is named once")


def _line(number: int, row: Mapping[str, str]) -> Line:
    try:
        device = check_device(row["device"])
    except Rejected as error:
        raise _Bad("device", error.reason, error.detail) from error
    latitude, longitude = (_degrees(row, name, most) for name, most in (("latitude", 90), ("longitude", 180)))
    if (latitude is None) != (longitude is None):
        raise _Bad("latitude", "bad_place", "a place has a latitude and a longitude")
    groups = tuple(dict.fromkeys(one.strip() for one in row.get("groups", "").split(";") if one.strip()))
    for group in groups:
        _name("groups", group, 100)
    return Line(
        number, device, _name("asset", row["asset"], 200), _kind(row, "asset_kind", ASSET_KINDS),
        _kind(row, "device_kind", KINDS), _since(row), latitude, longitude, groups,
    )  # fmt: skip


def _name(column: str, text: str, most: int) -> str:
    if not 1 <= len(text) <= most or not text.isprintable():
        raise _Bad(column, "bad_name", f"a name has 1 to {most} printable characters")
    return text


def _kind(row: Mapping[str, str], column: str, kinds: tuple[str, ...]) -> str | None:
    text = row.get(column, "")
    if text and text not in kinds:
        raise _Bad(column, "bad_kind", f"one of {', '.join(kinds)}")
    return text or None


def _since(row: Mapping[str, str]) -> str | None:
    text = row.get("since", "")
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise _Bad("since", "bad_time", "RFC 3339, like 2026-11-21T12:00:00Z") from error
    if moment.tzinfo is None or not 1970 <= moment.year < 9999:
        raise _Bad("since", "bad_time", "a time after 1970 with its zone, like 2026-11-21T12:00:00Z")
    return moment.isoformat()


def _degrees(row: Mapping[str, str], column: str, most: int) -> float | None:
    text = row.get(column, "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError as error:
        raise _Bad(column, "bad_place", "degrees, like 49.01") from error
    if not abs(value) <= most:
        raise _Bad(column, "bad_place", f"within {most} degrees")
    return value


def _meet(line: Line, devices: dict[str, int], assets: dict[str, Line]) -> None:
    """One file says one thing of a device, and the same thing of an asset each time."""
    if line.device in devices:
        raise _Bad("device", "doubled_device", f"line {devices[line.device]} names this device too")
    devices[line.device] = line.line
    other = assets.setdefault(line.asset, line)
    mine, theirs = ((one.asset_kind, one.latitude, one.longitude) for one in (line, other))
    if mine != theirs:
        raise _Bad("asset", "contradiction", f"line {other.line} says another kind or place of this asset")


def told(report: Mapping[str, Any]) -> list[LineError]:
    """The store's own errors."""
    return [LineError(**one) for one in report["errors"]][:MOST_TOLD]
