"""Each kind of window under each trigger, on disordered input, against a batch computation that shares no code."""

from __future__ import annotations

import gc
import json
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from contracts.errors import Fatal
from stream_jobs.library.job import AtWatermark, EachRecord, Every, Job, Trigger, build, start
from stream_jobs.library.kinds import Fixed, Kind, Session, Sliding
from stream_jobs.library.late import JobMetrics, LateRows
from stream_jobs.library.sessions import Open, joined, told
from stream_jobs.library.steps import COUNT, Each, Grouped, Joined, Value, highest, lowest, total

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning", "ignore::UserWarning:pyspark.*")

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
DDL = "device string, at timestamp, units bigint"
VALUES = {"n": COUNT, "sum": total("units"), "low": lowest("units"), "high": highest("units")}
KINDS: dict[str, Kind] = {"fixed": Fixed(10), "sliding": Sliding(10, 5), "session": Session(4)}
TRIGGERS: dict[str, Trigger] = {"record": EachRecord(), "delay": Every(0.3), "watermark": AtWatermark(0.1)}
WAIT_S = 20

Row = tuple[str, int, int]
"""(device, seconds after START, units)"""

BATCHES: tuple[tuple[Row, ...], ...] = (
    (("a", 12, 5), ("b", 3, -2), ("a", 1, 7), ("a", 20, 1), ("b", 30, 4), ("a", 28, 6)),
    (("a", 16, 2), ("b", 12, 1), ("a", 24, 3), ("a", 33, 4), ("b", 26, 8), ("a", 13, 9), ("b", 14, 3)),
    (("clock", 500, 0),),
)
"""Late by up to 18 s, within WAIT_S; later rows join sessions of ``a``. The last one moves the watermark."""


def write(folder: Path, batches: Sequence[Sequence[Row]]) -> Path:
    """One file per batch, in order of modification time."""
    folder.mkdir()
    for number, rows in enumerate(batches):
        lines = [
            json.dumps({"device": device, "at": (START + timedelta(seconds=at)).isoformat(), "units": units})
            for device, at, units in rows
        ]
        file = folder / f"{number}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (1_700_000_000 + number,) * 2)
    return folder


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).json(str(folder))


def job(kind: Kind, trigger: Trigger, name: str) -> Job:
    return Job(name, "readings", "at", WAIT_S, (Grouped(("device",), kind, VALUES),), trigger)


def expected(kind: Kind, rows: Sequence[Row]) -> set[tuple[Any, ...]]:
    """Plain Python: (device, start, end, n, sum, low, high)."""
    found: dict[tuple[str, int, int], list[int]] = {}
    for device in {row[0] for row in rows}:
        mine = sorted((at, units) for name, at, units in rows if name == device)
        for at, units in mine:
            for edges in _windows(kind, at, [one for one, _ in mine]):
                found.setdefault((device, *edges), []).append(units)
    return {(*key, len(units), sum(units), min(units), max(units)) for key, units in found.items()}


def _windows(kind: Kind, at: int, times: Sequence[int]) -> list[tuple[int, int]]:
    if isinstance(kind, Session):
        first = last = at
        while (earlier := [one for one in times if first - kind.gap_s <= one < first]) or (
            later := [one for one in times if last < one <= last + kind.gap_s]
        ):
            first, last = (min(earlier), last) if earlier else (first, max(later))
        return [(first, last + kind.gap_s)]
    step = kind.step_s if isinstance(kind, Sliding) else kind.width_s
    return [(start, start + kind.width_s) for start in range(-kind.width_s, at + 1) if (
        start % step == 0 and start <= at < start + kind.width_s
    )]  # fmt: skip


