"""The store's side of judging late readings again: what waits, a device's history, what had been learnt, corrections.

One connection, in a thread beside the query; one process per schema's name. A device's corrections, their outbox rows,
its snapshots and the end of its waiting are one transaction. Findings are locked in the order of their ids, as the
stream's own writer does it, and what waits after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import psycopg

from anomaly.corrections import REASONS, Change, Said, Stored
from anomaly.deployment import Deployment
from anomaly.types import Rows
from contracts.errors import Rejected
from contracts.finding import Finding, Severity, encode_finding
from contracts.locks import OF_SCHEMA, REJUDGE_LOCK
from stream_jobs.errors import StoreBusy
from stream_jobs.sinks.connection import Connection, connect
from stream_jobs.sinks.findings import CHANGING, COLUMNS, TELL, Owned, owners, row_of

DUE: Final = """
SELECT l.device_key, l.tenant_id, l.from_ms, l.to_ms, l.notes, n.newest_ms FROM late_due l
CROSS JOIN LATERAL (SELECT max(measured_ms) AS newest_ms FROM latest_values v WHERE v.device_key = l.device_key) n
WHERE NOT EXISTS (SELECT FROM jsonb_each_text(l.wanted) w WHERE w.value::bigint > coalesce(
    (SELECT max(o.next_offset) FROM ingest_offsets o WHERE o.topic || '/' || o.kafka_partition = w.key), 0))
ORDER BY l.noted_at, l.device_key LIMIT %s"""
FOLLOWED: Final = """
SELECT f.device_key, f.tenant_id, f.judged_ms, f.late_to_ms, 0, n.newest_ms FROM late_followed f
CROSS JOIN LATERAL (SELECT max(measured_ms) AS newest_ms FROM latest_values v WHERE v.device_key = f.device_key) n
WHERE n.newest_ms >= f.judged_ms + %s AND NOT EXISTS (SELECT FROM late_due l WHERE l.device_key = f.device_key)
ORDER BY f.judged_ms, f.device_key LIMIT %s"""
SNAPSHOT: Final = """
SELECT at_ms, since_ms, state FROM detection_snapshots
WHERE device_key = %s AND set_version = %s AND at_ms <= %s AND at_ms >= %s ORDER BY at_ms DESC LIMIT 1"""
OLDER: Final = """
SELECT EXISTS (SELECT FROM packet_rows WHERE device_key = %(device)s AND first_at < at_ms(%(before)s))
    OR EXISTS (SELECT FROM reading_blocks WHERE device_key = %(device)s AND first_at < at_ms(%(before)s))
    OR EXISTS (SELECT FROM expired_packets WHERE device_key = %(device)s)"""
HOT: Final = """
SELECT boot_epoch, seq, base_ms, signals, offsets_ms, vals, qualities FROM packet_rows
WHERE device_key = %(device)s AND last_at >= at_ms(%(from)s) AND first_at < at_ms(%(to)s)"""
COMPACTED: Final = """
SELECT k.signal, k.boot_epoch, r.seq, r.pos, r.ms, r.val, coalesce(r.quality, 0) FROM reading_blocks k
CROSS JOIN LATERAL (
    SELECT k.base_ms + sum(v.step) OVER w AS ms, k.base_seq + sum(v.seq_step) OVER w AS seq,
           sum(v.pos_step) OVER w AS pos, v.quality,
           CASE WHEN k.raw IS NOT NULL THEN v.raw
                WHEN v.unit IS NULL AND v.unit8 IS NULL THEN NULL
                ELSE coalesce(v.unit8, k.base_units + sum(v.unit) OVER w)::double precision
                    * CASE WHEN k.exponent < 0 THEN 1 ELSE k.scale END
                    / CASE WHEN k.exponent < 0 THEN k.scale ELSE 1 END END AS val
    FROM unnest(coalesce(k.steps4, k.steps2::integer[]), coalesce(k.units4, k.units2::integer[]), k.units8, k.raw,
                k.seq_steps, k.pos_steps, k.qualities)
        WITH ORDINALITY AS v (step, unit, unit8, raw, seq_step, pos_step, quality, i)
    WINDOW w AS (ORDER BY v.i ROWS UNBOUNDED PRECEDING)) r
