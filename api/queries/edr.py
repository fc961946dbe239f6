"""Crash records. The store shows no row of one unless the transaction names a committed custody entry that allows it.

``enter`` writes such an entry (in a writable transaction of its own), ``name_entry`` names it in the reading one.
"""

from __future__ import annotations

from typing import Any

from psycopg.rows import DictRow

from api.queries.pool import Connection
from contracts.edr.custody import Decision, Request, entry_fields

ENTER = "SELECT edr_custody_enter(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) AS entry_no"
NAME = "SELECT set_config('fleetstream.custody_no', %s, true)"
NOTICES = """
SELECT n.device_key, n.event_id, n.notice, n.received_at, n.entry_no, d.device, a.name AS asset
FROM evidence_notices n JOIN devices d ON d.device_key = n.device_key
LEFT JOIN bindings b ON b.device_key = n.device_key AND b.valid @> n.received_at
LEFT JOIN assets a ON a.asset_id = b.asset_id
WHERE n.entry_no < %s ORDER BY n.entry_no DESC LIMIT %s
"""
POSITION = "SELECT * FROM edr_position(%s)"
LINKAGE = """
SELECT l.*, r.event_id FROM evidence_records r CROSS JOIN LATERAL edr_linkage(r.event_id, %(record)s) l
WHERE r.sha256 = %(sha256)s
"""
RECORDS = """
SELECT encode(r.sha256, 'hex') AS record, d.device, a.name AS asset, r.event_id,
       encode(r.recorder_id, 'hex') AS recorder, r.record_no, r.profile, r.profile_version, r.source, r.trigger,
       r.complete, r.locked, r.trust, r.received_at, r.stored_at, r.entry_no, r.event, r.recorder_id, r.sha256,
       encode(r.key_id, 'hex') AS key_id, r.algorithm, encode(r.previous_sha256, 'hex') AS previous_sha256,
       c.chain, c.replaced
FROM evidence_records r CROSS JOIN LATERAL edr_chain(r.sha256) c JOIN devices d ON d.device_key = r.device_key
LEFT JOIN bindings b ON b.device_key = r.device_key AND b.valid @> r.received_at
LEFT JOIN assets a ON a.asset_id = b.asset_id
"""
LIST = f"{RECORDS} WHERE r.entry_no < %s AND (%s::text IS NULL OR d.device = %s) ORDER BY r.entry_no DESC LIMIT %s"
ONE = f"{RECORDS} WHERE r.sha256 = %s"
ELEMENTS = """
SELECT name, status, kind, unit, resolution, states, steps, first, step_us, saturated_from_ms, clamped
FROM evidence_elements WHERE record_sha256 = %s ORDER BY position
"""
ATTACHMENTS = "SELECT encode(sha256, 'hex') AS sha256, state FROM evidence_attachments WHERE claimed_by = %s"
ATTACHMENT_DATA = """
SELECT a.name, encode(a.sha256, 'hex') AS sha256, (SELECT string_agg(p.data, ''::bytea ORDER BY p.number)
    FROM evidence_pieces p WHERE (p.device_key, p.event_id, p.sha256) = (a.device_key, a.event_id, a.sha256)) AS data
FROM evidence_attachments a WHERE a.claimed_by = %(record)s AND a.state = 'whole'
  AND (%(sha256)s::bytea IS NULL OR a.sha256 = %(sha256)s) ORDER BY a.name, a.sha256
"""
CAPSULE = "SELECT capsule FROM evidence_capsules WHERE record_sha256 = %s"
CUSTODY = """
SELECT entry_no, at_ms(at_ms) AS at, actor, key_id, role, action, subject, purpose, basis, reference, outcome, reason,
       encode(sha256, 'hex') AS sha256
FROM evidence_custody WHERE entry_no < %s ORDER BY entry_no DESC LIMIT %s
"""


async def enter(connection: Connection, asked: Request, decision: Decision) -> int:
    """Write the request and its answer into the custody log; the entry's number."""
    row = await (await connection.execute(ENTER, entry_fields(asked, decision))).fetchone()
    return int(row["entry_no"]) if row else 0


async def name_entry(connection: Connection, entry_no: int) -> None:
    """For this transaction: what follows is read under this entry."""
    await connection.execute(NAME, (str(entry_no),))


async def list_notices(connection: Connection, before: int, limit: int) -> list[DictRow]:
    return await (await connection.execute(NOTICES, (before, limit))).fetchall()


async def read_position(connection: Connection, event_id: str) -> DictRow | None:
    return await (await connection.execute(POSITION, (event_id,))).fetchone()


async def read_linkage(connection: Connection, record: bytes) -> DictRow | None:
    asked = {"record": record.hex(), "sha256": record}
    return await (await connection.execute(LINKAGE, asked)).fetchone()


async def list_records(connection: Connection, before: int, device: str | None, limit: int) -> list[DictRow]:
    return await (await connection.execute(LIST, (before, device, device, limit))).fetchall()


async def read_record(connection: Connection, record: bytes) -> DictRow | None:
    return await (await connection.execute(ONE, (record,))).fetchone()


async def read_elements(connection: Connection, record: bytes) -> list[DictRow]:
    return await (await connection.execute(ELEMENTS, (record,))).fetchall()


async def read_attachments(connection: Connection, record: bytes) -> dict[str, str]:
    """State by hash of the attachments that were claimed."""
    rows: list[dict[str, Any]] = await (await connection.execute(ATTACHMENTS, (record,))).fetchall()
    return {row["sha256"]: row["state"] for row in rows}


async def read_data(connection: Connection, record: bytes, sha256: bytes | None = None) -> list[DictRow]:
    """Raw data that a record claims and that is held whole: name, sha256 (hex), data; of one or of all."""
    asked = {"record": record, "sha256": sha256}
    return await (await connection.execute(ATTACHMENT_DATA, asked)).fetchall()


async def read_capsule(connection: Connection, record: bytes) -> bytes | None:
    row = await (await connection.execute(CAPSULE, (record,))).fetchone()
    return bytes(row["capsule"]) if row else None


async def list_custody(connection: Connection, before: int, limit: int) -> list[DictRow]:
    return await (await connection.execute(CUSTODY, (before, limit))).fetchall()
