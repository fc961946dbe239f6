"""Do the evidence and custody logs hold, and are the rows that they vouch for still what was stored?

Reads as the evidence role, says nothing of what the rows contain. Every hash is made again from the rows themselves, so
that a row changed behind the triggers, a row added without an entry and an entry without its row are all named.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, LiteralString

import psycopg
from psycopg.rows import dict_row

from contracts.edr.contents import ASIDE_COLUMNS, ATTACHMENT_COLUMNS, LINKAGE_COLUMNS, columns, whole_record
from contracts.edr.ledger import (
    CUSTODY,
    EVIDENCE,
    LEDGERS,
    Break,
    DayRoot,
    Entry,
    chain_breaks,
    content_digest,
    root_breaks,
)

Connection = psycopg.Connection[dict[str, Any]]

ENTRIES: Final[Mapping[str, LiteralString]] = {
    EVIDENCE: """SELECT entry_no, at_ms, previous_sha256, sha256, kind, subject, encode(content_sha256, 'hex') AS digest
FROM evidence_log WHERE tenant_id = %s ORDER BY entry_no""",
    CUSTODY: """SELECT entry_no, at_ms, previous_sha256, sha256, actor, key_id, role, action, subject, purpose, basis,
    reference, outcome, reason FROM evidence_custody WHERE tenant_id = %s ORDER BY entry_no""",
}
FIELDS: Final = {
    EVIDENCE: ("kind", "subject", "digest"),
    CUSTODY: (
        "actor", "key_id", "role", "action", "subject", "purpose", "basis", "reference", "outcome", "reason",
    ),
}  # fmt: skip
HEAD: Final = "SELECT last_no, last_at_ms, last_sha256 FROM evidence_heads WHERE tenant_id = %s AND ledger = %s"
ROOTS: Final = """
SELECT day, first_no, last_no, previous_sha256, sha256 FROM evidence_roots
WHERE tenant_id = %s AND ledger = %s ORDER BY day"""
ROWS: Final[Mapping[str, LiteralString]] = {
    "record": "SELECT * FROM evidence_records WHERE tenant_id = %s",
    "notice": "SELECT entry_no, notice FROM evidence_notices WHERE tenant_id = %s",
    "linkage": "SELECT * FROM evidence_linkage WHERE tenant_id = %s",
    "attachment": "SELECT * FROM evidence_attachments WHERE tenant_id = %s AND entry_no IS NOT NULL",
    "aside": "SELECT * FROM evidence_asides WHERE tenant_id = %s",
}
ELEMENTS: Final = "SELECT * FROM evidence_elements WHERE record_sha256 = %s ORDER BY position"
CAPSULE: Final = "SELECT capsule FROM evidence_capsules WHERE record_sha256 = %s"
PIECES: Final = """
SELECT data FROM evidence_pieces WHERE device_key = %s AND event_id = %s AND sha256 = %s ORDER BY number"""


@dataclass(frozen=True, slots=True)
class Examined:
    """What was looked at for one tenant, and what does not hold."""

    tenant: str
    evidence_entries: int
    custody_entries: int
    roots: int
    breaks: tuple[Break, ...]


def examine(dsn: str, tenant: str | None = None) -> list[Examined]:
    """Every tenant with a log, or the one named."""
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        found = connection.execute(
            "SELECT DISTINCT t.tenant_id, t.name FROM tenants t JOIN evidence_heads USING (tenant_id)"
            " WHERE %(name)s::text IS NULL OR t.name = %(name)s ORDER BY t.name",
            {"name": tenant},
        ).fetchall()
        return [_examine(connection, row["tenant_id"], row["name"]) for row in found]


def _examine(connection: Connection, tenant_id: int, tenant: str) -> Examined:
    breaks: list[Break] = []
    counts, roots_made = {}, 0
    for ledger in LEDGERS:
        rows = connection.execute(ENTRIES[ledger], (tenant_id,)).fetchall()
        entries = [
            Entry(
                row["entry_no"], row["at_ms"], tuple(row[name] for name in FIELDS[ledger]), row["previous_sha256"],
                row["sha256"],
            )
            for row in rows
        ]  # fmt: skip
        roots = [DayRoot(**row) for row in connection.execute(ROOTS, (tenant_id, ledger)).fetchall()]
        head = connection.execute(HEAD, (tenant_id, ledger)).fetchone()
        last = Entry(head["last_no"], head["last_at_ms"], (), b"", head["last_sha256"]) if head else None
        breaks += chain_breaks(ledger, tenant_id, entries, last)
        breaks += root_breaks(ledger, tenant_id, entries, roots)
        counts[ledger], roots_made = len(entries), roots_made + len(roots)
        if ledger == EVIDENCE:
            breaks += _content_breaks(connection, tenant_id, rows)
    return Examined(tenant, counts[EVIDENCE], counts[CUSTODY], roots_made, tuple(breaks))


def _content_breaks(connection: Connection, tenant_id: int, log: list[dict[str, Any]]) -> list[Break]:
    breaks = []
    for kind, query in ROWS.items():
        told = {row["entry_no"]: row["digest"] for row in log if row["kind"] == kind}
        for row in connection.execute(query, (tenant_id,)).fetchall():
            place = f"{kind} of evidence entry {row['entry_no']}"
            digest = told.pop(row["entry_no"], None)
            if digest is None:
                breaks.append(Break(place, "the log has no entry about it"))
            elif content_digest(kind, _content(connection, kind, row)).hex() != digest:
                breaks.append(Break(place, "its row is not what was stored"))
            breaks += [Break(place, what) for what in _byte_faults(connection, kind, row)]
        breaks += [Break(f"{kind} of evidence entry {entry_no}", "its row is gone") for entry_no in sorted(told)]
    return breaks


def _content(connection: Connection, kind: str, row: dict[str, Any]) -> dict[str, Any]:
    if kind == "record":
        return whole_record(row, connection.execute(ELEMENTS, (row["sha256"],)).fetchall())
    if kind == "notice":
        return dict(row["notice"])
    names = {"linkage": LINKAGE_COLUMNS, "attachment": ATTACHMENT_COLUMNS, "aside": ASIDE_COLUMNS}[kind]
    return columns(row, names)


def _byte_faults(connection: Connection, kind: str, row: dict[str, Any]) -> list[str]:
    """Original bytes against the hash that the log vouches for."""
    if kind == "record":
        held = connection.execute(CAPSULE, (row["sha256"],)).fetchone()
        if held is None or hashlib.sha256(held["capsule"]).digest() != row["sha256"]:
            return ["its original bytes are gone or changed"]
    if kind == "aside" and hashlib.sha256(row["bytes"]).digest() != row["bytes_sha256"]:
        return ["the bytes kept aside were changed"]
    if kind == "attachment":
        digest = hashlib.sha256()
        for piece in connection.execute(PIECES, (row["device_key"], row["event_id"], row["sha256"])):
            digest.update(piece["data"])
        if digest.digest() != row["sha256"]:
            return ["its pieces are gone or changed"]
    return []
