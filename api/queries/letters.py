"""What was set aside, letter by letter, and what was sent again of it."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg.rows import DictRow

from api.letters import Sending
from api.queries.pool import Connection
from contracts.errors import Rejected
from contracts.packet import Lane
from contracts.stamp import Stamp, encode_stamp

_KEY: Final = "topic_id, kafka_partition, kafka_offset"
LIST: Final = f"""
SELECT kept_by, {_KEY}, device, boot_epoch, seq, reason, detail, came_by, received_at, samples, size_bytes,
       EXISTS (SELECT FROM resubmissions s WHERE (s.topic_id, s.kafka_partition, s.kafka_offset)
           = (l.topic_id, l.kafka_partition, l.kafka_offset)) AS sent_again
FROM letters l
WHERE (%(kept_by)s::text IS NULL OR kept_by = %(kept_by)s) AND (%(reason)s::text IS NULL OR reason = %(reason)s)
  AND (%(device)s::text IS NULL OR device = %(device)s)
  AND (%(before)s::timestamptz IS NULL OR (received_at, {_KEY})
       < (%(before)s, %(topic_id)s::uuid, %(partition)s::integer, %(offset)s::bigint))
ORDER BY received_at DESC, topic_id DESC, kafka_partition DESC, kafka_offset DESC LIMIT %(limit)s
"""
ONE: Final = f"""
SELECT l.*, d.device_key, d.kind AS device_kind, d.revoked_at, t.name AS tenant
FROM letters l LEFT JOIN devices d ON d.device = l.device AND d.tenant_id = l.tenant_id
LEFT JOIN tenants t ON t.tenant_id = l.tenant_id
WHERE (kept_by, {_KEY}) = (%(kept_by)s, %(topic_id)s, %(partition)s, %(offset)s)
"""
SENT: Final = """
SELECT s.resubmission_id, s.boot_epoch, s.nonce, s.seq, s.rescued, s.shift_ms, s.samples, s.sent_to, s.asked_by,
       s.asked_at,       encode(s.sha256, 'hex') AS sha256, d.device,
       coalesce(EXISTS (SELECT FROM seen_ranges r WHERE r.device_key = s.device_key AND r.boot_epoch = s.boot_epoch
           AND r.nonce = s.nonce AND r.ranges @> s.seq)
           OR EXISTS (SELECT FROM evidence_ranges e WHERE e.device_key = s.device_key AND e.boot_epoch = s.boot_epoch
           AND e.ranges @> s.seq), false) AS stored
FROM resubmissions s JOIN devices d USING (device_key)
WHERE (s.topic_id, s.kafka_partition, s.kafka_offset) = (%(topic_id)s, %(partition)s, %(offset)s)
ORDER BY s.resubmission_id
"""
SEALED: Final = {
    "gateway": f"SELECT sealed FROM refused WHERE ({_KEY}) = (%(topic_id)s, %(partition)s, %(offset)s)",
    "stream_job": f"SELECT sealed FROM quarantined WHERE ({_KEY}) = (%(topic_id)s, %(partition)s, %(offset)s)",
}
HOLD_DEVICE: Final = "SELECT 1 FROM devices WHERE device_key = %s FOR NO KEY UPDATE"
KNOWN: Final = """
SELECT nonce, ranges @> %(seq)s::bigint AS stored FROM seen_ranges
WHERE device_key = %(device)s AND boot_epoch = %(epoch)s
"""
RESERVED: Final = """
SELECT e.boot_epoch, e.nonce, e.next_seq, coalesce(r.nonce = e.nonce, true) AS ours
FROM rescue_epochs e LEFT JOIN seen_ranges r USING (device_key, boot_epoch) WHERE e.device_key = %s
"""
HIGHEST: Final = "SELECT coalesce(max(boot_epoch), 0) + 1 AS epoch FROM seen_ranges WHERE device_key = %s"
RESERVE: Final = """
INSERT INTO rescue_epochs AS e (device_key, tenant_id, boot_epoch, nonce)
VALUES (%(device)s, %(tenant)s, %(epoch)s, %(nonce)s)
ON CONFLICT (device_key) DO UPDATE SET boot_epoch = excluded.boot_epoch, nonce = excluded.nonce, next_seq = 1
"""
OPEN_EPOCH: Final = """
INSERT INTO seen_ranges (device_key, boot_epoch, nonce, tenant_id)
VALUES (%(device)s, %(epoch)s, %(nonce)s, %(tenant)s) ON CONFLICT DO NOTHING
"""
NEXT: Final = "UPDATE rescue_epochs SET next_seq = next_seq + 1 WHERE device_key = %s RETURNING next_seq - 1 AS seq"
SEND: Final = """
INSERT INTO outbox (tenant_id, topic, kafka_key, kafka_value, stamp)
VALUES (%(tenant)s, %(topic)s, %(device)s, %(frame)s, %(stamp)s)
"""
WRITE: Final = f"""
INSERT INTO resubmissions (tenant_id, kept_by, {_KEY}, device_key, boot_epoch, nonce, seq, rescued, shift_ms, samples,
    sent_to, sha256, asked_by)
