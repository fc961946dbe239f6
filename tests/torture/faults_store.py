"""Faults of the database beyond being killed or slow: tables locked, no connection left."""

from __future__ import annotations

import contextlib
import random

import psycopg

from contracts.tables import PACKET_TABLE, ROLE_SINK
from tests.torture.arena import Arena
from tests.torture.plan import Shape, Step

TABLES = (PACKET_TABLE, "window_aggregates", "latest_values", "ingest_offsets")
MOST_CONNECTIONS = 200
TAKE_ALL_AGAIN_S = 0.5


class Locked:
    """Somebody holds an exclusive lock on a table that every batch writes."""

    name = "store_locked"

    def draw(self, chance: random.Random) -> Shape:
        return Shape(("postgres",), chance.uniform(5, 35), chance.randrange(len(TABLES)))

    def strike(self, arena: Arena, step: Step) -> None:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(arena.judge_dsn) as connection:
            connection.execute(f"LOCK TABLE {TABLES[int(step.value)]} IN ACCESS EXCLUSIVE MODE".encode())
            arena.stop.wait(step.hold_s)
            connection.rollback()


class NoConnections:
    """All connections are taken, and those of the ingest job are ended."""

    name = "no_connections"

    def draw(self, chance: random.Random) -> Shape:
        return Shape(("postgres",), chance.uniform(4, 20))

    def strike(self, arena: Arena, step: Step) -> None:
        taken: list[psycopg.Connection[object]] = []
        try:
            _take_all(arena.stack.dsn(ROLE_SINK), taken)
            with contextlib.suppress(psycopg.OperationalError), psycopg.connect(arena.judge_dsn) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'fleetstream_sink'"
                )
            _take_all(arena.stack.dsn(ROLE_SINK), taken)
            arena.stop.wait(step.hold_s)
        finally:
            for one in taken:
                one.close()


def _take_all(dsn: str, taken: list[psycopg.Connection[object]]) -> None:
    """Until the database refuses."""
    while len(taken) < MOST_CONNECTIONS:
        try:
            taken.append(psycopg.connect(dsn, connect_timeout=2))
        except psycopg.OperationalError:
            return
