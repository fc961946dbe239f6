"""Recorded drives: columns, times, both ways of counting values, and resuming in the middle."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import Rejected
from contracts.signals import catalogue
from edge_agent.sources.base import Reading
from simulators.errors import RecordingError
from simulators.kit_obd import COLUMNS, Recording, RecordingSource, Values, device_name

HEADER = "Time,Engine Coolant Temperature [Â°C],Engine RPM [RPM],Vehicle Speed Sensor [km/h]\n"
COOLANT, RPM, SPEED = 21, 20, 1
DATA = Path(os.environ.get("FLEETSTREAM_DATA", Path(__file__).parents[3] / "shared" / "data"))


def drive(folder: Path, body: str, name: str = "2017-07-10_Car_A.csv.gz", header: str = HEADER) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress((header + body).encode()))
    return path


def readings(path: Path, values: Values) -> list[tuple[int, int, float]]:
    recording = Recording(path, values)
    try:
        return [(reading.signal, at_ms, reading.value) for at_ms, row in recording for reading in row]
    finally:
        recording.close()


def test_all_and_changed_count_as_promised(tmp_path: Path) -> None:
    path = drive(
        tmp_path,
        "08:00:00.500,90,,\n08:00:00.600,90,800.5,\n08:00:01.000,91,800.5,0.0\n08:00:01.100,,800.5,0.0\n08:00:01.200,91,,\n",
    )
    t0 = 1_499_666_400_500  # 2017-07-10 06:00:00.500 UTC: Berlin keeps summer time
    assert readings(path, "all") == [
        (COOLANT, t0, 90), (COOLANT, t0 + 100, 90), (RPM, t0 + 100, 800.5), (COOLANT, t0 + 500, 91),
        (RPM, t0 + 500, 800.5), (SPEED, t0 + 500, 0), (RPM, t0 + 600, 800.5), (SPEED, t0 + 600, 0),
        (COOLANT, t0 + 700, 91),
    ]  # fmt: skip
    assert readings(path, "changed") == [
        (COOLANT, t0, 90), (RPM, t0 + 100, 800.5), (COOLANT, t0 + 500, 91), (SPEED, t0 + 500, 0),
        (COOLANT, t0 + 700, 91),
    ]  # fmt: skip


def test_winter_time_and_midnight(tmp_path: Path) -> None:
    path = drive(tmp_path, "23:59:59.900,90,,\n00:00:00.100,90,,\n", name="2018-02-14_Car_A.csv.gz")
    first, second = (at_ms for _, at_ms, _ in readings(path, "all"))
    assert first == 1_518_649_199_900 and second == first + 200


def test_the_file_names_the_device(tmp_path: Path) -> None:
    assert device_name(tmp_path / "2017-07-10_Car_A.csv.gz") == "2017-07-10_Car_A"
    with pytest.raises(Rejected, match="bad_name"):
        device_name(tmp_path / "2017-07-10 Käfer.csv.gz")


@pytest.mark.parametrize(
    ("body", "header", "reason"),
    [
        ("08:00:00,90,1\n", HEADER, "line 2: 3 cells"),
        ("noon,90,1,2\n", HEADER, "line 2"),
        ("08:00:00,90,1,2\n08:00:01,90,x,2\n", HEADER, "line 3"),
        ("", "Time,Boost\n", "unknown columns Boost"),
        ("", "", "first column is not Time"),
    ],
)
def test_what_is_not_a_recording_is_refused_with_its_line(tmp_path: Path, body: str, header: str, reason: str) -> None:
    with pytest.raises(RecordingError, match=reason):
        readings(drive(tmp_path, body, header=header), "all")


def test_a_file_without_a_date_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="no_date"):
        Recording(drive(tmp_path, "", name="drive.csv.gz"), "all")


@given(cut=st.integers(0, 60), step_ms=st.integers(100, 3_000), values=st.sampled_from(("all", "changed")))
def test_resuming_anywhere_gives_every_reading_once(
    tmp_path_factory: pytest.TempPathFactory, cut: int, step_ms: int, values: Values
) -> None:
    body = "".join(f"08:00:{row:02}.000,{90 + row // 7},{800 + row % 3},{row // 10}.0\n" for row in range(60))
    path = drive(tmp_path_factory.mktemp("kit"), body)
    first = RecordingSource(path, speed=10, values=values)
    got: list[Reading] = []
    now_ms = 0
    while first.rows < cut:
        got += first.read(now_ms, 25)
        now_ms += step_ms
    second = RecordingSource(path, speed=10, values=values)
    cursor = first.cursor
    assert cursor is not None
    second.seek(cursor)
    while not second.finished:
        got += second.read(now_ms, 25)
        now_ms += step_ms
    first.close()
    second.close()
    assert [(reading.signal, reading.at_ms, reading.value) for reading in got] == readings(path, values)


def test_speed_is_recorded_time_over_wall_time(tmp_path: Path) -> None:
    source = RecordingSource(drive(tmp_path, "".join(f"08:00:{s:02}.000,90,,\n" for s in range(60))), 20, "all")
    assert len(source.read(1_000, 1_000)) == 1
    assert len(source.read(1_500, 1_000)) == 10
    assert len(source.read(1_500, 1_000)) == 0
    assert len(source.read(9_000, 1_000)) == 49
    assert source.finished
    source.close()


def test_real_recordings_fit_the_catalogue() -> None:
    """Every cell of a real drive is in range and a whole number of its signal's resolution, so sums stay exact."""
    files = sorted((DATA / "kit-obd").glob("*.csv.gz"))
    if not files:
        pytest.skip("recordings are not here; set FLEETSTREAM_DATA to the folder that holds kit-obd")
    rows = Recording(files[-1], "all")
    seen = set()
    for _, row in rows:
        for reading in row:
            signal = catalogue().by_number(reading.signal)
            assert signal.minimum <= reading.value <= signal.maximum
            assert signal.from_units(signal.to_units(reading.value)) == reading.value
            seen.add(signal.path)
    rows.close()
    assert seen == set(COLUMNS.values())
