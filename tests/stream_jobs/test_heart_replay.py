"""Same log in, same rows out; windows equal those that another engine computes from the readings."""

from __future__ import annotations

import json
import random
import zlib
from typing import Any

import duckdb
import psycopg

from contracts.packet import Block, DoubleBlock
from tests.stream_jobs.build import LATITUDE, RPM, SPEED, T0, Device, Frame
from tests.stream_jobs.fix_ingest import Line

READINGS = """
SELECT device, boot_epoch, seq, signal, extract(epoch FROM measured_at)::numeric, value, quality, received_at
FROM readings ORDER BY 1, 2, 3, 4, 5, 6"""
WINDOWS = """
SELECT device_key, signal, width_s, starts_at, tenant_id, n, sum_units, sumsq_units, min_units, max_units,
    first_units, first_ms, first_epoch, first_seq, first_pos, last_units, last_ms, last_epoch, last_seq, last_pos,
    late_minutes, state, published_revision
FROM window_aggregates ORDER BY 1, 2, 3, 4"""
SAID = """
SELECT device_key, signal, width_s, starts_at, publication, revision, n, sum_units, sumsq_units, min_units, max_units,
    last_units
FROM window_publications ORDER BY 1, 2, 3, 4, 5"""
TOLD = """
SELECT kafka_key, convert_from(kafka_value, 'UTF8') FROM outbox WHERE topic = 'windows' ORDER BY outbox_id"""
LAST_SAID = """
SELECT DISTINCT ON (p.device_key, p.signal, p.width_s, p.starts_at) p.device_key, p.signal, p.width_s, p.starts_at,
    p.revision, p.n, p.sum_units, p.sumsq_units, p.min_units, p.max_units, p.last_units
FROM window_publications p ORDER BY 1, 2, 3, 4, p.publication DESC"""
AS_IT_IS = """
SELECT device_key, signal, width_s, starts_at, cardinality(late_minutes), n, sum_units, sumsq_units, min_units,
    max_units, last_units
FROM window_aggregates ORDER BY 1, 2, 3, 4"""
NUMBERING = """
SELECT count(*) FILTER (WHERE last <> times OR times <> publications OR NOT rising), max(times)
FROM (SELECT w.publications, max(p.publication) AS last, count(*) AS times, bool_and(p.rising) AS rising
      FROM window_aggregates w JOIN (SELECT *, n > lag(n, 1, 0::bigint) OVER (
              PARTITION BY device_key, signal, width_s, starts_at ORDER BY publication) AS rising
          FROM window_publications) p USING (device_key, signal, width_s, starts_at)
      GROUP BY w.device_key, w.signal, w.width_s, w.starts_at) AS x"""
LATEST = """
SELECT device_key, signal, tenant_id, measured_ms, boot_epoch, seq, pos, val::text, quality, received_at
FROM latest_values ORDER BY 1, 2"""
SEEN = "SELECT device_key, boot_epoch, nonce, ranges::text, packets, samples, duplicates FROM seen_ranges ORDER BY 1, 2"
ASIDE = """
SELECT topic_id, kafka_partition, kafka_offset, reason, samples, detail::text, bytes
FROM quarantined ORDER BY 1, 2, 3"""
TABLES = (
    "packet_rows, window_aggregates, window_publications, rollup_due, latest_values, seen_ranges, ingest_offsets,"
    " quarantined, outbox"
)


