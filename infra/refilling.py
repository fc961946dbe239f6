"""Versions of a running stack: where its store, log and archive are, and Spark, which is started when it is needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import UUID

from contracts.tables import ROLE_SINK
from contracts.topics import Topics
from infra.rebuild import Rebuilds
from infra.restore import Restore, read_book
from infra.rooms import Stack, stream_environment
from infra.spark import spark_environment, spark_jars
from infra.versions import Version

if TYPE_CHECKING:
    from stream_jobs.refill import Refill
    from stream_jobs.settings import StreamSettings

Tell = Callable[[int, int], None]
"""Hears how many records of how many were read."""


def schema_dsn(stack: Stack, schema: str) -> str:
    """The sink's connection string with another schema as search path."""
    settings = stack.settings.model_copy(update={"schema_name": schema})
    return replace(stack, settings=settings).dsn(ROLE_SINK)


def refill_settings(stack: Stack, manifest: str) -> StreamSettings:
    """The stream jobs' settings with a scratch folder of their own, so that ingest may go on beside.

    ``manifest``: the schema whose archive manifest counts.
    """
    from stream_jobs.settings import StreamSettings

    prefix = "FLEETSTREAM__STREAM_JOBS__"
    told = {key.removeprefix(prefix).lower(): value for key, value in stream_environment(stack, 0).items()}
    told |= {
        "dsn": schema_dsn(stack, manifest),
        "checkpoint_folder": str(stack.settings.home / "rebuild"),
        "jars": ",".join(map(str, spark_jars(stack.settings.cache))),
    }
    return StreamSettings(**told)  # type: ignore[arg-type]  # pydantic reads texts


@contextmanager
def stdout_as_stderr() -> Iterator[None]:
    """Spark's JVM logs to the stdout that it inherits; ours is for answers."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@dataclass(slots=True)
class LazyFiller:
    """Starts Spark at the first record that is wanted; most comparisons want none."""

    stack: Stack
    tell: Tell
    manifest: str
    exits: ExitStack = field(default_factory=ExitStack)
    _refill: Refill | None = None

    def __call__(self, schema: str, version: Version, until: Mapping[tuple[UUID, int], tuple[str, int]]) -> int:
        from stream_jobs.parquet import Place

        places = {Place(topic, topic_id, partition): at for (topic_id, partition), (topic, at) in until.items()}
        since_ms = None if version.since is None else int(version.since.timestamp() * 1000)
        dsn = schema_dsn(self.stack, schema)
        return self._started()(dsn, version.source, since_ms, places, lambda step: self.tell(step.done, step.total))

    def _started(self) -> Refill:
        if self._refill is None:
            from stream_jobs.refill import open_refill

            os.environ.update(spark_environment(self.stack.settings.cache))
            settings = refill_settings(self.stack, self.manifest)
            with stdout_as_stderr():
                self._refill = self.exits.enter_context(open_refill(settings))
        return self._refill


@contextmanager
def rebuilds_of(stack: Stack, tell: Tell, manifest: str = "") -> Iterator[Rebuilds]:
    """Versions of this stack's store; ``manifest``: the schema of the archive's manifest, if not the live one."""
    filler = LazyFiller(stack, tell, manifest or stack.settings.schema_name)
    with filler.exits:
        settings = stack.settings
        yield Rebuilds(stack.superuser_dsn, settings.schema_name, settings.retention_days, filler)


def make_restore(stack: Stack, rebuilds: Rebuilds) -> Restore:
    """A restore of this stack's store from its archive folder and its log."""
    from stream_jobs.refill import adopt_archive

    def prepare(schema: str) -> Mapping[tuple[UUID, int], tuple[str, int]]:
        found = adopt_archive(refill_settings(stack, schema))
        return {(place.topic_id, place.partition): (place.topic, end) for place, end in found.items()}

    book = Topics(stack.settings.topic_prefix).book.name
    return Restore(rebuilds, lambda: read_book(stack.bootstrap, book), prepare)
