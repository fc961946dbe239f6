"""Rebuild, compare and swap, over two things that are passed in: how to reach the store, and how to read the log again.

The live tables stand at some position of the log; a version is only ever brought to that same position, so equal
input is compared with equal input, and a swap never makes the running ingest skip or repeat a record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

import psycopg
from psycopg import sql

from infra.compare import TABLES, Comparison, TableResult, reading
from infra.errors import RebuildRefused
from infra.migrate import maintain
from infra.rollups import roll_up
from infra.versions import (
    FIRST,
    Version,
    behind,
    carry,
    note,
    offsets,
    one_at_a_time,
    open_version,
    require_version,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    Offsets = Mapping[tuple[UUID, int], tuple[str, int]]

PASSES = 5
"""How often a rebuild runs after the live tables that went on meanwhile; what is left then, the next command brings."""


class Filler(Protocol):
    """Brings a schema's tables to positions of the log (``stream_jobs.refill`` behind it)."""

    def __call__(self, schema: str, version: Version, until: Offsets) -> int: ...


@dataclass(frozen=True, slots=True)
class Filled:
    """What a rebuild did: records read, and how many the live tables have taken meanwhile."""

    version: Version
    records: int
    behind: int


@dataclass(frozen=True, slots=True)
class Rebuilds:
    """Everything about versions of one store."""

    dsn: str
    """Connection string of a superuser: schemas are made, renamed and dropped."""

    live: str
    retention_days: int
    fill: Filler
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def rebuild(self, name: str, source: str, since: datetime | None = None) -> Filled:
        """Make or go on with a version. Raises RebuildRefused, and what filling raises."""
        with one_at_a_time(self.dsn, name):
            self._check_since(since)
            version = open_version(self.dsn, self.live, name, source, since)
            if since is not None and not version.filled:
                self._seed(name, since)
            records = left = 0
            for _ in range(PASSES):
                records += self.catch_up(version)
                if not (left := self.behind(name)):
                    break
            roll_up(self.dsn, name)
            maintain(self.dsn, name, self.clock(), self.retention_days)
            if not version.filled:
                note(self.dsn, name, "filled", version, records=records)
            return Filled(version, records, left)

    def compare(self, name: str, rows: int = 10) -> list[TableResult]:
        """Every table row by row, at one and the same position of the log. Raises RebuildRefused."""
        with one_at_a_time(self.dsn, name):
            version = require_version(self.dsn, self.live, name)
            with reading(self.dsn) as snapshot:
                until = offsets(snapshot, self.live)  # the snapshot begins here
                self.fill_to(version, until)
                roll_up(self.dsn, name)
                with reading(self.dsn) as other:
                    self.check_same_position(name, until, offsets(other, name))
                    comparison = Comparison(snapshot, other, self.live, name, version.since, self._oldest())
                    return [comparison.table(one, rows) for one in TABLES]

    def catch_up(self, version: Version) -> int:
        """Bring a version to where the live tables stand now; how many records were read."""
        with psycopg.connect(self.dsn) as connection:
            until = offsets(connection, self.live)
        return self.fill_to(version, until)

    def fill_to(self, version: Version, until: Offsets) -> int:
        """Devices first: whatever the live tables have taken, its device was registered before."""
        with psycopg.connect(self.dsn) as connection:
            there = offsets(connection, version.name)
        carry(self.dsn, self.live, version.name, FIRST)
        if all(at <= there.get(key, ("", 0))[1] for key, (_, at) in until.items()):
            return 0
        return self.fill(version.name, version, until)

    def behind(self, name: str) -> int:
        """Records that the live tables have taken and the version has not."""
        with psycopg.connect(self.dsn) as connection:
            return behind(offsets(connection, self.live), offsets(connection, name))

    def check_same_position(self, name: str, until: Offsets, there: Offsets) -> None:
        """Raises RebuildRefused when a version was filled beyond the live tables."""
        ahead = [f"{topic}/{key[1]}" for key, (topic, at) in there.items() if at > until.get(key, ("", 0))[1]]
        if ahead:
            raise RebuildRefused(
                f"{name} has read further than the live tables in {', '.join(ahead)}; nothing was changed: "
                "let ingest catch up and ask again"
            )

    def _oldest(self) -> datetime:
        """The first receive time that both sides are sure to keep."""
        today = self.clock().replace(hour=0, minute=0, second=0, microsecond=0)
        return today - timedelta(days=self.retention_days)

    def _check_since(self, since: datetime | None) -> None:
        if since is not None and not self._oldest() <= since < self.clock():
            raise RebuildRefused(
                f"--since must lie within the {self.retention_days} days that packet rows are kept, because they tell "
                "what came before; nothing was changed: leave --since out"
            )

    def _seed(self, name: str, since: datetime) -> None:
        """What was stored before ``since`` is known, so that its copies that came later are duplicates here too."""
        statement = sql.SQL(
            "INSERT INTO {name}.seen_ranges (device_key, boot_epoch, nonce, tenant_id, ranges)"
            " SELECT s.device_key, s.boot_epoch, s.nonce, s.tenant_id, s.ranges - coalesce("
            " (SELECT range_agg(int8range(p.seq, p.seq, '[]')) FROM {live}.packets p WHERE p.received_at >= {since}"
            "  AND p.device = d.device AND p.boot_epoch = s.boot_epoch), '{{}}')"
            " FROM {live}.seen_ranges s JOIN {live}.devices d ON d.device_key = s.device_key ON CONFLICT DO NOTHING"
        )
        with psycopg.connect(self.dsn) as connection:
            # triggers of the table tell the outbox of new epochs: a version tells nobody
            connection.execute("SET LOCAL session_replication_role = replica")
            connection.execute(
                statement.format(name=sql.Identifier(name), live=sql.Identifier(self.live), since=sql.Literal(since))
            )