def mischief(device: Device, seed: int, packets: int) -> list[Frame]:
    """A device's packets: three signals, two epochs, lost clocks, NaN; shuffled, repeated and late."""
    dice = random.Random(seed)
    frames: list[Frame] = []
    for seq in range(1, packets + 1):
        base = T0 + seq * 700 - (seq % 7) * 9_000
        size = dice.randint(1, 6)
        offsets = tuple(n * 250 for n in dice.sample(range(-3, 3), size))
        blocks: list[Block | DoubleBlock] = [
            Block(SPEED, -2, 5_000, offsets, tuple(dice.randint(-900, 900) for _ in range(size))),
            Block(LATITUDE, -7, 480_000_000, offsets[:1], (dice.randint(0, 10**6),)),
            DoubleBlock(RPM, (0, 100), (dice.uniform(600, 6_000), dice.choice((float("nan"), 800.04, 30_000.0)))),
        ]
        if seq % 50 == 0:
            blocks.append(Block(SPEED, 0, 0, (3_600_000,), (1,)))
        delay = dice.choice((300, 900, 40_000, 95_000, 400_000))
        frame = device.packet(seq, *blocks, base_ms=base, epoch=1 + seq // (packets // 2))
        frames.append((frame, device.stamp(base + delay)))
    frames += dice.sample(frames, packets // 4)
    dice.shuffle(frames)
    return frames


def fill(heart: Line, packets: int) -> None:
    """Every packet has one lane for ever, so all its copies lie in one partition."""
    for seed, device in enumerate(heart.devices.values()):
        frames = mischief(device, seed, packets)
        lanes = [zlib.crc32(value or b"") % 5 for value, _ in frames]
        heart.send_from(device, [frame for frame, lane in zip(frames, lanes, strict=True) if lane])
        backlog = [frame for frame, lane in zip(frames, lanes, strict=True) if not lane]
        heart.send_from(device, backlog, heart.topics.backlog.name)
    car = heart.devices["car1"]
    heart.send_from(car, [(b"\xc3\x01rubbish", car.stamp(T0)), (car.packet(1, nonce=5), car.stamp(T0))])


def everything(heart: Line) -> list[Any]:
    return [heart.rows(statement) for statement in (READINGS, WINDOWS, LATEST, ASIDE)]


def last_told(heart: Line) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The newest message of each window, without its number."""
    found = {}
    for key, text in heart.rows(TOLD):
        message = json.loads(text)
        del message["publication"]
        found[key, message["signal"], message["width_s"], message["starts_at"]] = message
    return found


def empty(heart: Line) -> None:
    with psycopg.connect(heart.superuser_dsn, autocommit=True) as owner:
        owner.execute(f"TRUNCATE {TABLES}")


def test_two_replays_with_different_batches_give_equal_rows(heart: Line) -> None:
    """What the closer says too: byte for byte when it looks once, and in the end however often it looks."""
    fill(heart, 240)
    heart.drain(max_offsets=100_000)
    heart.close_windows()
    first, seen, said, told = everything(heart), heart.rows(SEEN), heart.rows(SAID), heart.rows(TOLD)
    in_the_end = last_told(heart)
    assert len(first[0]) > 3_000 and len(first[3]) > 2 and len(said) == len(told) == len(first[1]) > 200
    empty(heart)
    heart.drain(max_offsets=150)
    heart.close_windows()
    assert everything(heart) == first and heart.rows(SEEN) == seen
    assert heart.rows(SAID) == said and heart.rows(TOLD) == told
    empty(heart)
    heart.sink = "driver"
    heart.drain(max_offsets=400, after_batch=heart.close_windows)
    assert everything(heart) == first and heart.rows(SEEN) == seen
    ((wrongly_numbered, most_often),) = heart.rows(NUMBERING)
    assert wrongly_numbered == 0 and most_often > 2
    assert heart.rows(LAST_SAID) == heart.rows(AS_IT_IS) and last_told(heart) == in_the_end


def test_windows_equal_those_of_another_engine_row_by_row(heart: Line) -> None:
    fill(heart, 240)
    heart.drain(max_offsets=300)
    heart.close_windows()
    readings = heart.rows(
        "SELECT device, signal, (extract(epoch FROM measured_at) * 1000)::bigint, boot_epoch, seq,"
        " round(value::numeric, 9), quality, (extract(epoch FROM received_at) * 1000)::bigint FROM readings"
    )
    expected = by_duckdb(readings)
    found = heart.rows(
        "SELECT device, signal, width_s, extract(epoch FROM starts_at)::bigint, n, round(min::numeric, 9),"
        " round(max::numeric, 9), round(mean::numeric, 6), round(stddev::numeric, 5), round(last::numeric, 9),"
        " revision, (SELECT late_minutes FROM window_aggregates a JOIN devices d USING (device_key) JOIN signals s"
        " USING (signal) WHERE (d.device, s.path, a.width_s, a.starts_at)"
        " = (windows.device, windows.signal, windows.width_s, windows.starts_at))"
        " FROM windows ORDER BY 1, 2, 3, 4"
    )
    assert len(found) == len(expected) > 200
    unequal = [(mine, theirs) for mine, theirs in zip(found, expected, strict=True) if not same(mine, theirs)]
    assert not unequal[:3]


def by_duckdb(readings: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    engine = duckdb.connect()
    engine.execute(
        "CREATE TABLE r (device VARCHAR, signal VARCHAR, ms BIGINT, epoch BIGINT, seq BIGINT, v DECIMAL(30, 9), q INT,"
        " received BIGINT)"
    )
    engine.executemany("INSERT INTO r VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [list(row) for row in readings])
    return engine.execute(
        """
        WITH late AS (
            SELECT *, received > ((ms // (width * 1000)) + 1) * width * 1000 + wait_ms AS is_late
            FROM r, (VALUES (10, 15_000), (60, 15_000), (3600, 59_999), (86400, 59_999)) AS w (width, wait_ms)
            WHERE q < 64)
        SELECT device, signal, width, (ms // (width * 1000)) * width AS start, count(*), min(v), max(v),
               avg(v::DOUBLE), stddev_samp(v::DOUBLE), max_by(v, (ms, epoch, seq)),
               count(DISTINCT received // 60_000) FILTER (WHERE is_late),
               coalesce(list_sort(list(DISTINCT received // 60_000) FILTER (WHERE is_late)), [])
        FROM late GROUP BY ALL
        ORDER BY device COLLATE "C", signal, width, start
        """
    ).fetchall()


def same(mine: tuple[Any, ...], theirs: tuple[Any, ...]) -> bool:
    """Keys, counts, extremes and revisions exactly; mean and deviation to what doubles can say."""
    exact = mine[:7] == theirs[:7] and mine[9:] == theirs[9:]
    mean = abs(float(mine[7]) - theirs[7]) < 1e-5
    deviation = (mine[8] is None) == (theirs[8] is None)
    if mine[8] is not None and deviation:
        deviation = abs(float(mine[8]) - theirs[8]) < 1e-4
    return exact and mean and deviation
