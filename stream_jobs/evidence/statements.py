"""Every SQL statement of the evidence consumer. Lock order: ``evidence_offsets``, then ``evidence_heads`` by tenant."""

from __future__ import annotations

from typing import Final, LiteralString

from contracts.edr.contents import ELEMENT_COLUMNS, LINKAGE_COLUMNS, RECORD_COLUMNS

OFFSETS: Final = "SELECT topic_id, kafka_partition, next_offset FROM evidence_offsets"
INSERT_OFFSET: Final = "INSERT INTO evidence_offsets VALUES (%s, %s, %s, 0) ON CONFLICT DO NOTHING"
LOCK_OFFSET: Final = """
SELECT next_offset FROM evidence_offsets WHERE topic_id = %s AND kafka_partition = %s FOR UPDATE"""
ADVANCE: Final = """
UPDATE evidence_offsets SET next_offset = greatest(next_offset, %s), updated_at = now()
WHERE topic_id = %s AND kafka_partition = %s"""

DEVICES: Final = """
SELECT d.device_key, d.device, d.tenant_id, t.name, d.kind FROM devices d JOIN tenants t USING (tenant_id)
WHERE d.device_key = ANY(%s)"""
NONCES: Final = """
SELECT s.device_key, s.boot_epoch, s.nonce FROM seen_ranges s
JOIN unnest(%s::integer[], %s::bigint[]) AS u (d, e) ON s.device_key = u.d AND s.boot_epoch = u.e"""
SEEN: Final = """
INSERT INTO evidence_ranges AS e (device_key, boot_epoch, tenant_id, ranges) VALUES (%s, %s, %s, %s::int8multirange)
ON CONFLICT (device_key, boot_epoch) DO UPDATE SET ranges = e.ranges + excluded.ranges"""

INSERT_HEAD: Final = "INSERT INTO evidence_heads (tenant_id, ledger) VALUES (%s, %s) ON CONFLICT DO NOTHING"
LOCK_HEAD: Final = """
SELECT last_no, last_at_ms, last_sha256 FROM evidence_heads WHERE tenant_id = %s AND ledger = %s FOR UPDATE"""
MOVE_HEAD: Final = """
UPDATE evidence_heads SET last_no = %s, last_at_ms = %s, last_sha256 = %s
WHERE tenant_id = %s AND ledger = 'evidence'"""
LOG: Final = "INSERT INTO evidence_log VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"

TELL: Final = "INSERT INTO outbox (tenant_id, topic, kafka_key, kafka_value) VALUES (%s, %s, %s, %s)"

OWNER: Final = "SELECT device_key FROM evidence_owners WHERE what = %s AND id = %s"
OWN: Final = """
INSERT INTO evidence_owners (what, id, device_key, tenant_id) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"""
BESIDE: Final = """
SELECT record_no, sha256, previous_sha256 FROM evidence_records
WHERE recorder_id = %s AND record_no BETWEEN %s AND %s"""


def _insert(table: LiteralString, columns: tuple[LiteralString, ...]) -> LiteralString:
    marks: LiteralString = ", ".join(["%s"] * len(columns))
    names: LiteralString = ", ".join(columns)
    return "INSERT INTO " + table + " (" + names + ") VALUES (" + marks + ")"


_PLACE: Final = ("topic_id", "kafka_partition", "kafka_offset", "entry_no")
RECORD: Final = _insert("evidence_records", (*RECORD_COLUMNS, "tenant_id", "received_at", *_PLACE))
CAPSULE: Final = "INSERT INTO evidence_capsules VALUES (%s, %s, %s)"
ELEMENT: Final = _insert("evidence_elements", (*ELEMENT_COLUMNS, "record_sha256", "tenant_id"))

HAS_NOTICE: Final = "SELECT FROM evidence_notices WHERE device_key = %s AND event_id = %s"
NOTICE: Final = """
INSERT INTO evidence_notices (tenant_id, device_key, event_id, notice, received_at, entry_no)
VALUES (%s, %s, %s, %s, %s, %s)"""
HAS_LINKAGE: Final = "SELECT FROM evidence_linkage WHERE device_key = %s AND event_id = %s AND sha256 = %s"
LINKAGE: Final = _insert(
    "evidence_linkage", (*LINKAGE_COLUMNS, "tenant_id", "device_key", "sha256", "received_at", "entry_no")
)

