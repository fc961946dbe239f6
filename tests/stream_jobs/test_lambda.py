"""The batch answer equals the streaming one: windows computed by DuckDB from the archive's files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from api.archived import samples_of
from contracts.errors import Rejected
from contracts.limits import ALL_WIDTHS_S, WINDOW_WIDTHS_S
from contracts.packet import decode_packet
from contracts.signals import catalogue
from contracts.stamp import decode_stamp
from stream_jobs.sinks.ledger import StoreLedger
from tests.stream_jobs.build import T0
from tests.stream_jobs.fix_plain import PlainLine, plain
from tests.stream_jobs.test_heart_replay import fill
from tests.stream_jobs.test_trim import archive_all

__all__ = ["plain"]
DAY_MS = 86_400_000
STREAMED = """
SELECT device_key, signal, width_s, extract(epoch FROM starts_at)::bigint, n, sum_units::text, sumsq_units::text,
    min_units, max_units, first_units, last_units
FROM window_aggregates WHERE state <> 0 AND width_s = ANY(%s) ORDER BY 1, 2, 3, 4"""
RAW = """
SELECT stamp, bytes FROM read_parquet('{}/tenant=*/day=*/*.parquet', hive_partitioning = false)
WHERE topic LIKE '%.telemetry.%' ORDER BY topic, partition, "offset" """
BATCH = """
SELECT device_key, signal, width, (ms // (width * 1000)) * width AS start, count(*), sum(units)::VARCHAR,
    sum(units::HUGEINT * units)::VARCHAR, min(units), max(units), min_by(units, (ms, epoch, seq, pos)),
    max_by(units, (ms, epoch, seq, pos))
FROM samples, (SELECT unnest(?::BIGINT[]) AS width) WHERE quality < 64 GROUP BY ALL ORDER BY 1, 2, 3, 4"""


def batch_windows(folder: Path, owners: dict[tuple[int, int], int]) -> list[tuple[Any, ...]]:
    """Windows of everything that the files hold; ``owners`` says whose a contested boot epoch is."""
    engine = duckdb.connect()
    engine.execute("CREATE TABLE samples (device_key INT, signal INT, ms BIGINT, epoch BIGINT, seq BIGINT, pos INT,"
                   " units BIGINT, quality INT)")  # fmt: skip
    taken, rows = set[tuple[int, int, int]](), []
    for header, frame in engine.execute(RAW.format(folder)).fetchall():
        try:
            stamp, packet = decode_stamp(header or b""), decode_packet(frame or b"")
        except Rejected:
            continue
        epoch, seq = packet.header.boot_epoch, packet.header.seq
        identity = (stamp.device_key, epoch, seq)
        if identity in taken or owners.get(identity[:2], packet.header.nonce) != packet.header.nonce:
            continue
        taken.add(identity)
        for number in {one.signal for one in packet.blocks} | {one.signal for one in packet.doubles}:
            signal = catalogue().by_number(number)
            rows += [
                (stamp.device_key, number, one.ms, epoch, seq, one.position, signal.to_units(one.value), one.quality)
                for one in samples_of(packet, stamp, number)
                if one.value is not None
            ]
    engine.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return engine.execute(BATCH, [list(ALL_WIDTHS_S)]).fetchall()


def close(line: PlainLine, watermark_ms: int) -> None:
    ledger = StoreLedger(line.dsn)
    while ledger.close_windows(watermark_ms, 5_000):
        pass
    ledger.disconnect()


def test_batch_over_the_archive_equals_streaming_for_every_closed_window(plain: PlainLine, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    fill(plain, 150)
    plain.drain(max_offsets=120)
    close(plain, T0 + 80_000)
    archive_all(plain, folder)
    owners = {
        (key, epoch): nonce for key, epoch, nonce in plain.rows("SELECT device_key, boot_epoch, nonce FROM seen_ranges")
    }
    streamed = plain.rows(STREAMED, list(WINDOW_WIDTHS_S))
    every_batch = batch_windows(folder, owners)
    batch = [row for row in every_batch if row[2] in WINDOW_WIDTHS_S]
    closed = {row[:4] for row in streamed}
    assert 100 < len(streamed) < len(batch), "some are closed, some are not"
    assert [row for row in batch if row[:4] in closed] == streamed
    latest = max(row[3] + row[2] for row in streamed)
    assert {row[:4] for row in batch if row[3] + row[2] <= latest - 60} <= closed, "none is missing among the closed"

    close(plain, T0 + 2 * DAY_MS)
    assert plain.rows(STREAMED, list(ALL_WIDTHS_S)) == every_batch, "hours and days too, once they are over"
