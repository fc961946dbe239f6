"""Every source keeps the protocol's promises; the CSV source tells each cell as its mode says."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_agent.errors import RecordingError
from edge_agent.sources import SOURCES, CsvSource, Reading, ScriptedSource, Source, StdinSource
from edge_agent.sources.recording import Values
from edge_agent.sources.stdin import MAX_LINE_CHARACTERS, QUEUE_READINGS

ROWS = "time,Vehicle.Speed,Vehicle.TraveledDistance\n1000,10.5,\n2000,10.5,7\n3000,,8\n4000,11,8\n"


def recording(folder: Path, text: str = ROWS) -> Path:
    path = folder / "drive.csv"
    path.write_text(text)
    return path


def make(kind: type, folder: Path) -> Source:
    makers: dict[type, Callable[[], Source]] = {
        ScriptedSource: lambda: ScriptedSource([Reading(1, n * 1_000, 1.0) for n in range(1, 5)]),
        CsvSource: lambda: CsvSource(recording(folder)),
        StdinSource: lambda: StdinSource(io.StringIO('["Vehicle.Speed", 1000, 3.5]\n["Vehicle.Speed", 2000, 4, 1]\n')),
    }
    return makers[kind]()


def read_all(source: Source, step_ms: int = 500) -> list[Reading]:
    found: list[Reading] = []
    now_ms = 0
    with contextlib.closing(source):
        while not source.finished:
            found += source.read(now_ms, 100)
            now_ms += step_ms
            threading.Event().wait(0.001)
    return found


@pytest.mark.parametrize("kind", SOURCES)
def test_the_protocol(kind: type, tmp_path: Path) -> None:
    source = make(kind, tmp_path)
    assert isinstance(source, Source)
    whole = read_all(source)
    assert whole
    assert [reading.at_ms for reading in whole] == sorted(reading.at_ms for reading in whole)
    assert not source.read(10**9, 100)


@pytest.mark.parametrize("kind", [ScriptedSource, CsvSource])
def test_a_source_with_a_cursor_continues_where_it_was(kind: type, tmp_path: Path) -> None:
    whole = read_all(make(kind, tmp_path))
    for stop_after in range(1, 6):
        first, second = make(kind, tmp_path), make(kind, tmp_path)
        told = [reading for n in range(stop_after) for reading in first.read(n * 1_000, 100)]
        assert first.cursor is not None
        second.seek(first.cursor)
        assert told + read_all(second) == whole
        first.close()


def test_all_and_changed(tmp_path: Path) -> None:
    path = recording(tmp_path)
    modes: tuple[Values, ...] = ("all", "changed")
    cells = {mode: [reading[:3] for reading in read_all(CsvSource(path, 1, mode))] for mode in modes}
    speed, distance = 1, 2
    assert cells["all"] == [
        (speed, 1_000, 10.5), (speed, 2_000, 10.5), (distance, 2_000, 7.0), (distance, 3_000, 8.0),
        (speed, 4_000, 11.0), (distance, 4_000, 8.0),
    ]  # fmt: skip
    assert cells["changed"] == [
        (speed, 1_000, 10.5), (distance, 2_000, 7.0), (distance, 3_000, 8.0), (speed, 4_000, 11.0)
    ]  # fmt: skip


def test_speed_and_compression(tmp_path: Path) -> None:
    path = tmp_path / "drive.csv.gz"
    path.write_bytes(gzip.compress(ROWS.encode()))
    source = CsvSource(path, speed=10)
    assert len(source.read(50_000, 100)) == 1
    assert not source.read(50_099, 100)
    assert len(source.read(50_100, 100)) == 2
    source.close()


@pytest.mark.parametrize(
    ("text", "where"), [("", "line 1"), ("time,No.Such\n", "line 1"), ("time,Vehicle.Speed\n1,2\n2,x\n", "line 3")]
)
def test_a_bad_recording_names_its_line(tmp_path: Path, text: str, where: str) -> None:
    with pytest.raises(RecordingError, match=where):
        read_all(CsvSource(recording(tmp_path, text)))


def test_a_line_without_end_costs_no_memory_and_is_one_bad_line() -> None:
    good = json.dumps(["Vehicle.Speed", 1, 2.5])
    asked: list[int] = []

    class Pipe(io.StringIO):
        def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
            asked.append(size)
            return super().readline(size)

    blank = " " * (3 * MAX_LINE_CHARACTERS)
    source = StdinSource(Pipe(f"{good}{blank}\n{good}\n{blank}"))
    assert read_all(source) == [Reading(1, 1, 2.5)]
    assert source.bad_lines == 2 and set(asked) == {MAX_LINE_CHARACTERS}


def test_a_fast_writer_is_slowed_down_by_its_pipe() -> None:
    """The thread takes from the pipe only what the bounded queue has room for."""
    taken = 0

    class Endless(io.StringIO):
        def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
            nonlocal taken
            taken += 1
            return "" if taken > 3 * QUEUE_READINGS else f'["Vehicle.Speed", {taken}, 1]\n'

    source = StdinSource(Endless())
    waiting = threading.Event()
    while not (source._queue.full() and taken > QUEUE_READINGS):
        waiting.wait(0.005)
    assert taken == QUEUE_READINGS + 1, "one more is held by the thread that waits for room"
    first = source.read(0, 1)
    assert first == [Reading(1, 1, 1.0)]
    assert len(read_all(source)) == 3 * QUEUE_READINGS - 1


def test_bad_lines_of_a_pipe_are_counted() -> None:
    lines = ["{", "[]", '["No.Such", 1, 2]', json.dumps(["Vehicle.Speed", 1, 2.5])]
    source = StdinSource(io.StringIO("\n".join(lines)))
    assert read_all(source) == [Reading(1, 1, 2.5)]
    assert source.bad_lines == 3
