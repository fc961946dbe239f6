"""Looking after history: rows become blocks, blocks go by the retention class of their signal, partitions come and go.

The order matters: what is old enough becomes blocks before a partition is dropped, so a class that is kept longer
than packet rows keeps its readings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import psycopg
from psycopg import sql

from contracts.signals import Retention
from contracts.tables import ROLE_SINK
from infra.errors import SetupError
from infra.migrate import maintain
from infra.rooms import Stack
from infra.settings import InfraSettings

EXPIRE: Final = """
DELETE FROM reading_blocks k USING signals s
WHERE s.signal = k.signal AND s.retention = %s AND k.received_to < %s"""
HORIZON: Final = """
INSERT INTO reading_horizons AS h (retention, received_before) VALUES (%s, %s)
ON CONFLICT (retention) DO UPDATE SET received_before = excluded.received_before
WHERE h.received_before < excluded.received_before"""
NOTE: Final = """
INSERT INTO expired_packets AS e (device_key, boot_epoch, tenant_id, ranges)
SELECT k.device_key, k.boot_epoch, min(k.tenant_id), range_agg(int8range(k.first_seq + u.i - 1, k.first_seq + u.i))
FROM packet_blocks k CROSS JOIN LATERAL unnest(k.samples) WITH ORDINALITY AS u (samples, i)
WHERE u.samples IS NOT NULL AND k.received_to < %(before)s GROUP BY 1, 2 ORDER BY 1, 2
ON CONFLICT (device_key, boot_epoch) DO UPDATE SET ranges = e.ranges + excluded.ranges"""
FORGET: Final = "DELETE FROM packet_blocks WHERE received_to < %(before)s"
TOUCHED: Final = """
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'packet_rows'::regclass AND pg_relation_size(c.oid) > 0 ORDER BY 1"""


@dataclass(frozen=True, slots=True)
class Kept:
    """What one round did."""

    created: tuple[str, ...]
    dropped: tuple[str, ...]
    compacted_packets: int
    compacted_samples: int
    blocks: int
    expired_blocks: int
    busy: bool = False
    """Another round is compacting; this one left rows to it, and partitions as they are."""


def keep_history(stack: Stack, now: datetime) -> Kept:
    """One round. Raises SetupError for settings that make no sense, TryLater when the store does not answer."""
    from stream_jobs.sinks.compactor import Compactor  # brings NumPy and Arrow, which only this needs

    settings = stack.settings
    days = retention_days(settings)
    delay_s = settings.compact_after_s
    done = Compactor(stack.dsn(ROLE_SINK)).run(int(now.timestamp() * 1_000), delay_s, rest_s=delay_s // 2)
    if done.busy:
        return Kept((), (), 0, 0, 0, 0, busy=True)
    expired = expire(stack.superuser_dsn, settings.schema_name, now, days)
    if done.packets:
        _give_back(stack.superuser_dsn, settings.schema_name)
    parts = maintain(stack.superuser_dsn, settings.schema_name, now, settings.retention_days)
    return Kept(parts.created, parts.dropped, done.packets, done.samples, done.blocks, expired)


def retention_days(settings: InfraSettings) -> dict[Retention, int]:
    """Days after receipt that readings of each class stay in the store."""
    given = {name.upper(): days for name, days in settings.retention_days_by_class.items()}
    unknown = given.keys() - Retention.__members__.keys()
    if unknown:
        known = ", ".join(name.lower() for name in Retention.__members__)
        raise SetupError(f"there is no retention class {sorted(unknown)[0].lower()!r}; the classes are {known}")
    return {one: given.get(one.name, settings.retention_days) for one in Retention}


def expire(dsn: str, schema: str, now: datetime, days: Mapping[Retention, int]) -> int:
    """Delete blocks past their class, and how many; identities go last and are noted in the ledger before."""
    path = sql.Identifier(schema).as_string()
    with psycopg.connect(dsn) as connection:
        connection.execute("SELECT set_config('search_path', %s, true)", (path,))
        gone = 0
        for one, kept in days.items():
            horizon = (int(one), now - timedelta(days=kept))
            if expired := connection.execute(EXPIRE, horizon).rowcount:
                connection.execute(HORIZON, horizon)
            gone += expired
        before = {"before": now - timedelta(days=max(days.values()))}
        connection.execute(NOTE, before)
        connection.execute(FORGET, before)
    return gone


def _give_back(dsn: str, schema: str) -> None:
    """Make the room of compacted rows free again; an emptied partition shrinks to nothing."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SELECT set_config('search_path', %s, false)", (sql.Identifier(schema).as_string(),))
        for (name,) in connection.execute(TOUCHED).fetchall():
            connection.execute(sql.SQL("VACUUM {}").format(sql.Identifier(name)))
