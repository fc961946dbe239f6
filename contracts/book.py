"""The registry as rows, on a compacted topic: what a lost store is made from again, with the same integer keys.

A message holds whole rows of one table (``contracts.tables`` names them in the store) as JSON objects of their columns;
its key is ``table/number``. The newest message of a key is the whole truth about it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from contracts.errors import Rejected

BOOK_TABLES: Final = (
    "tenants", "assets", "devices", "bindings", "epoch_owners", "asset_groups", "asset_group_members",
)  # fmt: skip
"""In an order in which foreign keys hold."""


@dataclass(frozen=True, slots=True)
class Page:
    """Rows of one table that belong to one key."""

    table: str
    rows: tuple[dict[str, Any], ...]


def decode_page(data: bytes) -> Page:
    """Raises Rejected('bad_page')."""
    try:
        said = json.loads(data)
        table, rows = said["table"], said["rows"]
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        raise Rejected("bad_page", str(error)) from error
    if table not in BOOK_TABLES or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Rejected("bad_page", f"not rows of {', '.join(BOOK_TABLES)}")
    return Page(table, tuple(rows))
