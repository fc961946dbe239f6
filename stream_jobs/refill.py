"""The rebuild's own wiring, apart from ``wiring.py`` because it brings pyspark along: source, ledger of the tables to
fill, sink."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from stream_jobs.adopt import adopt, manifest_rows, survey
from stream_jobs.log import LogReader
from stream_jobs.parquet import Place
from stream_jobs.rebuild import ArchiveLog, FileRange, KafkaLog, Rebuilder, Step, day_of, generations
from stream_jobs.scratch import fresh_folder
from stream_jobs.service import patiently
from stream_jobs.session import build_session
from stream_jobs.settings import StreamSettings
from stream_jobs.sinks.base import Target, Topic
from stream_jobs.sinks.connection import drop_all
from stream_jobs.sinks.ledger import StoreLedger
from stream_jobs.sinks.manifest import Manifest, Shelf
from stream_jobs.sinks.slices import SliceSink
from stream_jobs.wiring import topic_kinds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINCE_MARGIN_MS = 3_600_000
"""A rebuild since a moment reads Kafka from so much earlier: the broker's clock is not the gateway's."""


@dataclass(frozen=True, slots=True)
class Refill:
    """Brings the tables behind a connection string to given positions, from Kafka or from the archive and Kafka."""

    session: SparkSession
    settings: StreamSettings

    def __call__(
        self, dsn: str, source: str, since_ms: int | None, until: Mapping[Place, int],
        tell: Callable[[Step], None] = lambda _: None,
    ) -> int:  # fmt: skip
        """How many records were read. ``settings.dsn`` is where the archive's manifest stands. Raises LogLost."""
        reader = LogReader(self.settings.kafka_bootstrap, list(topic_kinds(self.settings.topic_prefix)))
        log = patiently(reader.state, threading.Event())
        store = StoreLedger(dsn)
        known = {key: taken.next_offset for key, taken in store.progress().items()}
        store.disconnect()
        at = {place: known.get((place.topic_id, place.partition), 0) for place in until}
        done = 0
        if source == "archive":
            done += self._from_archive(dsn, since_ms, at, until, tell)
        if since_ms is not None:
            starts = reader.since(since_ms - SINCE_MARGIN_MS)
            at = {place: max(offset, starts.get((place.topic, place.partition), 0)) for place, offset in at.items()}
        begins = {
            Place(name, log.ids[name], number): extent.begin
            for name, parts in log.extents.items()
            for number, extent in parts.items()
        }
        return done + self._rebuilder(dsn, log.ids, since_ms).run(
            KafkaLog(self.settings.kafka_bootstrap, begins), at, until, tell
        )

    def _from_archive(
        self, dsn: str, since_ms: int | None, at: dict[Place, int], until: Mapping[Place, int],
        tell: Callable[[Step], None],
    ) -> int:  # fmt: skip
        """Topics that were made again under the same name have another id and are read one after the other."""
        manifest = Manifest(self.settings.dsn.get_secret_value())
        kept, ends = manifest.files(), manifest.offsets()
        manifest.disconnect()
        files = tuple(
            FileRange(self.settings.archive_folder.absolute() / one.path, place, one.first_offset, one.last_offset)
            for one in kept
            if (place := Place(one.topic, one.topic_id, one.partition)) in until
            and (since_ms is None or one.received_day >= day_of(since_ms))
        )
        goal = {place: min(end, ends.get((place.topic_id, place.partition), 0)) for place, end in until.items()}
        if since_ms is not None:
            firsts = {
                place: min((f.first_offset for f in files if f.place == place), default=goal[place]) for place in goal
            }
            at.update({place: max(at[place], first) for place, first in firsts.items()})
        done = 0
        for ids in generations(goal):
            mine = {place: end for place, end in goal.items() if ids.get(place.topic) == place.topic_id}
            done += self._rebuilder(dsn, ids, since_ms).run(ArchiveLog(files), at, mine, tell)
        return done

    def _rebuilder(self, dsn: str, ids: Mapping[str, UUID], since_ms: int | None) -> Rebuilder:
        kinds = topic_kinds(self.settings.topic_prefix)
        topics = {name: Topic(topic_id, kinds[name]) for name, topic_id in ids.items() if name in kinds}
        sink = SliceSink(Target(dsn, topics, self.settings.chunk_bytes))
        return Rebuilder(self.session, topics, sink.store, self.settings.max_offsets_per_trigger, since_ms)


@contextmanager
def open_refill(settings: StreamSettings) -> Iterator[Refill]:
    """Start Spark for as long as a rebuild needs it."""
    with fresh_folder(settings.checkpoint_folder) as scratch:
        session = build_session(settings, scratch)
        try:
            yield Refill(session, settings)
        finally:
            session.stop()
            drop_all()


def adopt_archive(settings: StreamSettings) -> dict[Place, int]:
    """Write the manifest of the archive's files into the store of ``settings``; how far archive and log go together.

    The manifest is written whole or not at all, so one that holds something is not surveyed again. Raises LogLost when
    something lies in neither.
    """
    names = list(topic_kinds(settings.topic_prefix))
    state = patiently(LogReader(settings.kafka_bootstrap, names).state, threading.Event())
    extents = {
        Place(name, state.ids[name], number): extent
        for name, parts in state.extents.items()
        for number, extent in parts.items()
    }
    manifest = Manifest(settings.dsn.get_secret_value())
    try:
        if not (known := manifest.offsets()):
            found = survey(settings.archive_folder.absolute())
            adopted = [
                adopt(
                    place, found.files.get(place, ()), found.offsets,
                    extents[place].begin if place in extents else None,
                )
                for place in {*found.files, *extents}
                if place in extents or place.topic in names
            ]  # fmt: skip
            manifest.fill(
                Shelf(one.place.topic, one.place.topic_id, one.place.partition, 0, one.end, rows)
                for one in adopted
                if (rows := manifest_rows(one))
            )
            known = {(one.place.topic_id, one.place.partition): one.end for one in adopted}
            places = {one.place: one.end for one in adopted}
        else:
            places = {
                Place(one.topic, one.topic_id, one.partition): known[one.topic_id, one.partition]
                for one in manifest.files()
            }
    finally:
        manifest.disconnect()
    return places | {place: max(extent.end, places.get(place, 0)) for place, extent in extents.items()}
