"""When windows are called closed, what is said of them, and that a correction is said again."""

from __future__ import annotations

import threading

import pytest

from contracts.errors import TryLater
from stream_jobs.jobs.closer import watermark_ms
from stream_jobs.log import Extent, LogState
from stream_jobs.sinks.ledger import Taken
from tests.fix_cut import cut_at_commit
from tests.stream_jobs.build import T0
from tests.stream_jobs.fix_scene import Scene


def test_a_partition_that_is_caught_up_stands_at_now_and_one_that_is_not_at_what_is_stored() -> None:
    extents = {0: Extent(0, 5), 1: Extent(0, 0), 2: Extent(4, 9)}
    assert watermark_ms(1_000, extents, {0: Taken(5, 10), 2: Taken(9, 20)}) == 1_000
    assert watermark_ms(1_000, extents, {0: Taken(4, 10), 2: Taken(9, 20)}) == 10
    assert watermark_ms(1_000, extents, {0: Taken(5, 10)}) == 0
    assert watermark_ms(1_000, {0: Extent(0, 5)}, {0: Taken(4, 9_999)}) == 1_000


def test_a_window_closes_after_its_end_and_grace_and_is_said_once(scene: Scene) -> None:
    scene.put(1, 100, 300, received_ms=T0 + 500)
    scene.now_ms = T0 + 24_999
    assert scene.closer.once() == 0
    scene.now_ms = T0 + 25_000
    assert scene.closer.once() == 1 and scene.closer.once() == 0
    assert scene.said() == [
        {
            "device": "car1", "signal": "Vehicle.Speed", "width_s": 10, "starts_at": "2026-09-21T14:13:20Z", "n": 2,
            "min": 1.0, "max": 3.0, "mean": 2.0, "last": 3.0, "revision": 0, "publication": 1, "final": False,
        }
    ]  # fmt: skip
    assert scene.rows("SELECT kafka_key, tenant_id, published_at FROM outbox WHERE topic = 'windows'") == [
        ("car1", scene.car.tenant_id, None)
    ]
    scene.now_ms = T0 + 140_000
    assert scene.closer.once() == 1 and scene.said()[1]["width_s"] == 60


def test_a_closer_killed_at_its_commit_has_said_nothing_and_says_it_once(
    scene: Scene, schema: str, schema_dsn: str
) -> None:
    scene.put(1, 100, 300, received_ms=T0 + 500)
    scene.now_ms = T0 + 25_000
    with cut_at_commit(schema_dsn, schema), pytest.raises(TryLater):
        scene.closer.once()
    published = "SELECT count(*) FROM window_publications UNION ALL SELECT count(*) FROM outbox WHERE topic = 'windows'"
    assert scene.rows(f"SELECT state FROM window_aggregates WHERE width_s = 10 UNION ALL {published}") == [
        (0,), (0,), (0,),
    ]  # fmt: skip
    assert scene.closer.once() == 1 and scene.closer.once() == 0
    assert len(scene.said()) == 1


def test_a_round_closes_a_bounded_number_of_windows_and_the_rest_waits(scene: Scene) -> None:
    scene.closer.rows = 3
    minute_ms = T0 // 60_000 * 60_000 + 60_000
    for number in range(5):
        scene.put(number + 1, 100, base_ms=minute_ms + number * 10_000, received_ms=minute_ms + number * 10_000)
    scene.now_ms = minute_ms + 66_000  # five of 10 s are over with their grace, the minute is not
    assert [scene.closer.once() for _ in range(3)] == [3, 2, 0]
    assert len(scene.said()) == 5


def test_a_store_that_lags_does_not_close_windows_by_the_clock(scene: Scene) -> None:
    scene.put(1, 100, received_ms=T0 + 500)
    scene.log.end += 1
    scene.now_ms = T0 + 500_000
    assert scene.closer.once() == 0
    scene.put(2, 7, base_ms=T0 + 26_000, received_ms=T0 + 26_000)
    scene.log.end += 1
    assert scene.closer.once() == 1


def test_a_late_packet_reopens_its_window_which_is_said_again_with_a_higher_revision(scene: Scene) -> None:
    scene.put(1, 100, received_ms=T0 + 500)
    scene.now_ms = T0 + 200_000
    assert scene.closer.once() == 2
    scene.put(2, 500, received_ms=T0 + 190_000)
    assert scene.rows("SELECT DISTINCT state FROM window_aggregates") == [(2,)]
    assert scene.closer.once() == 2
    assert [(one["width_s"], one["n"], one["max"], one["revision"]) for one in scene.said()] == [
        (10, 1, 1.0, 0), (60, 1, 1.0, 0), (10, 2, 5.0, 1), (60, 2, 5.0, 1),
    ]  # fmt: skip
    assert scene.rows("SELECT revision, n FROM window_publications WHERE width_s = 10 ORDER BY revision") == [
        (0, 1), (1, 2),
    ]  # fmt: skip
    assert scene.rows("SELECT n, first_published_n, mean, first_published_mean FROM late WHERE width_s = 10") == [
        (2, 1, 3.0, 1.0)
    ]


def test_what_came_by_the_backlog_in_time_is_said_again_under_its_revision(scene: Scene) -> None:
    scene.put(1, 100, received_ms=T0 + 500)
    scene.now_ms = T0 + 30_000
    assert scene.closer.once() == 1
    scene.put(2, 500, received_ms=T0 + 20_000)
    assert scene.closer.once() == 1
    assert [(one["n"], one["revision"], one["publication"]) for one in scene.said()] == [(1, 0, 1), (2, 0, 2)]
    assert scene.rows("SELECT publication, revision, n FROM publications ORDER BY 1") == [(1, 0, 1), (2, 0, 2)]
    assert scene.rows("SELECT revision, n, first_published_n, publications FROM late") == [(0, 2, 1, 2)]


def test_the_loop_goes_on_when_kafka_was_away(scene: Scene) -> None:
    scene.put(1, 100, received_ms=T0 + 500)
    scene.now_ms = T0 + 200_000
    scene.log.away = True
    stop, asked = threading.Event(), threading.Event()
    state = scene.log.state

    def watched() -> LogState:
        asked.set()
        return state()

    scene.log.state = watched  # type: ignore[method-assign]
    thread = threading.Thread(target=scene.closer.run, args=(stop,))
    thread.start()
    assert asked.wait(30)
    scene.log.away = False
    closed = "SELECT count(*) FROM window_aggregates WHERE state = 1"
    while scene.rows(closed) != [(2,)]:
        assert thread.is_alive()
    stop.set()
    thread.join(30)
    assert not thread.is_alive()
