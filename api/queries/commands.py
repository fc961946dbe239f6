"""Commands as people and programs ask for them: submit one, list them, show one with every change of its state."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg.rows import DictRow

from api.queries.pool import Connection

MOST_OPEN: Final = 100
"""Commands of one device that may wait at once: a device that stays off does not fill the table."""

SUBMIT: Final = (
    "SELECT said, found_id FROM submit_command(%(command_id)s, %(tenant_id)s, %(device)s, %(kind)s, %(arguments)s,"
    " %(nonce)s, %(idempotency_key)s, %(asked_by)s, %(expires_at)s, %(most_open)s)"
)
_COLUMNS: Final = (
    "device, command_id, kind, arguments, state, reason, detail, asked_by, created_at, expires_at, attempts, sent_at,"
    " answered_at"
)
LIST: Final = f"""
SELECT {_COLUMNS} FROM commands
WHERE (%(device)s::text IS NULL OR device = %(device)s) AND (%(state)s::text IS NULL OR state = %(state)s)
    AND (%(before)s::timestamptz IS NULL OR (created_at, command_id) < (%(before)s, %(before_id)s::text))
ORDER BY created_at DESC, command_id DESC LIMIT %(limit)s
"""
ONE: Final = f"SELECT {_COLUMNS} FROM commands WHERE command_id = %s"
CHANGES: Final = """
SELECT change_no, changed_at, changed_by, from_state, to_state, attempts, reason
FROM device_command_changes WHERE command_id = %s ORDER BY change_no
"""
DEVICE: Final = "SELECT 1 FROM devices WHERE device = %s"


@dataclass(frozen=True, slots=True)
class Request:
    """A command that somebody wants. ``tenant_id`` None: of any tenant (administration)."""

    command_id: str
    tenant_id: int | None
    device: str
    kind: str
    arguments: dict[str, Any]
    nonce: int
    idempotency_key: str | None
    asked_by: str
    expires_at: datetime

    def parameters(self) -> dict[str, Any]:
        """For ``SUBMIT``."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return values | {"arguments": json.dumps(self.arguments), "most_open": MOST_OPEN}


@dataclass(frozen=True, slots=True)
class Before:
    """Where a page of the list begins, newest first."""

    created_at: datetime
    command_id: str


async def submit(connection: Connection, request: Request) -> tuple[str, str | None]:
    """(what was said, id of the command): see ``submit_command``. Needs a writable transaction."""
    row = await (await connection.execute(SUBMIT, request.parameters())).fetchone()
    return (str(row["said"]), row["found_id"]) if row else ("no_such_device", None)


async def list_commands(
    connection: Connection, device: str | None, state: str | None, before: Before | None, limit: int
) -> list[DictRow]:
    values = {
        "device": device, "state": state, "before": before.created_at if before else None,
        "before_id": before.command_id if before else None, "limit": limit,
    }  # fmt: skip
    return await (await connection.execute(LIST, values)).fetchall()


async def show_command(connection: Connection, command_id: str) -> DictRow | None:
    """One command with its ``changes``."""
    row = await (await connection.execute(ONE, (command_id,))).fetchone()
    if row is None:
        return None
    return {**row, "changes": await (await connection.execute(CHANGES, (command_id,))).fetchall()}


async def has_device(connection: Connection, device: str) -> bool:
    return await (await connection.execute(DEVICE, (device,))).fetchone() is not None
