"""The store's side of trimming: what is archived and stored, what was verified and trimmed, and alarms, told once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import psycopg
from psycopg.types.json import Jsonb

from contracts.errors import TryLater
from stream_jobs.parquet import Place
from stream_jobs.sinks.connection import Connection, connect
from stream_jobs.sinks.manifest import FILES, KeptFile

ARCHIVED: Final = "SELECT topic, topic_id, kafka_partition, next_offset FROM archive_offsets"
STORED: Final = "SELECT topic, topic_id, kafka_partition, next_offset FROM ingest_offsets"
VERIFIED: Final = "UPDATE archive_files SET verified_at = now() WHERE path = ANY(%s)"
TRIMMED: Final = """
INSERT INTO trimmed_offsets AS t (topic_id, kafka_partition, topic, trimmed_to) VALUES (%s, %s, %s, %s)
ON CONFLICT (topic_id, kafka_partition) DO UPDATE SET trimmed_to = greatest(t.trimmed_to, excluded.trimmed_to),
    trimmed_at = now()"""
STANDING: Final = "SELECT alarm, place, detail FROM log_alarms WHERE cleared_at IS NULL FOR UPDATE"
RAISE: Final = """
INSERT INTO log_alarms (alarm, place, detail) VALUES (%s, %s, %s)
ON CONFLICT (alarm, place) DO UPDATE SET detail = excluded.detail, raised_at = now(), cleared_at = NULL"""
CLEAR: Final = "UPDATE log_alarms SET cleared_at = now() WHERE alarm = %s AND place = %s"
TELL: Final = """
INSERT INTO outbox (topic, kafka_key, kafka_value) VALUES ('events', %s, convert_to(%s::jsonb::text, 'UTF8'))"""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One thing that is wrong with the log or the archive; ``raised`` False: it is over."""

    alarm: str
    place: str
    detail: str
    raised: bool = True


class TrimLedger:
    """A connection of its own, for one thread. Every method raises TryLater when the database does not answer."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: Connection | None = None

    def files(self) -> list[KeptFile]:
        return [KeptFile(*row) for row in self._ask(FILES)]

    def archived(self) -> Mapping[Place, int]:
        """Where the archive goes on."""
        return {Place(topic, topic_id, number): at for topic, topic_id, number, at in self._ask(ARCHIVED)}

    def stored(self) -> Mapping[Place, int]:
        """Where ingest goes on."""
        return {Place(topic, topic_id, number): at for topic, topic_id, number, at in self._ask(STORED)}

    def verified(self, files: Sequence[KeptFile]) -> None:
        """These files were hashed just now and are what they were."""
        if files:
            self._do(VERIFIED, ([one.path for one in files],))

    def trimmed(self, place: Place, to: int) -> None:
        """To be called before the records go, so that nobody wonders where they are."""
        self._do(TRIMMED, (place.topic_id, place.partition, place.topic, to))

    def alarms(self, now: Sequence[Alarm]) -> list[Alarm]:
        """Make the alarms that stand these ones; what changed, which was also told on the events topic."""
        try:
            connection = self._open()
            with connection.transaction():
                standing = {(alarm, place): detail for alarm, place, detail in connection.execute(STANDING).fetchall()}
                wanted = {(one.alarm, one.place): one for one in now}
                changes = [one for key, one in wanted.items() if key not in standing]
                changes += [
                    Alarm(alarm, place, detail, raised=False)
                    for (alarm, place), detail in standing.items()
                    if (alarm, place) not in wanted
                ]
                for one in changes:
                    _write(connection, replace(one, detail=one.detail[:500]))
        except psycopg.OperationalError as error:
            raise self._away(error) from error
        return changes

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, statement: str) -> list[tuple[Any, ...]]:
        try:
            return self._open().execute(statement.encode()).fetchall()
        except psycopg.OperationalError as error:
            raise self._away(error) from error

    def _do(self, statement: str, values: tuple[object, ...]) -> None:
        try:
            self._open().execute(statement.encode(), values)
        except psycopg.OperationalError as error:
            raise self._away(error) from error

    def _open(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self._dsn)
        return self._connection

    def _away(self, error: Exception) -> TryLater:
        self.disconnect()
        return TryLater(f"the store did not answer ({type(error).__name__}); nothing was trimmed")


def _write(connection: Connection, one: Alarm) -> None:
    if one.raised:
        connection.execute(RAISE, (one.alarm, one.place, one.detail))
    else:
        connection.execute(CLEAR, (one.alarm, one.place))
    event = {"event": "log_alarm", "alarm": one.alarm, "place": one.place, "detail": one.detail,
             "state": "raised" if one.raised else "cleared"}  # fmt: skip
    connection.execute(TELL, ("$log", Jsonb(event)))
