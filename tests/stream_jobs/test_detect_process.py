"""``python -m stream_jobs detect`` killed in the middle: it goes on from its checkpoint and finds what NumPy finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg

from contracts.finding import decode_finding
from contracts.tables import ROLE_SINK
from contracts.topics import Topics
from tests.stream_jobs.build import add_devices
from tests.stream_jobs.fix_detection import drives, offline, stored
from tests.stream_jobs.fix_ingest import send
from tests.stream_jobs.fix_process import Job, wait_for

PER_BATCH = 15
"""So small that much is left to be read, however late this test comes to kill the first one."""

PATIENCE_S = 900.0
"""Two starts of Spark on a machine that may be busy with other tests."""


def test_killed_it_goes_on_and_neither_forgets_nor_repeats(
    role_dsn: Callable[[str], str], kafka_bootstrap: str, topic_prefix: str, tmp_path: Path
) -> None:
    dsn = role_dsn(ROLE_SINK)
    sent = drives(add_devices(dsn, {"north": ["car1", "car2"], "south": ["wtg1"]}))
    send(kafka_bootstrap, Topics(topic_prefix).live.name, [(one.device.name, *one.frame) for one in sent])
    settings = {
        "DSN": dsn, "KAFKA_BOOTSTRAP": kafka_bootstrap, "TOPIC_PREFIX": topic_prefix, "CORES": 1,
        "DRIVER_MEMORY_MB": 512, "DETECT_FOLDER": tmp_path / "detection", "DETECT_INTERVAL_MS": 0,
        "MAX_OFFSETS_PER_TRIGGER": PER_BATCH,
    }  # fmt: skip

    def batches(job: Job) -> int:
        assert job.process.poll() is None, job.log_file.read_text()[-3000:]
        with psycopg.connect(dsn) as connection:
            row = connection.execute("SELECT max(last_batch) FROM detection_runs").fetchone()
        return -1 if row is None or row[0] is None else int(row[0])

    first = Job.start("detect", tmp_path, settings)
    try:
        wait_for(lambda: batches(first) >= 1, PATIENCE_S)
        assert batches(first) < len(sent) // PER_BATCH, "nothing is left to be read"
    finally:
        first.end()  # SIGKILL
    second = Job.start("detect", tmp_path, settings | {"MAX_OFFSETS_PER_TRIGGER": 1_000})
    try:
        expected = offline(sent)
        wait_for(lambda: batches(second) >= 0 and stored(dsn) == expected, PATIENCE_S)
        wait_for(second.ready)
        assert "fleetstream_detect_findings_total" in second.get("/metrics")
        assert second.stop() == 0
    finally:
        second.end()
    assert "resumed=True" in second.log_file.read_text()
    with psycopg.connect(dsn) as connection:
        runs = connection.execute("SELECT count(*) FROM detection_runs").fetchone()
        values = connection.execute("SELECT kafka_value FROM outbox WHERE topic = 'findings'").fetchall()
    said = [decode_finding(bytes(value)) for (value,) in values]
    assert runs == (1,)
    assert len({(one.id, one.revision) for one in said}) == len(said) >= len(expected)