WHERE k.device_key = %(device)s AND k.signal = ANY(%(signals)s) AND k.last_at >= at_ms(%(from)s)
    AND k.first_at < at_ms(%(to)s) AND r.ms >= %(from)s AND r.ms < %(to)s AND r.val IS NOT NULL"""
_SAYS: Final = """
finding_id, floor(extract(epoch FROM opened_at) * 1000)::bigint, floor(extract(epoch FROM last_at) * 1000)::bigint,
floor(extract(epoch FROM closed_at) * 1000)::bigint, severity, score, observed, readings, corrections,
retracted_at IS NOT NULL, deployment, deployment_version, revision"""
STORED: Final = f"""
SELECT {_SAYS} FROM finding_rows
WHERE device_key = %s AND (opened_at >= at_ms(%s) OR finding_id = ANY(%s)) ORDER BY finding_id FOR UPDATE"""
KEEP: Final = """
INSERT INTO finding_corrections (finding_id, revision, tenant_id, kind, reason, before)
SELECT f.finding_id, %(revision)s, f.tenant_id, %(kind)s, %(reason)s, CASE WHEN %(kind)s <> 'added' THEN
    jsonb_build_object('opened_at', f.opened_at, 'last_at', f.last_at, 'closed_at', f.closed_at, 'severity', f.severity,
        'score', f.score, 'observed', f.observed, 'readings', f.readings, 'revision', f.revision,
        'retracted_at', f.retracted_at) END
FROM finding_rows f WHERE f.finding_id = %(id)s"""
ADD: Final = f"""
INSERT INTO finding_rows ({", ".join(COLUMNS)}, corrections) VALUES ({", ".join(["%s"] * len(COLUMNS))}, 1)"""
AMEND: Final = f"""
UPDATE finding_rows SET {", ".join(f"{name} = %s" for name in CHANGING)}, corrections = corrections + 1,
    retracted_at = NULL, changed_at = now() WHERE finding_id = %s"""
RETRACT: Final = """
UPDATE finding_rows SET revision = %s, corrections = corrections + 1, retracted_at = now(), changed_at = now(),
    closed_at = coalesce(closed_at, last_at) WHERE finding_id = %s"""
WHOLE: Final = """
SELECT d.device, f.deployment, f.deployment_version, f.detector, f.cause, f.signals,
       floor(extract(epoch FROM f.opened_at) * 1000)::bigint AS started_at_ms,
       floor(extract(epoch FROM f.last_at) * 1000)::bigint AS at_ms,
       floor(extract(epoch FROM f.closed_at) * 1000)::bigint AS closed_at_ms, f.severity, f.score, f.threshold,
       f.observed, f.expected_low, f.expected_high, f.probability, f.regime, f.contributions, f.advice, f.readings,
       f.readings_lost, f.revision, f.model, t.name AS tenant, a.name AS asset, f.tenant_id