VALUES (%(tenant)s, %(kept_by)s, %(topic_id)s, %(partition)s, %(offset)s, %(device_key)s, %(epoch)s, %(nonce)s, %(seq)s,
    %(rescued)s, %(shift_ms)s, %(samples)s, %(topic)s, %(sha256)s, %(asked_by)s)
"""


KINDS: Final = {"g": "gateway", "s": "stream_job"}
TAGS: Final = {kept_by: tag for tag, kept_by in KINDS.items()}


@dataclass(frozen=True, slots=True)
class LetterId:
    """Where a letter lies in the log, and who set it aside."""

    kept_by: str
    topic_id: str
    partition: int
    offset: int

    def values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which letters, newest first; ``before``: where the page before ended."""

    kept_by: str | None = None
    reason: str | None = None
    device: str | None = None
    before: tuple[datetime, str, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Name:
    """An identity of a packet of one device."""

    boot_epoch: int
    nonce: int
    seq: int


def read_id(text: str) -> LetterId:
    """Raises Rejected('bad_letter')."""
    found = re.fullmatch(r"([gs])-([0-9a-f]{32})-(\d{1,9})-(\d{1,18})", text, re.ASCII)
    if found is None:
        raise Rejected("bad_letter", f"{text[:80]!r} is no id of a letter; take it from the list")
    return LetterId(KINDS[found[1]], found[2], int(found[3]), int(found[4]))


def write_id(row: dict[str, Any]) -> str:
    return f"{TAGS[row['kept_by']]}-{row['topic_id'].hex}-{row['kafka_partition']}-{row['kafka_offset']}"


async def list_letters(connection: Connection, chosen: LetterFilter, limit: int) -> list[DictRow]:
    before, topic_id, partition, offset = chosen.before or (None, None, None, None)
    values = {
        "kept_by": chosen.kept_by, "reason": chosen.reason, "device": chosen.device, "before": before,
        "topic_id": topic_id, "partition": partition, "offset": offset, "limit": limit,
    }  # fmt: skip
    return await (await connection.execute(LIST, values)).fetchall()


async def find_letter(connection: Connection, letter: LetterId) -> DictRow | None:
    """With its bytes, and with the device and tenant as they are registered now (None: not, or not any more).

    ``sealed``: the bytes are a crash record's, to be sent again but not to be shown.
    """
    row = await (await connection.execute(ONE, letter.values())).fetchone()
    if row is None or len(row["bytes"]) == row["size_bytes"]:
        return row and {**row, "sealed": False}
    found = await (await connection.execute(SEALED[letter.kept_by], letter.values())).fetchone()
    return {**row, "bytes": found["sealed"] if found else b"", "sealed": True}


async def sent_again(connection: Connection, letter: LetterId) -> list[DictRow]:
    """Every sending of a letter, oldest first, and whether the store has what was sent."""
    return await (await connection.execute(SENT, letter.values())).fetchall()


async def hold_device(connection: Connection, device_key: int) -> None:
    """Sendings of one device go one after the other, and so do the rows of its key in the outbox."""
    await connection.execute(HOLD_DEVICE, (device_key,))


async def is_stored(connection: Connection, device_key: int, name: Name) -> bool | None:
    """Whether the store has this packet; None: the epoch belongs to another run of the device."""
    values = {"device": device_key, "epoch": name.boot_epoch, "seq": name.seq}
    row = await (await connection.execute(KNOWN, values)).fetchone()
    if row is None:
        return False
    return bool(row["stored"]) if row["nonce"] == name.nonce else None


async def rescue_name(connection: Connection, tenant_id: int, device_key: int) -> Name:
    """The next free identity of the device's rescue epoch. It is reserved here when there is none, or when the device
    itself came to use it first; the gateways learn of it as of every epoch."""
    row = await (await connection.execute(RESERVED, (device_key,))).fetchone()
    if row is None or not row["ours"]:
        highest = await (await connection.execute(HIGHEST, (device_key,))).fetchone()
        assert highest is not None
        values = {
            "device": device_key, "tenant": tenant_id, "epoch": highest["epoch"], "nonce": secrets.randbits(62) + 1
        }  # fmt: skip
        await connection.execute(RESERVE, values)
        await connection.execute(OPEN_EPOCH, values)
        row = {"boot_epoch": values["epoch"], "nonce": values["nonce"]}
    taken = await (await connection.execute(NEXT, (device_key,))).fetchone()
    assert taken is not None
    return Name(row["boot_epoch"], row["nonce"], taken["seq"])


async def send_again(
    connection: Connection, letter: LetterId, row: DictRow, sending: Sending, stamp: Stamp, *,
    rescued: bool, shift_ms: int, asked_by: str,
) -> None:  # fmt: skip
    """The packet into the outbox and the audit's row, both or neither."""
    header = sending.header
    values = letter.values() | {
        "tenant": stamp.tenant_id, "topic": Lane(header.lane).name.lower(), "device": row["device"],
        "frame": sending.frame, "stamp": encode_stamp(stamp), "device_key": stamp.device_key,
        "epoch": header.boot_epoch, "nonce": header.nonce, "seq": header.seq, "rescued": rescued, "shift_ms": shift_ms,
        "samples": header.samples, "sha256": hashlib.sha256(sending.frame).digest(), "asked_by": asked_by,
    }  # fmt: skip
    await connection.execute(SEND, values)
    await connection.execute(WRITE, values)
