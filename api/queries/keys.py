"""One API key by its id, and the name of a tenant."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from api.queries.pool import Connection

KEY = "SELECT key_sha256, tenant_id, role, expires_at, revoked_at FROM api_keys WHERE key_id = %s"
TENANT = "SELECT name FROM tenants WHERE tenant_id = %s"


@dataclass(frozen=True, slots=True)
class KeyRow:
    """What the store knows of a key."""

    key_sha256: bytes
    tenant_id: int
    role: str
    expires_at: datetime | None
    revoked_at: datetime | None


async def find_key(connection: Connection, key_id: str) -> KeyRow | None:
    async with connection.cursor(row_factory=class_row(KeyRow)) as cursor:
        return await (await cursor.execute(KEY, (key_id,))).fetchone()


async def tenant_name(connection: Connection, tenant_id: int) -> str:
    row = await (await connection.execute(TENANT, (tenant_id,))).fetchone()
    return str(row["name"]) if row else ""
