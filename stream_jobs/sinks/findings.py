"""Findings into the store: rows, outbox and the run's position in one transaction per micro-batch.

A row is replaced only by one of a higher revision, and only a row that is new or changed gets an outbox row. So a
batch that comes again after a crash, and a run that begins anew at the start of the log, write and say nothing twice.
What was judged out of order is noted in the same transaction; a row that was judged again in order (``judgements.py``)
is not the stream's any more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from anomaly.deployment import Deployment
from anomaly.types import Rows
from contracts.finding import Finding, Severity, encode_finding
from stream_jobs.sinks.connection import Connection, repeated
from stream_jobs.sinks.writers import at

WHO: Final = """
SELECT d.device, d.tenant_id, t.name, a.asset_id, a.name, a.kind
FROM unnest(%s::integer[], %s::bigint[]) WITH ORDINALITY AS f (device_key, started_ms, n)
LEFT JOIN devices d ON d.device_key = f.device_key
LEFT JOIN tenants t ON t.tenant_id = d.tenant_id
LEFT JOIN bindings b ON b.device_key = f.device_key AND b.valid @> at_ms(f.started_ms)
LEFT JOIN assets a ON a.asset_id = b.asset_id
ORDER BY f.n"""
COLUMNS: Final = (
    "finding_id", "tenant_id", "asset_id", "device_key", "deployment", "deployment_version", "detector", "cause",
    "signal", "signals", "opened_at", "last_at", "closed_at", "severity", "score", "threshold", "observed",
    "expected_low", "expected_high", "regime", "contributions", "advice", "readings", "readings_lost", "revision",
    "model",
)  # fmt: skip
CHANGING: Final = COLUMNS[8:]
UPSERT: Final = f"""
INSERT INTO finding_rows AS f ({", ".join(COLUMNS)}) VALUES ({", ".join(["%s"] * len(COLUMNS))})
ON CONFLICT (finding_id) DO UPDATE SET changed_at = now(), {", ".join(f"{name} = excluded.{name}" for name in CHANGING)}
WHERE f.revision < excluded.revision AND f.corrections = 0
RETURNING finding_id"""
TELL: Final = "INSERT INTO outbox (tenant_id, topic, kafka_key, kafka_value) VALUES (%s, 'findings', %s, %s)"
BEGIN_RUN: Final = "INSERT INTO detection_runs (run_id, set_version) VALUES (%s, %s) ON CONFLICT DO NOTHING"
KNOWN_RUN: Final = "SELECT EXISTS (SELECT FROM detection_runs WHERE run_id = %s)"
ASTRAY_NOTE: Final = """
INSERT INTO late_due AS l (device_key, tenant_id, from_ms, to_ms, wanted)
SELECT d.device_key, d.tenant_id, a.from_ms, a.to_ms, %s
FROM unnest(%s::integer[], %s::bigint[], %s::bigint[]) AS a (device_key, from_ms, to_ms)
JOIN devices d USING (device_key)
ORDER BY d.device_key
ON CONFLICT (device_key) DO UPDATE SET from_ms = least(l.from_ms, excluded.from_ms), notes = l.notes + 1,
    to_ms = greatest(l.to_ms, excluded.to_ms), wanted = excluded.wanted, noted_at = now()"""
ADVANCE: Final = """
UPDATE detection_runs SET last_batch = %s, readings = readings + %s, late = late + %s, findings = findings + %s,
    updated_at = now()
