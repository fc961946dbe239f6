"""Work orders as a file: RFC 4180, a first line of names, nothing that a spreadsheet would run."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import UTC, datetime

from api.shapes_alerts import WorkOrder

RUNNABLE = ("=", "+", "-", "@", "\t", "\r", "\n")
"""A spreadsheet takes a cell that begins so for a formula (OWASP, CSV injection); a quote mark makes it a word."""


def as_csv(orders: Sequence[WorkOrder]) -> str:
    """Empty cells are what nobody knows, never zero."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(WorkOrder.model_fields)
    for order in orders:
        writer.writerow([_cell(value) for _, value in order])
    return file.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(RUNNABLE):
        return f"'{value}"
    return value
