"""A lost store made again: who is registered from the book topic, everything else from the archive and the log.

The new tables are made beside the empty live ones and take their place in one transaction when they are whole; until
then, and after a kill, the same command goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from confluent_kafka import Consumer, KafkaException, TopicPartition
from psycopg import sql
from psycopg.types.json import Jsonb

from contracts.book import BOOK_TABLES, Page, decode_page
from contracts.errors import TryLater
from infra.errors import RebuildRefused
from infra.migrate import maintain
from infra.rebuild import Rebuilds
from infra.swap import swap
from infra.versions import Version, drop_version, note, one_at_a_time, open_version

ASK_TIMEOUT_S: Final = 60.0
LOST: Final[dict[str, tuple[str, ...]]] = {
    "API keys (only their hashes were stored): make new ones": ("api_keys",),
    "what windows said first, before a correction: every window is published again": ("window_publications",),
    "commands, their states and history: what was on its way may still be carried out, and its answer finds no command":
        ("device_commands", "device_command_changes"),
    "since when a gap of the ledger stood and how it ended: gaps that still stand are found and dated anew":
        ("ledger_gaps",),
    "who sent dead letters again, and the epochs reserved for it: a letter rescued before and after is stored twice":
        ("resubmissions", "rescue_epochs"),
    "what devices said they had forgotten: those packets are missing again until `resync` asks anew": ("agent_gaps",),
    "what people did with alerts and found, where messages go: findings are found again, their alerts are new":
        ("alert_rows", "alert_findings", "alert_events", "alert_labels", "alert_channels", "alert_deliveries",
         "asset_care"),
    "which models were candidates, live and retired, and since when: their files stay, `models adopt` makes candidates":
        ("model_rows", "model_changes"),
    "rows of other rooms that people wrote (SQL logins, alarms, custody), and messages that waited in the outbox":
        ("sql_logins", "log_alarms", "evidence_custody", "outbox"),
}  # fmt: skip
"""What neither archive nor log holds, and the tables that held it."""

MADE_AGAIN: Final = (
    "signals", "archive_files", "archive_offsets", "trimmed_offsets", "expired_packets", "reading_horizons", "finality",
    "rollup_due", "projections", "finding_rows", "detection_runs", "alert_due", "marks",
    "finding_corrections", "late_due", "late_followed", "detection_snapshots",
)  # fmt: skip
"""Tables that migrating, adopting the archive, the closer, the trimmer, retention and detection fill again (findings
as far back as the log reaches). The tables of crash records are filled by their own consumer, from topics that are
never trimmed."""

LOST_FOR_GOOD: Final = tuple(LOST)
"""Told at the end of every restore."""

COUNTS: Final = """
SELECT (SELECT count(*) FROM {name}.devices), (SELECT coalesce(sum(packets), 0)::bigint FROM {name}.seen_ranges),
       (SELECT coalesce(sum(samples), 0)::bigint FROM {name}.seen_ranges),
       (SELECT count(*) FROM {name}.packet_rows), (SELECT count(*) FROM {name}.window_aggregates),
       (SELECT count(*) FROM {name}.quarantined),
       (SELECT encode(sha256(string_agg(sha256, '' ORDER BY device_key, boot_epoch, seq)), 'hex')
        FROM {name}.packet_rows)"""


@dataclass(frozen=True, slots=True)
class Restored:
    """What is in the store again. ``digest``: SHA-256 over the packets' own hashes in the order of their identities."""

    devices: int
    packets: int
    samples: int
    packet_rows: int
    windows: int
    quarantined: int
    digest: str | None
    records_read: int


