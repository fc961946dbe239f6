"""A wall clock that jumps far ahead, while running or at boot, makes no packet too old."""

from __future__ import annotations

from pathlib import Path

from edge_agent.clock import STEADY_MS, STEP_MS, ManualClock, StepWatch
from edge_agent.sources import Reading
from tests.edge_agent.doubles import NOW_MS
from tests.edge_agent.rig import Rig

DAY_MS = 24 * 3_600_000
YEAR_MS = 365 * DAY_MS
TICK_MS = 50


class OneAtATime:
    """One reading of now per tick."""

    can_wait = False
    cursor: str | None = None
    finished = False

    def seek(self, cursor: str) -> None:
        """A sensor has no past."""

    def read(self, now_ms: int, limit: int) -> list[Reading]:
        return [Reading(1, now_ms, 50.0)]

    def close(self) -> None:
        """Nothing to give back."""


def offline(folder: Path, clock: ManualClock) -> Rig:
    rig = Rig(folder, OneAtATime(), clock, packing={"packet_ms": 1_000})
    rig.cloud.acks = False
    rig.agent.start()
    rig.agent.tick()
    rig.cloud.cut()
    return rig


def held(rig: Rig) -> int:
    assert rig.agent.spool is not None
    return rig.agent.spool.index.total.packets


def test_a_year_ahead_while_running_drops_nothing(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    rig = offline(tmp_path, clock)
    rig.run(60_000)
    before = held(rig)
    clock.wall_ms += YEAR_MS
    rig.run(60_000)
    clock.wall_ms -= YEAR_MS
    rig.run(10_000)
    assert rig.agent.spool is not None
    assert before > 50 and held(rig) > 2 * before and rig.agent.spool.counters.dropped_packets == 0


def test_a_year_ahead_at_boot_drops_nothing(tmp_path: Path) -> None:
    rig = offline(tmp_path, ManualClock(NOW_MS))
    rig.run(60_000)
    before = held(rig)
    rig.agent.stop(drain_ms=0)
    later = offline(tmp_path, ManualClock(NOW_MS + YEAR_MS))
    later.run(60_000)
    assert later.agent.spool is not None
    assert held(later) > before and later.agent.spool.counters.dropped_packets == 0


def test_what_is_really_too_old_falls_once_the_clock_has_proved_steady(tmp_path: Path) -> None:
    rig = offline(tmp_path, ManualClock(NOW_MS))
    rig.run(60_000)
    rig.agent.stop(drain_ms=0)
    clock = ManualClock(NOW_MS + 40 * DAY_MS)
    later = offline(tmp_path, clock)
    later.run(10_000)
    clock.advance(STEADY_MS)
    later.run(60_000)
    assert later.agent.spool is not None and later.agent.spool.counters.dropped_packets >= 50


def test_steady_means_no_jump_for_an_hour() -> None:
    watch = StepWatch()
    assert not watch.steady(NOW_MS, 0)
    assert watch.steady(NOW_MS + STEADY_MS + STEP_MS // 2, STEADY_MS)
    assert not watch.steady(NOW_MS + STEADY_MS + 2 * STEP_MS, STEADY_MS)
    assert watch.steady(NOW_MS + 2 * STEADY_MS + 2 * STEP_MS, 2 * STEADY_MS)
