"""Groups of assets: listed, shown, made anew, taken away; each change is told to the book in its transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg.rows import DictRow

from api.imports import IMPORT
from api.queries.pool import Connection

LIST = """
SELECT g.name, count(m.asset_id) AS assets, g.created_at
FROM asset_groups g LEFT JOIN asset_group_members m USING (group_id)
WHERE g.name > %(after)s GROUP BY g.group_id ORDER BY g.name LIMIT %(limit)s
"""
FIND = "SELECT group_id, name, created_at FROM asset_groups WHERE name = %s"
MEMBERS = """
SELECT a.name FROM asset_group_members m JOIN assets a USING (asset_id) WHERE m.group_id = %s ORDER BY a.name
"""
MAKE = "INSERT INTO asset_groups (tenant_id, name) VALUES (%s, %s) ON CONFLICT DO NOTHING"
LEAVE = "DELETE FROM asset_group_members WHERE group_id = %(group)s AND NOT asset_id = ANY(%(assets)s)"
JOIN = """
INSERT INTO asset_group_members (group_id, asset_id, tenant_id)
SELECT %(group)s, u.id, %(tenant)s FROM unnest(%(assets)s::integer[]) AS u (id) ORDER BY u.id ON CONFLICT DO NOTHING
"""
ASSETS = "SELECT asset_id, name FROM assets WHERE name = ANY(%s)"
DROP = "DELETE FROM asset_groups WHERE name = %s RETURNING group_id"
LOCK = "SELECT lock_fleet(%s)"
TELL = "SELECT tell_book(%s, %s)"


async def list_groups(connection: Connection, after: str, limit: int) -> list[DictRow]:
    return await (await connection.execute(LIST, {"after": after, "limit": limit})).fetchall()


async def find_group(connection: Connection, name: str) -> DictRow | None:
    return await (await connection.execute(FIND, (name,))).fetchone()


async def members(connection: Connection, group_id: int) -> list[str]:
    return [row["name"] for row in await (await connection.execute(MEMBERS, (group_id,))).fetchall()]


async def set_group(connection: Connection, tenant_id: int, name: str, assets: Sequence[str]) -> list[str]:
    """Make the group hold exactly these assets. Returns names that no asset has; then nothing was changed."""
    await connection.execute(LOCK, (tenant_id,))
    found = await (await connection.execute(ASSETS, (list(assets),))).fetchall()
    missing = sorted(set(assets) - {row["name"] for row in found})
    if missing:
        return missing
    made = (await connection.execute(MAKE, (tenant_id, name))).rowcount
    group = await find_group(connection, name)
    assert group is not None
    values = {"group": group["group_id"], "tenant": tenant_id, "assets": [row["asset_id"] for row in found]}
    changed = (await connection.execute(LEAVE, values)).rowcount + (await connection.execute(JOIN, values)).rowcount
    if made or changed:
        await _tell(connection, tenant_id, group["group_id"])
    return []


async def drop_group(connection: Connection, tenant_id: int, name: str) -> bool:
    """Whether there was one; its assets stay."""
    await connection.execute(LOCK, (tenant_id,))
    row = await (await connection.execute(DROP, (name,))).fetchone()
    if row is None:
        return False
    await _tell(connection, tenant_id, row["group_id"])
    return True


async def import_fleet(connection: Connection, tenant_id: int, rows: str, dry_run: bool) -> dict[str, Any]:
    """All or nothing; see ``import_fleet`` in the migrations. ``rows``: ``imports.as_json``."""
    row = await (await connection.execute(IMPORT, {"tenant": tenant_id, "rows": rows, "dry_run": dry_run})).fetchone()
    report: dict[str, Any] = row["report"] if row else {}
    return report


async def _tell(connection: Connection, tenant_id: int, group_id: int) -> None:
    keys = [f"{table}/{group_id}" for table in ("asset_groups", "asset_group_members")]
    await connection.execute(TELL, (tenant_id, keys))
