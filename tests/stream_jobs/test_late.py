"""Late data corrects windows and roll-ups visibly, up to its signal's class; what is final never changes."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from contracts.limits import FINAL_MARGIN_MS, LATENESS_CLASSES_S, MAX_LATENESS_MS
from contracts.tables import ROLE_API, ROLE_READER
from stream_jobs.sinks.driver import store_table
from stream_jobs.sinks.tasks import store_partition
from tests.stream_jobs.build import BACKLOG, LIVE, in_log_order, speed, table, target
from tests.stream_jobs.fix_scene import Scene

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
H0 = 1_790_035_200_000
"""Midnight UTC, Unix milliseconds."""

CPU_SECONDS = 9001
VALUES = "n, sum_units, sumsq_units, min_units, max_units, first_units, first_ms, last_units, last_ms"


@pytest.mark.parametrize("role", [ROLE_READER, ROLE_API])
def test_those_who_read_windows_may_read_what_stands_behind_them(role_dsn: Callable[[str], str], role: str) -> None:
    with psycopg.connect(role_dsn(role)) as connection:
        for view in (b"windows", b"late", b"publications", b"too_late"):
            assert connection.execute(b"SELECT * FROM " + view).fetchall() == []


def test_midnight_is_midnight() -> None:
    assert H0 % DAY == 0


def test_roll_ups_follow_their_windows_and_wait_to_the_full_minute(scene: Scene) -> None:
    for seq, at in enumerate((0, 59 * MINUTE + 59_000, 2 * HOUR), 1):
        scene.put(seq, 10 * seq, -seq, base_ms=H0 + at, received_ms=H0 + at + 500)
    scene.close_until_quiet(H0 + HOUR + MINUTE - 1)
    assert scene.rows("SELECT width_s FROM windows WHERE width_s > 60") == []
    scene.close_until_quiet(H0 + HOUR + MINUTE)
    assert scene.rows("SELECT n, min, max, last, revision, closed FROM windows WHERE width_s = 3600") == [
        (4, -0.02, 0.2, -0.02, 0, True)
    ]
    scene.close_until_quiet(H0 + DAY + MINUTE)
    assert scene.rows(f"SELECT {VALUES}, publications FROM window_aggregates WHERE width_s = 86400") == [
        (6, 54, 100 + 1 + 400 + 4 + 900 + 9, -3, 30, 10, H0, -3, H0 + 2 * HOUR + 100, 1)
    ]
    said = [(one["width_s"], one["starts_at"], one["n"]) for one in scene.said() if one["width_s"] > 60]
    assert said == [
        (3600, "2026-09-22T00:00:00Z", 4), (3600, "2026-09-22T02:00:00Z", 2), (86400, "2026-09-22T00:00:00Z", 6),
    ]  # fmt: skip
    assert scene.rows("SELECT count(*) FROM rollup_due") == [(0,)]


def test_a_late_packet_corrects_every_width_and_what_was_said_first_stays(scene: Scene) -> None:
    scene.put(1, 100, base_ms=H0, received_ms=H0 + 500)
    scene.close_until_quiet(H0 + 2 * DAY)
    late = [H0 + DAY + 5 * HOUR, H0 + DAY + 5 * HOUR + 1, H0 + 12 * DAY]
    for seq, received in enumerate(late, 2):
        scene.put(seq, 500, base_ms=H0 + 1_000, received_ms=received, topic=BACKLOG)
        scene.close_until_quiet(max(H0 + 2 * DAY, received))
    assert scene.rows("SELECT width_s, revision, n, max, mean, publications FROM windows ORDER BY 1") == [
        (width, 2, 4, 5.0, 4.0, 4) for width in (10, 60, 3600, 86400)
    ]
    assert scene.rows(
        "SELECT width_s, first_published_n, first_published_mean, first_published_max, first_published_last,"
        " first_published_revision, mean FROM late ORDER BY 1"
    ) == [(width, 1, 1.0, 1.0, 1.0, 0, 4.0) for width in (10, 60, 3600, 86400)]
    assert scene.rows("SELECT publication, revision, n, mean FROM publications WHERE width_s = 3600 ORDER BY 1") == [
        (1, 0, 1, 1.0), (2, 1, 2, 3.0), (3, 1, 3, 11 / 3), (4, 2, 4, 4.0),
    ]  # fmt: skip
    told = [(one["publication"], one["revision"], one["n"]) for one in scene.said() if one["width_s"] == 86400]
    assert told == [(1, 0, 1), (2, 1, 2), (3, 1, 3), (4, 2, 4)]


def test_late_for_its_minute_is_not_late_for_its_hour(scene: Scene) -> None:
    scene.put(1, 1, base_ms=H0, received_ms=H0 + 30 * MINUTE)
    scene.put(2, 1, base_ms=H0, received_ms=H0 + HOUR + MINUTE - 1)
    scene.put(3, 1, base_ms=H0, received_ms=H0 + HOUR + MINUTE)
    scene.close_until_quiet(H0 + 2 * DAY)
    assert scene.rows("SELECT width_s, revision FROM windows ORDER BY 1") == [(10, 3), (60, 3), (3600, 1), (86400, 0)]


def test_a_corrected_window_touches_only_its_own_roll_ups(scene: Scene) -> None:
    for hour in range(30):
        scene.put(hour + 1, hour, base_ms=H0 + hour * HOUR, received_ms=H0 + hour * HOUR + 100)
    scene.close_until_quiet(H0 + 3 * DAY)
    before = len(scene.said())
    scene.put(99, 7, base_ms=H0 + 25 * HOUR, received_ms=H0 + 3 * DAY, topic=BACKLOG)
    scene.close_until_quiet(H0 + 3 * DAY + 1)
    assert sorted(one["width_s"] for one in scene.said()[before:]) == [10, 60, 3600, 86400]


def test_a_reading_as_late_as_its_class_allows_counts_and_the_next_millisecond_does_not(scene: Scene) -> None:
    scene.put(1, 100, base_ms=H0, received_ms=H0 + MAX_LATENESS_MS)
    receipt = scene.put(2, 300, 400, base_ms=H0 - 101, received_ms=H0 + MAX_LATENESS_MS)
    assert (receipt.too_late, receipt.quarantined, receipt.packets, receipt.samples) == (2, 1, 1, 0)
    assert scene.rows("SELECT n FROM window_aggregates") == [(1,), (1,)]
    (row,) = scene.rows("SELECT reason, samples, detail, size_bytes > 40 FROM quarantine")
    assert row == ("too_late", 2, {"too_late": 2}, True)
    assert scene.rows("SELECT stored_packets, quarantined_packets, missing::text FROM ledger") == [(2, 0, "{}")]


def test_the_class_is_the_signal_s_own(scene: Scene) -> None:
    limit_ms = LATENESS_CLASSES_S["hours"] * 1000
    scene.put(1, 5, base_ms=H0, received_ms=H0 + limit_ms, signal=CPU_SECONDS)
    receipt = scene.put(2, 5, base_ms=H0, received_ms=H0 + limit_ms + 1, signal=CPU_SECONDS)
    assert receipt.too_late == 1
    assert scene.rows("SELECT lateness_s FROM signals WHERE signal = 9001") == [(86400,)]


def test_readings_too_late_are_reported_by_hour_and_told_once_an_hour(scene: Scene) -> None:
    received = H0 + 40 * DAY
    for seq, (base, at) in enumerate([(H0, 0), (H0 + DAY, 5), (H0 + 500, 6), (H0 - DAY, HOUR)], 1):
        scene.put(seq, 1, 2, base_ms=base, received_ms=received + at)
    assert scene.rows("SELECT signal, samples, extract(epoch FROM oldest_at)::bigint FROM too_late ORDER BY 3") == [
        ("Vehicle.Speed", 2, (H0 - DAY) // 1000), ("Vehicle.Speed", 6, H0 // 1000),
    ]  # fmt: skip
    events = scene.said("events")
    assert [(one["event"], one["device"], one["samples"], one["oldest_ms"]) for one in events] == [
        ("readings_too_late", "car1", 2, H0), ("readings_too_late", "car1", 2, H0 - DAY),
    ]  # fmt: skip


def test_final_says_when_a_row_can_change_no_more_and_holds_it(scene: Scene) -> None:
    scene.put(1, 100, base_ms=H0, received_ms=H0 + 500)
    final_at = H0 + 10_000 + MAX_LATENESS_MS
    asked = "SELECT width_s, final FROM windows ORDER BY 1"
    scene.hear(final_at + FINAL_MARGIN_MS - 1)
    scene.close_until_quiet(final_at + FINAL_MARGIN_MS - 1)
    assert scene.rows(asked) == [(10, False), (60, False), (3600, False), (86400, False)]
    scene.close_until_quiet(final_at + FINAL_MARGIN_MS + 60_000)
    assert scene.rows(asked)[0] == (10, False), "a clock that jumps ahead makes nothing final"
    scene.hear(final_at + FINAL_MARGIN_MS + 60_000)
    scene.close_until_quiet(final_at + FINAL_MARGIN_MS + 60_000)
    assert scene.rows(asked) == [(10, True), (60, True), (3600, False), (86400, False)]
    assert scene.rows("SELECT extract(epoch FROM final_at)::bigint FROM windows WHERE width_s = 10") == [
        (final_at // 1000,)
    ]
    before = scene.rows("SELECT * FROM window_aggregates ORDER BY width_s")
    receipt = scene.put(2, 999, base_ms=H0, received_ms=H0 + DAY, topic=BACKLOG)
    assert (receipt.too_late, receipt.packets) == (1, 1)
    assert scene.rows("SELECT * FROM window_aggregates ORDER BY width_s") == before
    assert scene.rows("SELECT reason, seq FROM quarantine") == [("too_late", 2)]
    scene.put(3, 7, base_ms=H0 + 120_000, received_ms=H0 + 10 * DAY, topic=BACKLOG)
    assert scene.rows("SELECT n FROM windows WHERE starts_at = '2026-09-22 00:02:00+00'") == [(1,), (1,)]


def test_finality_waits_for_the_backlog_and_for_what_is_not_published(scene: Scene) -> None:
    scene.put(1, 1, base_ms=H0, received_ms=H0 + 500)
    scene.put(1, 1, base_ms=H0, received_ms=H0 + DAY, topic=BACKLOG)
    scene.hear(H0 + 90 * DAY)
    scene.log.backlog_end += 1
    scene.close_until_quiet(H0 + 90 * DAY)
    told = scene.rows("SELECT extract(epoch FROM final_before)::bigint * 1000 FROM finality")
    assert told == [(H0 + DAY - FINAL_MARGIN_MS,)]
    scene.log.backlog_end -= 1
    scene.close_until_quiet(H0 + 90 * DAY)
    scene.rows("UPDATE window_aggregates SET state = 2 WHERE width_s = 10 RETURNING 1")
    assert not scene.ledger.move_finality(H0 + 91 * DAY)
    scene.close_until_quiet(H0 + 90 * DAY)
    assert scene.ledger.move_finality(H0 + 91 * DAY)
    assert not scene.ledger.move_finality(H0 + 50 * DAY), "it never goes back"


def test_a_recording_is_never_final(scene: Scene) -> None:
    scene.rows("UPDATE devices SET kind = 'recording' RETURNING 1")
    scene.put(1, 1, base_ms=H0, received_ms=H0 + 500, flags=1)
    scene.hear(H0 + 90 * DAY)
    scene.close_until_quiet(H0 + 90 * DAY)
    receipt = scene.put(2, 1, base_ms=H0, received_ms=H0 + 95 * DAY, flags=1)
    assert receipt.too_late == 0
    assert scene.rows("SELECT DISTINCT final, final_at FROM windows") == [(False, None)]


@pytest.mark.parametrize("first", [LIVE, BACKLOG])
def test_whoever_came_first_in_a_contested_epoch_comes_first_on_every_replay(scene: Scene, first: str) -> None:
    second = BACKLOG if first == LIVE else LIVE
    nonces = {first: 11, second: 22}

    def play(order: tuple[str, str]) -> list[tuple[object, ...]]:
        scene.offsets = {LIVE: 0, BACKLOG: 0}
        for topic in order:
            scene.put(1, 5, base_ms=H0, received_ms=H0 + 500, topic=topic, nonce=nonces[topic])
            scene.put(2, 6, base_ms=H0, received_ms=H0 + 600, topic=topic, nonce=nonces[topic])
        return scene.rows(
            "SELECT topic, kafka_offset, reason, NULL FROM quarantined"
            " UNION ALL SELECT 'seen', nonce, ranges::text, packets FROM seen_ranges ORDER BY 1, 2"
        )

    there = play((first, second))
    assert ("seen", 11, "{[1,3)}", 2) in there and len(there) == 3
    scene.rows(
        "WITH a AS (DELETE FROM seen_ranges), b AS (DELETE FROM ingest_offsets), c AS (DELETE FROM quarantined)"
        " DELETE FROM packet_rows RETURNING 1"
    )
    assert play((second, first)) == there


def test_two_lanes_in_one_transaction_give_the_epoch_to_the_earlier_receive_stamp(scene: Scene) -> None:
    records = [
        *in_log_order([(scene.car.packet(1, speed(1), nonce=11), scene.car.stamp(H0 + 9))], LIVE),
        *in_log_order([(scene.car.packet(2, speed(1), nonce=22), scene.car.stamp(H0 + 8))], BACKLOG),
    ]
    store_table(target(scene.dsn), table(records))
    assert scene.rows("SELECT nonce FROM seen_ranges") == [(22,)]
    more = in_log_order([(scene.car.packet(3, speed(1), nonce=11), scene.car.stamp(H0))], LIVE, 1)
    store_partition(target(scene.dsn), table(more).to_batches())
    assert scene.rows("SELECT seq FROM quarantine ORDER BY 1") == [(1,), (3,)]