WHERE run_id = %s AND last_batch < %s"""


@dataclass(frozen=True, slots=True)
class Written:
    """What one transaction did. ``strange``: of devices that the store does not know."""

    changed: int
    unchanged: int
    elsewhere: int
    strange: int


@dataclass(frozen=True, slots=True)
class Owned:
    """A finding with the keys of its row."""

    finding: Finding
    device_key: int
    tenant_id: int
    asset_id: int | None


@dataclass(frozen=True, slots=True)
class Adrift:
    """What a batch judged out of order (``moments.ASTRAY``); ``wanted``: how far each "topic/partition" must be in the
    store for all of it to be there."""

    spans: Rows
    wanted: Mapping[str, int]


class FindingStore:
    """Writes with this process's connection."""

    def __init__(self, dsn: str, deployments: Sequence[Deployment]) -> None:
        self._dsn = dsn
        self._deployments = tuple(deployments)

    def begin(self, run_id: UUID, set_version: str) -> None:
        """Make the run known. Raises StoreBusy."""
        repeated(self._dsn, lambda connection: connection.execute(BEGIN_RUN, (run_id, set_version)))

    def knows(self, run_id: UUID) -> bool:
        """Whether this store saw the run begin; another store, or one that was restored, did not. Raises StoreBusy."""
        row, _ = repeated(self._dsn, lambda connection: connection.execute(KNOWN_RUN, (run_id,)).fetchone())
        return row == (True,)

    def write(
        self, run_id: UUID, batch: int, told: Rows, readings: int, late: int, adrift: Adrift | None = None
    ) -> Written:
        """One batch; again, it changes nothing. Raises StoreBusy."""
        written, _ = repeated(
            self._dsn, lambda connection: self._write(connection, run_id, batch, told, readings, late, adrift)
        )
        return written

    def _write(
        self, connection: Connection, run_id: UUID, batch: int, told: Rows, readings: int, late: int,
        adrift: Adrift | None,
    ) -> Written:  # fmt: skip
        with connection.transaction(), connection.cursor() as cursor:
            owned, elsewhere, strange = owners(cursor, self._deployments, told)
            changed = 0
            for one in sorted(owned, key=lambda one: one.finding.id):
                if cursor.execute(UPSERT, row_of(one)).fetchone() is not None:
                    changed += 1
                    cursor.execute(TELL, (one.tenant_id, one.finding.device, encode_finding(one.finding)))
            if adrift is not None:
                spans = [adrift.spans[name].tolist() for name in ("device", "from_ms", "to_ms")]
                cursor.execute(ASTRAY_NOTE, (Jsonb(dict(adrift.wanted)), *spans))
            cursor.execute(ADVANCE, (batch, readings, late, changed, run_id, batch))
        return Written(changed, len(owned) - changed, elsewhere, strange)


def owners(
    cursor: psycopg.Cursor[tuple[Any, ...]], deployments: Sequence[Deployment], told: Rows
) -> tuple[list[Owned], int, int]:
    """Findings with their owners; how many are of kinds a deployment is not for, and of unknown devices."""
    if not len(told):
        return [], 0, 0
    who = cursor.execute(WHO, (told["device"].tolist(), told["started_ms"].tolist())).fetchall()
    owned, elsewhere, strange = [], 0, 0
    for row, (device, tenant_id, tenant, asset_id, asset, kind) in zip(told, who, strict=True):
        deployment = deployments[row["deployment"]]
        if device is None:
            strange += 1
        elif kind is not None and kind not in deployment.kinds:
            elsewhere += 1
        else:
            finding = finding_of(deployment, row, device, tenant, asset)
            owned.append(Owned(finding, int(row["device"]), tenant_id, asset_id))
    return owned, elsewhere, strange


def finding_of(deployment: Deployment, row: Any, device: str, tenant: str, asset: str | None) -> Finding:
    """A telling (``anomaly.excursions.TOLD``) in the words of ``contracts.finding``."""
    carrier = deployment.signals[row["channel"]]
    observed, low, high = (_number(row[name]) for name in ("observed", "low", "high"))
    return Finding(
        device=device, deployment=deployment.name, deployment_version=deployment.version,
        detector=deployment.detector.name, cause=deployment.cause,
        signals=(carrier, *(signal for signal in deployment.signals if signal != carrier)),
        started_at_ms=int(row["started_ms"]), at_ms=int(row["at_ms"]), severity=Severity(int(row["severity"])),
        score=float(row["score"]), threshold=float(row["threshold"]), observed=observed, expected_low=low,
        expected_high=high, regime=int(row["regime"]), contributions=((carrier, 1.0),), advice=deployment.advice,
        closed_at_ms=int(row["closed_ms"]) if row["closed_ms"] >= 0 else None, readings=int(row["readings"]),
        readings_lost=bool(row["lost"]), revision=int(row["revision"]), tenant=tenant, asset=asset,
        model=deployment.model,
    )  # fmt: skip


def row_of(one: Owned) -> tuple[Any, ...]:
    finding = one.finding
    shares = Jsonb([list(pair) for pair in finding.contributions])
    closed = None if finding.closed_at_ms is None else at(finding.closed_at_ms)
    return (
        finding.id, one.tenant_id, one.asset_id, one.device_key, finding.deployment, finding.deployment_version,
        finding.detector, finding.cause, finding.signals[0], list(finding.signals), at(finding.started_at_ms),
        at(finding.at_ms), closed, int(finding.severity), finding.score, finding.threshold, finding.observed,
        finding.expected_low, finding.expected_high, finding.regime, shares,
        finding.advice, finding.readings, finding.readings_lost, finding.revision, finding.model,
    )  # fmt: skip


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
