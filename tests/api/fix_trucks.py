"""Trucks in a real store: packets through the sink's own transaction and the closer's own statements."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate

import psycopg
import pytest

from contracts.packet import Block
from contracts.signals import catalogue
from contracts.tables import ROLE_API, ROLE_SINK
from infra.enrol import Enrolment, enrol
from infra.facts import Facts, write_facts
from stream_jobs.sinks.connection import drop_all
from stream_jobs.sinks.ledger import StoreLedger
from stream_jobs.sinks.tasks import store_partition
from tests.api.question_reference import at
from tests.api.trucks import Tick, Told, Truck, ticks, trucks
from tests.stream_jobs.build import Device, in_log_order, table, target
from tests.stream_jobs.disorder import disordered

H0 = 1_790_035_200_000
"""Midnight UTC, Unix milliseconds."""
HOUR, DAY = 3_600_000, 86_400_000
START, END = H0 + 5 * HOUR, H0 + 2 * DAY - 3 * HOUR
STEP = 300_000
MOVED = H0 + DAY + 10 * HOUR + 600_000
"""When the box of truck_6 is put into truck_7."""
COUNT, BATCH = 9, 400
DERIVED = (
    "packet_rows, window_aggregates, window_publications, rollup_due, latest_values, seen_ranges, ingest_offsets,"
    " quarantined, outbox, day_strips"
)


@dataclass
class TruckStore:
    """A store with the registry of the trucks, and what they will tell: one tick is one packet."""

    dsn: str
    sink_dsn: str
    api_dsn: str
    trucks: list[Truck] = field(default_factory=lambda: trucks(COUNT))
    devices: dict[str, Device] = field(default_factory=dict)
    sent: list[tuple[Device, int, Tick]] = field(default_factory=list)
    """(device, sequence number, tick) in order of event time."""

    def enrol(self) -> None:
        """truck_5 has two boxes, truck_7 gets that of truck_6, truck_8 has one that never sends."""
        boxes: list[tuple[str, str, datetime | None]]
        boxes = [(f"box_{number}", f"truck_{number}", None) for number in (0, 1, 2, 3, 4, 5, 6, 8)]
        boxes += [("box_5b", "truck_5", None), ("box_6", "truck_7", at(MOVED))]
        with psycopg.connect(self.dsn) as connection:
            for box, truck, since in boxes:
                self._enrol(connection, Enrolment(box, "north", truck, "truck", since=since))
            self._enrol(connection, Enrolment("south_box", "south", "truck_0", "truck"))
            write_facts(connection, "north", [facts_of(truck) for truck in self.trucks])

    def _enrol(self, connection: psycopg.Connection[tuple[object, ...]], one: Enrolment) -> None:
        (made,) = enrol(connection, [one])
        self.devices[one.device] = Device(one.device, made.device_key, one.tenant, made.tenant_id)

    def tell(self) -> list[Told]:
        """What all trucks told, and which box sent it."""
        boxed: list[tuple[str, Tick]] = []
        for truck in self.trucks[:8]:
            for number, tick in enumerate(ticks(truck, START, END, STEP)):
                box = f"box_{truck.name.removeprefix('truck_')}"
                if truck.name == "truck_5" and number % 2:
                    box = "box_5b"
                if truck.name == "truck_7":
                    box = "box_6"
                if tick and (truck.name not in ("truck_6", "truck_7") or (tick[0].ms < MOVED) == (box_of(truck) == 6)):
                    boxed.append((box, tick))
        seqs: dict[str, int] = {}
        for box, tick in sorted(boxed, key=lambda one: one[1][0].ms):
            seqs[box] = seqs.get(box, 0) + 1
            self.sent.append((self.devices[box], seqs[box], tick))
        return [reading for _, _, tick in self.sent for reading in tick]

    def store(self, disorder_seed: int | None = None) -> int:
        """Put everything in, in order or in disorder, closing windows now and then; how many of them were corrected."""
        sent = self.sent if disorder_seed is None else disordered(self.sent, random.Random(disorder_seed))
        received = accumulate((tick[0].ms for _, _, tick in sent), max)
        frames = [
            (packet(device, seq, tick), device.stamp(now_ms + 500))
            for (device, seq, tick), now_ms in zip(sent, received, strict=True)
        ]
        ledger, offset = StoreLedger(self.sink_dsn), 0
        while offset < len(frames):
            part = frames[offset : offset + BATCH]
            store_partition(target(self.sink_dsn), table(in_log_order(part, first=offset)).to_batches())
            offset += len(part)
            watermark_ms = max(tick[0].ms for _, _, tick in sent[:offset])
            while ledger.close_windows(watermark_ms, 100_000):
                continue
        while ledger.close_windows(END + 2 * DAY, 100_000):
            continue
        ledger.disconnect()
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute("SELECT count(*) FROM windows WHERE revision > 0 AND width_s = 3600").fetchone()
        return int(row[0]) if row else 0

    def forget(self) -> None:
        with psycopg.connect(self.dsn) as connection:
            connection.execute(f"TRUNCATE {DERIVED}".encode())


def box_of(truck: Truck) -> int:
    return int(truck.name.removeprefix("truck_"))


def packet(device: Device, seq: int, tick: Sequence[Told]) -> bytes:
    blocks = []
    for one in tick:
        signal = catalogue().by_path(one.path)
        blocks.append(Block(signal.number, signal.exponent, 0, (0,), (one.units,)))
    return device.packet(seq, *blocks, base_ms=tick[0].ms)


def facts_of(truck: Truck) -> Facts:
    values = {
        "fleet": truck.fleet, "model": truck.model, "driver": truck.driver, "load_capacity_kg": truck.capacity_kg,
        "fuel_capacity_l": truck.tank_l, "nominal_l_100km": truck.nominal_l_100km,
    }  # fmt: skip
    return Facts(truck.name, {name: value for name, value in values.items() if value is not None})


@pytest.fixture
def truck_store(schema_dsn: str, role_dsn: Callable[[str], str]) -> Iterator[TruckStore]:
    made = TruckStore(schema_dsn, role_dsn(ROLE_SINK), role_dsn(ROLE_API))
    made.enrol()
    yield made
    drop_all()