class Heard:
    """A sink that remembers what each batch said."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def __call__(self, batch: DataFrame, _: int) -> None:
        for row in batch.collect():
            device, begin, end, *values = row
            seconds = [None if one is None else round((one - START.replace(tzinfo=None)).total_seconds()) for one in (
                begin, end
            )]  # fmt: skip
            self.said.append((device, *seconds, *values))

    def last(self) -> set[tuple[Any, ...]]:
        """The newest word on each window; a session is named by its start and may be withdrawn."""
        newest = {row[:2]: row for row in self.said}
        return {row for row in newest.values() if row[3] is not None and row[0] != "clock"}


@pytest.fixture(scope="module", autouse=True)
def _quick(spark: SparkSession) -> Iterator[None]:
    """Small batches: nothing to divide, and compiling a plan would cost more than running it."""
    wanted = {"spark.sql.shuffle.partitions": "1", "spark.sql.codegen.wholeStage": "false"}
    usual = {key: str(spark.conf.get(key)) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    yield
    for key, value in usual.items():
        spark.conf.set(key, value)


@pytest.fixture(scope="module")
def late(spark: SparkSession) -> Iterator[LateRows]:
    rows = LateRows(spark)
    yield rows
    rows.close()


@pytest.fixture(scope="module")
def heard(
    spark: SparkSession, late: LateRows, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Heard]]:
    """All nine at once: they share the session and wait together."""
    folder = tmp_path_factory.mktemp("library")
    source = write(folder / "in", BATCHES)
    made: dict[tuple[str, str], Heard] = {}
    queries = []
    for kind in KINDS:
        for trigger in TRIGGERS:
            sink = made[kind, trigger] = Heard()
            one = job(KINDS[kind], TRIGGERS[trigger], f"{kind}_{trigger}")
            queries.append(start(one, {"readings": stream(spark, source)}, sink, folder / one.name, late))
    for query in queries:
        query.processAllAvailable()
        query.stop()
    yield made
    gc.collect()


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("kind", KINDS)
def test_disordered_input_ends_at_the_batch_answer(
    heard: dict[tuple[str, str], Heard], kind: str, trigger: str
) -> None:
    rows = [row for batch in BATCHES[:-1] for row in batch]
    said = heard[kind, trigger]
    assert said.last() == expected(KINDS[kind], rows)
    words = [row for row in said.said if row[0] != "clock"]
    if trigger == "watermark":
        assert len(words) == len(said.last())  # each window once, whole
    else:
        assert len(words) > len(said.last())  # told early, and again


def test_the_same_job_on_a_table_is_the_batch_computation(spark: SparkSession, tmp_path: Path) -> None:
    source = write(tmp_path / "in", BATCHES[:-1])
    rows = [row for batch in BATCHES[:-1] for row in batch]
    for kind in KINDS.values():
        sink = Heard()
        sink(build(job(kind, EachRecord(), "batch"), {"readings": spark.read.schema(DDL).json(str(source))}), 0)
        assert sink.last() == expected(kind, rows)


def test_two_streams_meet_and_what_meets_is_grouped(spark: SparkSession, late: LateRows, tmp_path: Path) -> None:
    clock = ((("clock", 500, 1),), (("clock", 900, 1),))  # the group's watermark follows the join's by one batch
    doors = ((("a", 13, 1), ("a", 36, 1), ("b", 24, 1), ("a", 21, 0)), *clock)
    inputs = {
        "readings": stream(spark, write(tmp_path / "readings", (*BATCHES[:-1], *clock))),
        "doors": stream(spark, write(tmp_path / "doors", doors)),
    }
    shown = Each(("device", "at", "at AS end", "units", "other_units"))
    steps = (Each(where="units > 0"), Joined("doors", ("device",), 3))
    pairs = Job("pairs", "readings", "at", WAIT_S, (*steps, shown), EachRecord())
    grouping = Grouped(("device",), Fixed(10), VALUES)
    counts = replace(pairs, name="counts", steps=(*steps, grouping), trigger=AtWatermark(0.1))
    met, grouped = Heard(), Heard()
    queries = [start(pairs, inputs, met, tmp_path / "1", late), start(counts, inputs, grouped, tmp_path / "2", late)]
    for query in queries:
        query.processAllAvailable()
        query.stop()
    rows = [row for batch in BATCHES[:-1] for row in batch if row[2] > 0]
    others = list(doors[0])
    both = [(one, two) for one in rows for two in others if one[0] == two[0] and abs(one[1] - two[1]) <= 3]
    assert sorted(row for row in met.said if row[0] != "clock") == sorted(
        (one[0], one[1], one[1], one[2], two[2]) for one, two in both
    )
    assert grouped.last() == expected(Fixed(10), [one for one, _ in both])
    gc.collect()


class Told(JobMetrics):
    """Says when it was told something."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.heard = threading.Event()

    def late(self, job: str, rows: int) -> None:
        super().late(job, rows)
        self.heard.set()


def test_rows_behind_the_watermark_are_logged_and_counted(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = write(tmp_path / "in", (BATCHES[0], (("clock", 500, 0),), (("clock", 501, 0),), (("a", 2, 1),)))
    sink, registry = Heard(), CollectorRegistry()
    told, one = Told(registry), job(Fixed(10), AtWatermark(), "late")
    late = LateRows(spark, told)
    query = start(one, {"readings": stream(spark, source)}, sink, tmp_path / "c", late, drain=True)
    assert query.awaitTermination(600)
    assert told.heard.wait(600)
    late.close()
    assert registry.get_sample_value("fleetstream_job_rows_too_late_total", {"job": "late"}) == 1
    assert [
        one.getMessage().rpartition(" ")[0] for one in caplog.records if one.name == "stream_jobs.library.late"
    ] == ["event=rows_too_late job=late rows=1"]
    assert sink.last() == expected(Fixed(10), BATCHES[0])
    gc.collect()


SESSIONS = st.lists(st.tuples(st.integers(0, 60), st.integers(-5, 5)), max_size=12)


@settings(max_examples=200, deadline=None)
@given(SESSIONS, st.integers(1, 6), st.randoms(use_true_random=False))
def test_sessions_do_not_depend_on_order_or_batching(rows: list[tuple[int, int]], gap: int, chance: Any) -> None:
    whole = joined([Open(at, at, (1, units)) for at, units in rows], gap, ("count", "total"))
    shuffled = list(rows)
    chance.shuffle(shuffled)
    held: list[Open] = []
    known: dict[int, Open] = {}
    for at, units in shuffled:  # one batch each; the listener keeps what it is told
        after = joined([*held, Open(at, at, (1, units))], gap, ("count", "total"))
        changed, gone = told(held, after)
        for first in gone:
            del known[first]
        known |= {one.first_us: one for one in changed}
        held = after
    assert held == whole == sorted(known.values(), key=lambda one: one.first_us)
    edges = {
        (first, end, n, sum_)
        for _, first, end, n, sum_, _, _ in expected(Session(gap), [("a", at, units) for at, units in rows])
    }
    assert {(one.first_us, one.last_us + gap, *one.values) for one in whole} == edges


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Fixed(0),
        lambda: Sliding(10, 3),
        lambda: Value("median", "units"),
        lambda: Value("count", "units"),
        lambda: build(job(Fixed(1), EachRecord(), "x"), {}),
        lambda: Job("x", "r", "at", 1, (Joined("o", (), 1), Grouped((), Fixed(1), VALUES)), EachRecord()),
        lambda: Job("x", "r", "at", 1, (Grouped((), Fixed(1), VALUES),) * 2, AtWatermark()),
    ],
)
def test_a_job_that_cannot_be_right_is_refused(wrong: Any) -> None:
    with pytest.raises(Fatal):
        wrong()