@dataclass(frozen=True, slots=True)
class Restore:
    """One restore; ``prepare`` makes the archive's manifest in a schema and says how far archive and log go."""

    rebuilds: Rebuilds
    book: Callable[[], Iterable[Page]]
    prepare: Callable[[str], Mapping[Any, Any]]

    def run(self) -> Restored:
        """Raises RebuildRefused when there is nothing to restore or the live tables hold something."""
        live, dsn = self.rebuilds.live, self.rebuilds.dsn
        name = f"{live}_restored"
        with one_at_a_time(dsn, name):
            self._check_empty()
            version = open_version(dsn, live, name, "archive", None)
            if not version.filled:
                self._write_book(name)
            until = self.prepare(name)
            records = self.rebuilds.fill(name, version, until)
            maintain(dsn, name, self.rebuilds.clock(), self.rebuilds.retention_days)
            if not version.filled:
                note(dsn, name, "filled", Version(name, "archive", None, filled=True), records=records)
        swap(self.rebuilds, name, carried=False)
        drop_version(dsn, live, name)
        with psycopg.connect(dsn) as connection:
            row = connection.execute(sql.SQL(COUNTS).format(name=sql.Identifier(live))).fetchone()
        assert row is not None
        devices, packets, samples, packet_rows, windows, quarantined, digest = row
        return Restored(devices, packets, samples, packet_rows, windows, quarantined, digest, records)

    def _check_empty(self) -> None:
        with psycopg.connect(self.rebuilds.dsn) as connection:
            found = connection.execute(
                sql.SQL("SELECT EXISTS (SELECT FROM {0}.devices) OR EXISTS (SELECT FROM {0}.packet_rows)").format(
                    sql.Identifier(self.rebuilds.live)
                )
            ).fetchone()
        if found != (False,):
            raise RebuildRefused(
                f"the store holds devices or packets, so it is not lost; nothing was changed: to make its tables anew "
                f"use `fleetstream rebuild`; to restore really, drop the schema {self.rebuilds.live} and "
                "run `fleetstream migrate` first"
            )

    def _write_book(self, name: str) -> None:
        pages = list(self.book())
        if not any(page.table == "devices" for page in pages):
            raise RebuildRefused(
                "the log's book names no device; nothing was changed: the log is not the one of the lost store, or it "
                "was lost too"
            )
        with psycopg.connect(self.rebuilds.dsn) as connection:
            for table in BOOK_TABLES:
                rows = [row for page in pages if page.table == table for row in page.rows]
                write_rows(connection, name, table, rows)


def write_rows(connection: psycopg.Connection[Any], name: str, table: str, rows: list[dict[str, Any]]) -> None:
    """Rows with the keys that they had; the counters of keys go on behind the highest one."""
    target = sql.Identifier(name, table)
    connection.execute("SET LOCAL session_replication_role = replica")
    connection.execute(sql.SQL("DELETE FROM {}").format(target))
    connection.execute(
        sql.SQL("INSERT INTO {0} OVERRIDING SYSTEM VALUE SELECT * FROM jsonb_populate_recordset(NULL::{0}, %s)").format(
            target
        ),
        (Jsonb(rows),),
    )
    identity = connection.execute(
        "SELECT a.attname FROM pg_attribute a WHERE a.attrelid = to_regclass(%s) AND a.attidentity <> ''",
        (target.as_string(),),
    ).fetchone()
    if identity is not None:
        connection.execute(
            sql.SQL("SELECT setval(pg_get_serial_sequence({}, {}), coalesce((SELECT max({}) FROM {}), 0) + 1, false)")
            .format(sql.Literal(target.as_string()), sql.Literal(identity[0]), sql.Identifier(identity[0]), target)
        )  # fmt: skip


def read_book(bootstrap: str, topic: str) -> list[Page]:
    """The newest message of every key of a compacted topic. Raises TryLater, Rejected."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "fleetstream-restore", "enable.auto.commit": False, "log_level": 2}
    )
    pages: dict[bytes, bytes | None] = {}
    try:
        begin, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=ASK_TIMEOUT_S)
        consumer.assign([TopicPartition(topic, 0, begin)])
        deadline_s = time.monotonic() + ASK_TIMEOUT_S
        while (at := consumer.position([TopicPartition(topic, 0)])[0].offset) < end and begin < end:
            for message in consumer.consume(1_000, 0.5):
                if message.error() is None:
                    pages[message.key() or b""] = message.value()
                    deadline_s = time.monotonic() + ASK_TIMEOUT_S
            if time.monotonic() > deadline_s:
                raise TryLater(f"Kafka gave the book up to offset {at} of {end} only; nothing was changed: ask again")
    except KafkaException as error:
        raise TryLater(f"Kafka did not give the book ({error}); nothing was changed") from error
    finally:
        consumer.close()
    return [decode_page(page) for page in pages.values() if page]