FROM finding_rows f JOIN devices d USING (device_key) JOIN tenants t ON t.tenant_id = f.tenant_id
LEFT JOIN assets a ON a.asset_id = f.asset_id WHERE f.finding_id = %s"""
INVALID: Final = "DELETE FROM detection_snapshots WHERE device_key = %s AND (at_ms > %s OR set_version <> %s)"
SAVE: Final = """
INSERT INTO detection_snapshots (device_key, at_ms, tenant_id, set_version, since_ms, state)
VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (device_key, at_ms) DO UPDATE SET state = excluded.state,
    set_version = excluded.set_version, since_ms = excluded.since_ms"""
CROWDED: Final = """
DELETE FROM detection_snapshots s WHERE s.device_key = %(device)s AND EXISTS (
    SELECT FROM detection_snapshots n WHERE n.device_key = s.device_key AND n.at_ms > s.at_ms
        AND n.at_ms / %(apart_ms)s = s.at_ms / %(apart_ms)s)"""
THIN: Final = """
DELETE FROM detection_snapshots WHERE device_key = %(device)s AND at_ms < (
    SELECT at_ms FROM detection_snapshots WHERE device_key = %(device)s
    ORDER BY at_ms DESC OFFSET %(keep)s - 1 LIMIT 1)"""
DONE: Final = "DELETE FROM late_due WHERE device_key = %s AND notes = %s"
FOLLOW: Final = """
INSERT INTO late_followed AS f (device_key, tenant_id, late_to_ms, judged_ms) VALUES (%s, %s, %s, %s)
ON CONFLICT (device_key) DO UPDATE SET late_to_ms = greatest(f.late_to_ms, excluded.late_to_ms),
    judged_ms = excluded.judged_ms"""
RELEASE: Final = """
DELETE FROM late_followed f WHERE device_key = %s AND f.late_to_ms <= %s AND NOT EXISTS (
    SELECT FROM finding_rows r WHERE r.device_key = f.device_key AND r.corrections > 0 AND r.closed_at IS NULL)"""
SNAPSHOTS_APART_MS: Final = 1_800_000
MOST_SNAPSHOTS: Final = 12
"""Kept of one device: the last of each half hour in which it measured, so many of the newest."""


@dataclass(frozen=True, slots=True)
class Due:
    """A device that is to be judged again from ``from_ms`` on; ``notes`` 0: it is only followed."""

    device_key: int
    tenant_id: int
    from_ms: int
    late_to_ms: int
    notes: int
    newest_ms: int | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was learnt, in order, from all readings before ``at_ms`` and from ``since_ms`` on (0: from the first)."""

    at_ms: int
    since_ms: int
    state: bytes


@dataclass(frozen=True, slots=True)
class Judged:
    """One device judged up to ``to_ms``; ``told``: the last telling of each excursion since ``from_ms``."""

    due: Due
    from_ms: int
    to_ms: int
    since_ms: int
    told: Rows
    snapshots: Sequence[Snapshot]
    quiet: bool


@dataclass(frozen=True, slots=True)
class Held:
    """A finding of the store with what names its judge."""

    stored: Stored
    deployment: str
    version: str
    revision: int


Decide = Callable[[Judged, Mapping[str, Held], Mapping[str, Owned]], Mapping[str, Change]]


