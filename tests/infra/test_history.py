"""Retention by class on a real PostgreSQL: blocks go by their signal's class, identities last and never unnoted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from contracts.signals import Retention, catalogue
from contracts.tables import ROLE_SINK
from infra.errors import SetupError
from infra.history import expire, keep_history, retention_days
from infra.settings import InfraSettings
from stream_jobs.sinks.compactor import Compactor
from tests.stream_jobs.history_rows import START_MS, RowOfPacket, at, enrol_car, insert_rows

NOW = at(START_MS) + timedelta(days=20)


def one_of(retention: Retention) -> int:
    return next(signal.number for signal in catalogue() if signal.retention is retention and not signal.transient)


def test_blocks_go_by_class_and_identities_are_noted(
    postgres_dsn: str, schema: str, schema_dsn: str, role_dsn: Callable[[str], str]
) -> None:
    device, tenant = enrol_car(schema_dsn, "car-1")
    kept, gone = one_of(Retention.PERSONAL), one_of(Retention.STANDARD)
    rows = [RowOfPacket(seq, START_MS + seq * 1_000, [(kept, 0, 1.0, 0), (gone, 0, 2.0, 0)]) for seq in (1, 2, 4)]
    insert_rows(role_dsn(ROLE_SINK), device, tenant, rows)
    assert Compactor(role_dsn(ROLE_SINK)).run(int(NOW.timestamp() * 1_000), 3_600).blocks == 2
    days = dict.fromkeys(Retention, 14) | {Retention.PERSONAL: 30}
    assert expire(postgres_dsn, schema, NOW, days) == 1
    with psycopg.connect(schema_dsn) as connection:
        assert connection.execute("SELECT signal, n FROM reading_blocks").fetchall() == [(kept, 3)]
        assert connection.execute("SELECT count(*) FROM packets").fetchone() == (3,)
        assert connection.execute("SELECT count(*) FROM expired_packets").fetchone() == (0,)
    assert expire(postgres_dsn, schema, NOW + timedelta(days=11), days) == 1
    with psycopg.connect(schema_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM packets").fetchone() == (0,)
        noted = connection.execute("SELECT device_key, boot_epoch, tenant_id, ranges::text FROM expired_packets")
        assert noted.fetchall() == [(device, 1, tenant, "{[1,3),[4,5)}")]


def test_a_class_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETSTREAM__INFRA__RETENTION_DAYS_BY_CLASS", '{"safety": 90}')
    assert retention_days(InfraSettings())[Retention.SAFETY] == 90
    assert retention_days(InfraSettings())[Retention.BULK] == InfraSettings().retention_days
    with pytest.raises(SetupError, match="'forever'"):
        retention_days(InfraSettings(retention_days_by_class={"forever": 1}))


@dataclass(frozen=True, slots=True)
class Fake:
    """As much of a stack as a round asks for."""

    dsn: Callable[[str], str]
    superuser_dsn: str
    settings: InfraSettings


def test_packets_stored_after_an_outage_stay_in_the_feed_for_a_while(
    postgres_dsn: str, schema: str, schema_dsn: str, role_dsn: Callable[[str], str]
) -> None:
    """Old when they are stored: a reader of the feed that never stopped must get to them before they leave it."""
    device, tenant = enrol_car(schema_dsn, "car-1")
    now = datetime.now(UTC)
    came_ms = int(now.timestamp() * 1_000) - 5 * 3_600_000
    rows = [RowOfPacket(seq, came_ms + seq, [(1, 0, 1.0, 0)], received_ms=came_ms + seq) for seq in range(1, 6)]
    insert_rows(role_dsn(ROLE_SINK), device, tenant, rows)
    stack: Any = Fake(role_dsn, postgres_dsn, InfraSettings(schema_name=schema, compact_after_s=3_600))
    with psycopg.connect(schema_dsn, autocommit=True) as connection:
        for minutes, gone in ((1, 0), (29, 0), (31, 5)):
            assert keep_history(stack, now + timedelta(minutes=minutes)).compacted_packets == gone
            assert connection.execute("SELECT count(*) FROM feed_horizons").fetchone() == (gone > 0,)
