"""Cars whose coolant follows load: an archive of them, drives on the log, a registry of models over a line's tables."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr

from anomaly.deployed import DEPLOYED
from anomaly.models.recipe import SIGNALS
from anomaly.shard import Shard
from contracts.model_event import decode_model_event
from contracts.packet import Block
from stream_jobs.log import LogReader
from stream_jobs.models.registry import Registry
from stream_jobs.models.serving import serve
from stream_jobs.models.workshop import Asked
from stream_jobs.parquet import Place, RawRecord, write_files
from stream_jobs.settings import StreamSettings
from stream_jobs.sinks.manifest import Manifest
from tests.anomaly.fix_models import AIR, AMBIENT, COOLANT, RECIPE, SPEED, T0, driven
from tests.stream_jobs.build import Device, Frame
from tests.stream_jobs.fix_detection import WAIT_MS
from tests.stream_jobs.fix_ingest import Line

HOURS_S = 5_400
STREAM_S, DRIVE_S, HOT_S = 7_200, 1_500, 7_800
SCALES = {COOLANT: (-1, 5), AIR: (-2, 1), SPEED: (-2, 1), AMBIENT: (-1, 5)}
"""Exponent, and seconds between two readings."""


def packets(device: Device, car: int, first_s: int, seconds: int, hot_from_s: int = 10**9) -> list[Frame]:
    """A drive, one packet a minute."""
    told = driven(car, first_s, seconds, hot_from_s)
    frames: list[Frame] = []
    for start in range(0, seconds, 60):
        blocks = []
        for signal, (exponent, step) in SCALES.items():
            values = told[signal][start : start + 60 : step]
            units = tuple(round(one / 10.0**exponent) for one in values.tolist())
            blocks.append(Block(signal, exponent, 0, tuple(1_000 * step * n for n in range(len(units))), units))
        base_ms = T0 + 1_000 * (first_s + start)
        frame = device.packet((first_s + start) // 60 + 1, *blocks, base_ms=base_ms)
        frames.append((frame, device.stamp(base_ms + 61_000)))
    return frames


class Room:
    """A registry over the tables of a line, with an archive and a folder of its own."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.registry = Registry(
            StreamSettings(
                dsn=SecretStr(line.dsn), kafka_bootstrap=line.bootstrap, topic_prefix=line.prefix,
                archive_folder=line.scratch / "archive", model_folder=line.scratch / "models",
            )
        )  # fmt: skip

    def archive(self, seconds: int) -> None:
        """What three cars sent, as the archiver keeps it."""
        ids = LogReader(self.line.bootstrap, [self.line.topics.live.name]).state().ids
        place = Place(self.line.topics.live.name, ids[self.line.topics.live.name], 0)
        frames = [
            (device.name, frame)
            for car, device in enumerate(self.line.devices.values(), 1)
            for frame in packets(device, car, 0, seconds)
        ]
        frames.sort(key=lambda one: one[1][1] or b"")
        records = [RawRecord(at, name.encode(), stamp, value) for at, (name, (value, stamp)) in enumerate(frames)]
        files = write_files(self.registry.settings.archive_folder, place, records)
        manifest = Manifest(self.line.dsn)
        assert manifest.add(place.topic, place.topic_id, 0, 0, len(records), files)
        manifest.disconnect()

    def train(self, seed: int = 1) -> tuple[str, Any, bool]:
        return self.registry.train(self.line.spark, Asked(RECIPE, seed, WAIT_MS))

    def states(self) -> dict[str, str]:
        return {row["model"]: row["state"] for row in self.registry.store.rows()}

    def events(self) -> list[Any]:
        rows = self.line.rows("SELECT kafka_value FROM outbox WHERE topic = 'events' ORDER BY outbox_id")
        return [decode_model_event(bytes(value)) for (value,) in rows]

    def shard(self) -> Shard:
        now = serve(self.registry.store, self.registry.shelf)
        return Shard((*DEPLOYED, *now.deployments), WAIT_MS, SIGNALS)