class JudgementStore:
    """Opened when first needed. Raises StoreBusy when the store is away; nothing is lost then, it is asked again."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: Connection | None = None

    def open(self) -> bool:
        """Whether this is the process that judges again; False: another one does."""
        if self._connection is not None and not (self._connection.closed or self._connection.broken):
            return True
        with _busy():
            connection = connect(self._dsn)
            lock = f"SELECT pg_try_advisory_lock({REJUDGE_LOCK}, {OF_SCHEMA})"
            if connection.execute(lock.encode()).fetchone() != (True,):
                connection.close()
                return False
            self._connection = connection
        return True

    def close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
        self._connection = None

    def due(self, follow_ms: int, limit: int) -> list[Due]:
        """Devices with late readings that are stored, then followed ones that went on for ``follow_ms``."""
        late = [Due(*row) for row in self._rows(DUE, (limit,))]
        return late or [Due(*row) for row in self._rows(FOLLOWED, (follow_ms, limit))]

    def snapshot(self, device_key: int, set_version: str, at_most_ms: int, at_least_ms: int) -> Snapshot | None:
        rows = self._rows(SNAPSHOT, (device_key, set_version, at_most_ms, at_least_ms))
        return Snapshot(rows[0][0], rows[0][1], bytes(rows[0][2])) if rows else None

    def has_older(self, device_key: int, before_ms: int) -> bool:
        """Whether the device measured something before, that is stored or was."""
        return self._rows(OLDER, {"device": device_key, "before": before_ms}) == [(True,)]

    def history(self, device_key: int, signals: list[int], from_ms: int, to_ms: int) -> tuple[list[Any], list[Any]]:
        """(packets as they are stored, compacted readings) that may hold readings of [from_ms, to_ms)."""
        asked = {"device": device_key, "signals": signals, "from": from_ms, "to": to_ms}
        return self._rows(HOT, asked), self._rows(COMPACTED, asked)

    def take(
        self, one: Judged, version: str, deployments: Sequence[Deployment], decide: Decide
    ) -> Mapping[str, Change]:
        """Write what ``decide`` finds changed of one device, all of it or nothing; by finding id."""
        with _busy(), self._open.transaction(), self._open.cursor() as cursor:
            owned = {found.finding.id: found for found in owners(cursor, deployments, one.told)[0]}
            rows = cursor.execute(STORED, (one.due.device_key, one.from_ms, sorted(owned))).fetchall()
            held = {row[0]: Held(Stored(Said(*row[1:8]), row[8], row[9]), *row[10:13]) for row in rows}
            changed = decide(one, held, owned)
            for name in sorted(changed):
                revision = held[name].revision if name in held else 0
                _write(cursor, name, changed[name], owned.get(name), revision)
            self._advance(cursor, one, version)
        return changed

    def _advance(self, cursor: psycopg.Cursor[tuple[Any, ...]], one: Judged, version: str) -> None:
        due = one.due
        if due.notes:
            cursor.execute(INVALID, (due.device_key, due.from_ms, version))
            cursor.execute(DONE, (due.device_key, due.notes))
        for kept in one.snapshots:
            cursor.execute(SAVE, (due.device_key, kept.at_ms, due.tenant_id, version, kept.since_ms, kept.state))
        cursor.execute(CROWDED, {"device": due.device_key, "apart_ms": SNAPSHOTS_APART_MS})
        cursor.execute(THIN, {"device": due.device_key, "keep": MOST_SNAPSHOTS})
        cursor.execute(FOLLOW, (due.device_key, due.tenant_id, due.late_to_ms, one.to_ms))

    def release(self, device_key: int, late_before_ms: int) -> bool:
        """Leave a device to the stream again when its late readings lie so far back and nothing of it is open."""
        with _busy():
            return self._open.execute(RELEASE, (device_key, late_before_ms)).rowcount > 0

    @property
    def _open(self) -> Connection:
        if self._connection is None:
            raise StoreBusy("the connection was lost; what came late waits in the store")
        return self._connection

    def _rows(self, statement: str, values: Any) -> list[Any]:
        with _busy():
            return self._open.execute(statement.encode(), values, binary=True).fetchall()


@contextmanager
def _busy() -> Iterator[None]:
    """Faults of the database as StoreBusy, what it refuses as Rejected; either way nothing of it happened."""
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise StoreBusy(f"the store is away ({type(error).__name__}); what came late waits there") from error
    except psycopg.Error as error:
        raise Rejected("not_judged_again", f"the store refused a correction: {type(error).__name__}") from error


def said_of(one: Owned) -> Said:
    """What is compared of a finding."""
    finding = one.finding
    return Said(
        finding.started_at_ms, finding.at_ms, finding.closed_at_ms, int(finding.severity), finding.score,
        finding.observed, finding.readings,
    )  # fmt: skip


def _write(
    cursor: psycopg.Cursor[tuple[Any, ...]], name: str, change: Change, owned: Owned | None, revision: int
) -> None:
    """One correction with its message; a retraction's is the finding as it was said last, taken back."""
    told = {"id": name, "kind": change.value, "reason": REASONS[change], "revision": revision + 1}
    if owned is None:
        cursor.execute(KEEP, told)
        cursor.execute(RETRACT, (revision + 1, name))
        finding, tenant_id = _whole(cursor, name)
        cursor.execute(TELL, (tenant_id, finding.device, encode_finding(finding)))
        return
    one = replace(owned, finding=replace(owned.finding, revision=revision + 1))
    if change is Change.ADDED:
        cursor.execute(ADD, row_of(one))
        cursor.execute(KEEP, told)
    else:
        cursor.execute(KEEP, told)
        cursor.execute(AMEND, (*row_of(one)[8:], name))
    cursor.execute(TELL, (one.tenant_id, one.finding.device, encode_finding(one.finding)))


def _whole(cursor: psycopg.Cursor[tuple[Any, ...]], name: str) -> tuple[Finding, int]:
    """A retracted finding as its message says it, and whose it is."""
    values = cursor.execute(WHOLE, (name,)).fetchone()
    told = dict(zip((column.name for column in cursor.description or ()), values or (), strict=True))
    tenant_id = told.pop("tenant_id")
    told["signals"], told["severity"] = tuple(told["signals"]), Severity(told["severity"])
    told["contributions"] = tuple((number, share) for number, share in told["contributions"])
    return Finding(**told, retracted=True), tenant_id
