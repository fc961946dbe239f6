"""A fleet written by the sink's role as the stream job would, and a real server that answers about it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from api.settings import ApiSettings, load_settings
from api.wiring import build_app, build_server, new_key
from contracts.signals import catalogue
from contracts.tables import ROLE_API, ROLE_SINK
from infra.enrol import Enrolment, enrol

CONSOLE = Path(__file__).parents[2] / "dashboards" / "console"
SPEED = catalogue().by_path("Vehicle.Speed")
RPM = catalogue().by_path("Vehicle.Powertrain.CombustionEngine.Speed")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AHEAD = timedelta(minutes=10)
"""What is to count as fresh is stamped so far ahead, or it would be stale by when a busy machine looks at it."""

PATIENCE_S = 120.0
"""For whatever only takes time: the machine may be busy with other things."""

Sample = tuple[int, int, float, int]
"""(signal number, offset in ms, value, quality)"""


def ms_of(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


@dataclass
class Fleet:
    """Two tenants, north (two cars and one that never sent) and south (one turbine), with keys."""

    dsn: str
    api_dsn: str
    sink_dsn: str
    tenants: dict[str, int] = field(default_factory=dict)
    devices: dict[str, int] = field(default_factory=dict)
    seqs: dict[str, int] = field(default_factory=dict)

    def enrol(self, *enrolments: Enrolment) -> None:
        with psycopg.connect(self.dsn) as connection:
            for one in enrol(connection, enrolments):
                self.tenants[one.tenant] = one.tenant_id
                self.devices[one.device] = one.device_key

    def key(self, tenant: str, role: str = "operator", **columns: Any) -> str:
        made = new_key()
        values = {
            "key_id": made.key_id, "key_sha256": made.sha256, "tenant_id": self.tenants[tenant], "role": role, **columns
        }  # fmt: skip
        self.insert("api_keys", values)
        return made.text

    def insert(self, table: str, *rows: dict[str, Any]) -> None:
        with psycopg.connect(self.sink_dsn) as connection:
            for row in rows:
                marks = ", ".join(["%s"] * len(row))
                connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})".encode(), [*row.values()])

    def execute(self, statement: str, *values: Any) -> None:
        with psycopg.connect(self.sink_dsn) as connection:
            connection.execute(statement.encode(), values)

    def tenant_of(self, device: str) -> int:
        return self.tenants["south" if device.startswith("south") else "north"]

    def packet(self, device: str, at: datetime, samples: Sequence[Sample], received: datetime | None = None) -> int:
        """Store one packet of samples around ``at``; return its sequence number."""
        seq = self.seqs[device] = self.seqs.get(device, 0) + 1
        offsets = [offset for _, offset, _, _ in samples]
        self.insert("packet_rows", {
            "received_at": received or at, "first_at": at + timedelta(milliseconds=min(offsets)),
            "last_at": at + timedelta(milliseconds=max(offsets)), "boot_epoch": 1, "seq": seq, "base_ms": ms_of(at),
            "device_key": self.devices[device], "tenant_id": self.tenant_of(device), "samples": len(samples), "lane": 0,
            "clock_trusted": True, "signals": [one[0] for one in samples], "offsets_ms": offsets,
            "vals": [float(one[2]) for one in samples],
            "qualities": [one[3] for one in samples] if any(one[3] for one in samples) else None,
            "sha256": hashlib.sha256(f"{device}{seq}".encode()).digest(),
        })  # fmt: skip
        return seq

    def latest(
        self, device: str, signal: int, at: datetime, value: float, quality: int = 0, received: datetime | None = None
    ) -> None:
        self.execute(
            "INSERT INTO latest_values VALUES (%s, %s, %s, %s, 1, 1, 0, %s, %s, %s)"
            " ON CONFLICT (device_key, signal) DO UPDATE SET measured_ms = EXCLUDED.measured_ms, val = EXCLUDED.val,"
            " quality = EXCLUDED.quality, received_at = EXCLUDED.received_at",
            self.devices[device], signal, self.tenant_of(device), ms_of(at), value, quality, received or at,
        )  # fmt: skip

    def window(self, device: str, signal: int, starts_at: datetime, units: Sequence[int], width_s: int = 10) -> None:
        low, high, last = min(units), max(units), units[-1]
        self.insert("window_aggregates", {
            "device_key": self.devices[device], "signal": signal, "width_s": width_s, "starts_at": starts_at,
            "tenant_id": self.tenant_of(device), "state": 1, "n": len(units), "sum_units": sum(units),
            "sumsq_units": sum(one * one for one in units), "min_units": low, "max_units": high,
            "first_units": units[0], "first_ms": 0, "first_epoch": 1, "first_seq": 1, "first_pos": 0,
            "last_units": last, "last_ms": 1, "last_epoch": 1, "last_seq": 1, "last_pos": 0,
        })  # fmt: skip


@pytest.fixture
def fleet(schema_dsn: str, role_dsn: Callable[[str], str]) -> Fleet:
    made = Fleet(schema_dsn, role_dsn(ROLE_API), role_dsn(ROLE_SINK))
    made.enrol(
        Enrolment("north-1", "north", "Car 1", "car"),
        Enrolment("north-2", "north", "Car 2", "car"),
        Enrolment("north-3", "north", "Car 3", "car"),
        Enrolment("south-1", "south", "Turbine 1", "turbine"),
    )
    return made


@dataclass(frozen=True, slots=True)
class Server:
    """A server that listens; clients have no key unless they are given one."""

    base_url: str
    stop: Callable[[], None]

    def client(self, key: str | None = None, **options: Any) -> httpx.Client:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.base_url, headers=headers, timeout=PATIENCE_S, trust_env=False, **options)


def api_settings(fleet: Fleet, **overrides: Any) -> ApiSettings:
    values = {
        "dsn": fleet.api_dsn, "pages": CONSOLE, "port": 0, "pool_size": 4, "key_cache_s": 0.0, "rate_burst": 10_000,
        "stream_poll_ms": 50, "stream_frame_ms": 50, "pool_timeout_s": PATIENCE_S / 2, "statement_timeout_ms": 60_000,
        **overrides,
    }  # fmt: skip
    return load_settings(**values)


@contextmanager
def running(settings: ApiSettings, with_relay: bool = False) -> Iterator[Server]:
    """uvicorn in a thread, on a free port, until the block ends."""
    server = build_server(settings, build_app(settings, with_relay))
    up = threading.Event()
    started = server.startup

    async def startup(sockets: Any = None) -> None:
        await started(sockets)
        up.set()

    server.startup = startup  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run, name="api")
    thread.start()
    try:
        assert up.wait(PATIENCE_S)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Server(f"http://127.0.0.1:{port}", server.stop)
    finally:
        server.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@pytest.fixture
def server(fleet: Fleet) -> Iterator[Server]:
    with running(api_settings(fleet)) as made:
        yield made
