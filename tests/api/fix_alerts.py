"""Findings as the stream job writes them, a warden that is moved by hand, and a clock that the test sets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from api.metrics import Metrics
from api.queries.warden import WardenStore
from api.warden import AlertPolicy, Warden
from contracts.alert import AlertStep, decode_step
from contracts.finding import finding_id
from contracts.signals import catalogue
from tests.api.fix_api import Fleet, ms_of

COOLANT = catalogue().by_path("Vehicle.Powertrain.CombustionEngine.EngineCoolant.Temperature")
VERSION = "0123456789abcdef"


@dataclass
class Watchroom:
    """A fleet whose findings become alerts."""

    fleet: Fleet
    policy: AlertPolicy = field(default_factory=AlertPolicy)
    metrics: Metrics = field(default_factory=Metrics)
    begun: datetime = field(default_factory=lambda: datetime.now(UTC).replace(second=0, microsecond=0))
    ahead_ms: int = 0

    @property
    def now_ms(self) -> int:
        """The warden's clock: real time, ahead by as much as the test has let pass."""
        return int(time.time() * 1000) + self.ahead_ms

    def find(
        self, device: str = "north-1", cause: str = "cooling", begun_s: float = 0.0, severity: int = 2,
        deployment: str = "coolant-own-past", **columns: Any,
    ) -> str:  # fmt: skip
        """A finding that began ``begun_s`` after this room; its id. The same again says something new of it."""
        opened = self.begun + timedelta(seconds=begun_s)
        name = finding_id(device, deployment, VERSION, cause, ms_of(opened))
        values = {
            "finding_id": name, "tenant_id": self.fleet.tenant_of(device), "asset_id": self.asset_id(device),
            "device_key": self.fleet.devices[device], "deployment": deployment, "deployment_version": VERSION,
            "detector": "own_past", "cause": cause, "signal": COOLANT.number, "signals": [COOLANT.number],
            "opened_at": opened, "last_at": opened + timedelta(seconds=30), "severity": severity, "score": 7.5,
            "threshold": 4.0, "observed": 118.5, "expected_low": 84.0, "expected_high": 96.0, "probability": 1e-6,
            "contributions": Jsonb([[COOLANT.number, 1.0]]), "advice": "Look at the coolant's level.", "readings": 31,
            "revision": 1, **columns,
        }  # fmt: skip
        names = ", ".join(values)
        changes = ", ".join(f"{one} = excluded.{one}" for one in values if one != "finding_id")
        self.fleet.execute(
            f"INSERT INTO finding_rows ({names}) VALUES ({', '.join(['%s'] * len(values))})"
            f" ON CONFLICT (finding_id) DO UPDATE SET {changes}", *values.values(),
        )  # fmt: skip
        return name

    def asset_id(self, device: str) -> int | None:
        rows = self.rows("SELECT asset_id FROM bindings WHERE device_key = %s", self.fleet.devices[device])
        return rows[0][0] if rows else None

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.fleet.sink_dsn) as connection:
            return connection.execute(statement.encode(), values).fetchall()

    def alerts(self, columns: str = "cause, state, findings") -> list[tuple[Any, ...]]:
        return self.rows(f"SELECT {columns} FROM alert_rows ORDER BY opened_at, since, alert_id")

    def alert(self) -> str:
        """The id of the only alert."""
        (found,) = self.rows("SELECT alert_id FROM alert_rows")
        return str(found[0])

    def steps(self) -> list[AlertStep]:
        """What left for the topic, in order."""
        found = self.rows("SELECT kafka_value FROM outbox WHERE topic = 'alerts' ORDER BY outbox_id")
        return [decode_step(row[0]) for row in found]

    def work(self, *scenes: Callable[[Warden], Awaitable[None]]) -> None:
        """Let a warden do one round, or what a scene says."""

        async def run() -> None:
            warden = Warden(WardenStore(self.fleet.sink_dsn), lambda: self.now_ms, self.metrics, self.policy)
            assert await warden.store.open()
            try:
                for scene in scenes or (_round,):
                    await scene(warden)
            finally:
                await warden.store.close()

        asyncio.run(run())


async def _round(warden: Warden) -> None:
    await warden.round()
