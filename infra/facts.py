"""What is known of vehicles beside their names, from a table of text: fleet, model, driver, capacities, consumption.

All lines are written or none. What a line leaves empty stays as it was.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql

from contracts.errors import Rejected

TEXTS: Final = ("fleet", "model", "driver")
NUMBERS: Final = ("load_capacity_kg", "fuel_capacity_l", "nominal_l_100km")
COLUMNS: Final = ("asset", *TEXTS, *NUMBERS)
LONGEST: Final = 200
MOST_LINES: Final = 100_000

Fact = str | float


@dataclass(frozen=True, slots=True)
class Facts:
    """What is said of one asset."""

    asset: str
    values: dict[str, Fact]


def read_facts(lines: Iterable[str]) -> list[Facts]:
    """CSV with a head; columns may be left out. Raises Rejected('bad_facts') that names every bad line."""
    table = csv.DictReader(lines)
    head = table.fieldnames or ()
    unknown = [name for name in head if name not in COLUMNS]
    if "asset" not in head or unknown:
        raise Rejected("bad_facts", f"the head names asset and some of {', '.join(COLUMNS[1:])}; nothing was changed")
    found: list[Facts] = []
    errors: list[str] = []
    seen: set[str] = set()
    for row in table:
        if len(found) >= MOST_LINES:
            raise Rejected("bad_facts", f"more than {MOST_LINES} lines at once; nothing was changed")
        try:
            one = _facts(row)
            if one.asset in seen:
                raise ValueError(f"{one.asset!r} is named twice")
            seen.add(one.asset)
            found.append(one)
        except ValueError as error:
            errors.append(f"line {table.line_num}: {error}")
    if errors:
        raise Rejected("bad_facts", "; ".join(errors[:20]) + "; nothing was changed")
    return found


def write_facts(connection: psycopg.Connection[Any], tenant: str, facts: Iterable[Facts]) -> int:
    """Write all or none, and the registry's book with it; how many assets. Raises Rejected('no_such_asset')."""
    listed = list(facts)
    missing: list[str] = []
    with connection.transaction():
        for one in sorted(listed, key=lambda one: one.asset):
            names = sorted(one.values)
            changes = sql.SQL(", ").join(
                sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in names
            )
            row = connection.execute(
                sql.SQL(UPDATE).format(changes=changes or sql.SQL("name = name")),
                {**one.values, "asset": one.asset, "tenant": tenant},
            ).fetchone()
            if row is None:
                missing.append(one.asset)
                continue
            connection.execute(BOOK, (row[0],))
        if missing:
            told = ", ".join(missing[:20])
            raise Rejected("no_such_asset", f"tenant {tenant} has no asset {told}; nothing was changed")
    return len(listed)


UPDATE: Final = """
UPDATE assets SET {changes}
WHERE name = %(asset)s AND tenant_id = (SELECT tenant_id FROM tenants WHERE name = %(tenant)s) RETURNING asset_id"""
BOOK: Final = """
INSERT INTO outbox (tenant_id, topic, kafka_key, kafka_value)
SELECT tenant_id, 'book', kafka_key, kafka_value FROM registry_book WHERE page = 'assets' AND id = %s"""


def _facts(row: dict[str, Any]) -> Facts:
    asset = (row.get("asset") or "").strip()
    if None in row or not 1 <= len(asset) <= LONGEST:
        raise ValueError("an asset's name has 1 to 200 characters, and a line no more cells than the head")
    values: dict[str, Fact] = {}
    for name in TEXTS:
        text = (row.get(name) or "").strip()
        if len(text) > LONGEST:
            raise ValueError(f"{name} has more than {LONGEST} characters")
        if text:
            values[name] = text
    for name in NUMBERS:
        text = (row.get(name) or "").strip()
        if text:
            values[name] = _positive(name, text)
    return Facts(asset, values)


def _positive(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(f"{name} is a positive number, not {text[:20]!r}")
    return value
