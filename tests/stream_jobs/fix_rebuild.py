"""Versions beside the tables of a ``Line``, filled by the run's own Spark session."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from contracts.tables import ROLE_SINK
from infra.backends import Backends
from infra.rebuild import Rebuilds
from infra.versions import Version
from stream_jobs.parquet import Place
from stream_jobs.rebuild import Step
from stream_jobs.refill import Refill
from stream_jobs.settings import StreamSettings
from tests.stream_jobs.fix_ingest import Line


@dataclass(slots=True)
class Versions:
    """How tests rebuild: in-process, with small slices."""

    line: Line
    stack: Backends
    schema: str
    archive: Path
    slice_records: int = 2_000
    tell: Callable[[Step], None] = lambda _: None

    def dsn(self, schema: str, role: str = ROLE_SINK) -> str:
        return make_conninfo(self.stack.postgres.dsn(role), options=f"-csearch_path={schema}")

    def settings(self, manifest: str = "") -> StreamSettings:
        return StreamSettings(
            dsn=SecretStr(self.dsn(manifest or self.schema)),
            kafka_bootstrap=self.line.bootstrap,
            topic_prefix=self.line.prefix,
            archive_folder=self.archive,
            max_offsets_per_trigger=self.slice_records,
        )

    def fill(self, schema: str, version: Version, until: Mapping[tuple[UUID, int], tuple[str, int]]) -> int:
        places = {Place(topic, topic_id, number): at for (topic_id, number), (topic, at) in until.items()}
        since_ms = None if version.since is None else round(version.since.timestamp() * 1000)
        refill = Refill(self.line.spark, self.settings())
        return refill(self.dsn(schema), version.source, since_ms, places, self.tell)

    @property
    def rebuilds(self) -> Rebuilds:
        return Rebuilds(self.stack.postgres.dsn(), self.schema, 10_000, self.fill)


def wait_until(condition: Callable[[], bool], timeout_s: float = 300.0) -> None:
    """Ask again until it is so."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "the condition did not come true in time"
        time.sleep(0.02)
