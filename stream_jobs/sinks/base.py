"""What every sink is given and gives back, and the one protocol they share.

A sink stores each Kafka partition's records together with the partition's ``next_offset``. ``attach`` may move the
work into Spark's tasks; ``store`` runs it for one batch and must be the only action on the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from stream_jobs.records import Kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that the query reads: its id in Kafka and what its records are."""

    topic_id: UUID
    kind: Kind


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go; travels to Spark's Python workers, so it is small and picklable."""

    dsn: str
    topics: Mapping[str, Topic]
    chunk_bytes: int = 64 * 1024 * 1024
    """Arrow bytes of one transaction; a larger batch takes several, each with its own ``next_offset``."""

    def __repr__(self) -> str:
        return f"Target(topics={sorted(self.topics)})"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one transaction did for one partition; for metrics only, nothing is decided from it."""

    topic: str
    partition: int
    next_offset: int
    records: int = 0
    replayed: int = 0
    packets: int = 0
    samples: int = 0
    duplicates: int = 0
    quarantined: int = 0
    windows: int = 0
    late_windows: int = 0
    too_late: int = 0
    lateness_ms: int = 0
    retries: int = 0
    transaction_ms: int = 0


RECEIPT_COLUMNS = tuple(field.name for field in fields(Receipt))
RECEIPT_DDL = "topic string, partition int, " + ", ".join(f"{name} long" for name in RECEIPT_COLUMNS[2:])


class Sink(Protocol):
    """One way of bringing a batch into the store."""

    def attach(self, records: DataFrame) -> DataFrame:
        """Called once, on the stream: add what must run inside the tasks."""
        ...

    def store(self, batch: DataFrame) -> list[Receipt]:
        """Called for each micro-batch: run it and say what was committed."""
        ...