ATTACHMENT: Final = """
INSERT INTO evidence_attachments (device_key, event_id, sha256, tenant_id, name, size_bytes, pieces, last_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"""
LOCK_ATTACHMENT: Final = """
SELECT name, size_bytes, pieces, held_bytes, state, claimed_by FROM evidence_attachments
WHERE device_key = %s AND event_id = %s AND sha256 = %s FOR UPDATE"""
PENDING_BYTES: Final = """
SELECT coalesce(sum(held_bytes), 0)::bigint FROM evidence_attachments
WHERE device_key = %s AND (state <> 'whole' OR claimed_by IS NULL)"""
PIECE: Final = "INSERT INTO evidence_pieces VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
SAME_PIECE: Final = """
SELECT data = %s FROM evidence_pieces WHERE device_key = %s AND event_id = %s AND sha256 = %s AND number = %s"""
PIECES: Final = """
SELECT data FROM evidence_pieces WHERE device_key = %s AND event_id = %s AND sha256 = %s ORDER BY number"""
GROW: Final = """
UPDATE evidence_attachments SET held_bytes = held_bytes + %s, last_at = greatest(last_at, %s)
WHERE device_key = %s AND event_id = %s AND sha256 = %s"""
SETTLE: Final = """
UPDATE evidence_attachments SET state = %s WHERE device_key = %s AND event_id = %s AND sha256 = %s"""
CLAIMANT: Final = """
SELECT sha256 FROM evidence_records WHERE device_key = %s AND event_id = %s AND event -> 'attachments' @> %s
ORDER BY record_no LIMIT 1"""
CLAIM: Final = """
UPDATE evidence_attachments SET claimed_by = %s, entry_no = %s
WHERE device_key = %s AND event_id = %s AND sha256 = %s"""

WAITED_TOO_LONG: Final = """
SELECT device_key, event_id, sha256, held_bytes FROM evidence_attachments
WHERE claimed_by IS NULL AND last_at < %s ORDER BY device_key, event_id, sha256 LIMIT %s FOR UPDATE"""
FORGET_PIECES: Final = "DELETE FROM evidence_pieces WHERE device_key = %s AND event_id = %s AND sha256 = %s"
FORGET_ATTACHMENT: Final = """
DELETE FROM evidence_attachments WHERE device_key = %s AND event_id = %s AND sha256 = %s AND claimed_by IS NULL"""

HAS_ASIDE: Final = """
SELECT FROM evidence_asides WHERE device_key IS NOT DISTINCT FROM %s AND bytes_sha256 = %s AND reason = %s"""
ASIDE: Final = """
INSERT INTO evidence_asides (tenant_id, device_key, reason, detail, bytes_sha256, bytes, received_at, topic_id,
    kafka_partition, kafka_offset, entry_no)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"""

DAYS_TO_END: Final = """
SELECT h.tenant_id, h.ledger, t.name FROM evidence_heads h JOIN tenants t USING (tenant_id)
WHERE h.last_no > coalesce((SELECT max(r.last_no) FROM evidence_roots r
    WHERE r.tenant_id = h.tenant_id AND r.ledger = h.ledger), 0)
ORDER BY h.ledger, h.tenant_id"""
LAST_ROOT: Final = """
SELECT last_no, sha256 FROM evidence_roots WHERE tenant_id = %s AND ledger = %s ORDER BY day DESC LIMIT 1"""
ENTRIES: Final[dict[str, LiteralString]] = {
    "evidence": """SELECT entry_no, at_ms, previous_sha256, sha256 FROM evidence_log
WHERE tenant_id = %s AND entry_no > %s AND at_ms < %s ORDER BY entry_no""",
    "custody": """SELECT entry_no, at_ms, previous_sha256, sha256 FROM evidence_custody
WHERE tenant_id = %s AND entry_no > %s AND at_ms < %s ORDER BY entry_no""",
}
ROOT: Final = """
INSERT INTO evidence_roots (tenant_id, ledger, day, first_no, last_no, previous_sha256, sha256)
VALUES (%s, %s, %s, %s, %s, %s, %s)"""
