"""Letters as the line sets them aside, and the line's way back: the sink takes what the outbox holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg
import pytest

from contracts.packet import Block, Header, Packet, encode_packet
from contracts.stamp import DeadLetter, Stamp, encode_dead_letter, encode_stamp
from stream_jobs.sinks.connection import drop_all
from stream_jobs.sinks.tasks import store_partition
from tests.api.fix_api import SPEED, Fleet, ms_of
from tests.stream_jobs.build import DEAD, LIVE, Record, table, target


@dataclass
class Post:
    """Writes letters through the sink and carries the outbox back to it, as the relay and the log would."""

    fleet: Fleet
    offsets: dict[str, int] = field(default_factory=dict)
    carried: int = 0

    def frame(self, at: datetime, seq: int, *values: int, device: str = "north-1", **header: Any) -> bytes:
        """A packet of speeds, 100 ms apart, in hundredths of km/h."""
        told = {
            "tenant": "north", "device": device, "boot_epoch": 1, "nonce": 77, "seq": seq, "lane": 0, "mono_ms": 5,
            "base_ms": ms_of(at), "clock_trusted": True, "samples": len(values), **header,
        }  # fmt: skip
        block = Block(SPEED.number, -2, 0, tuple(100 * n for n in range(len(values))), values)
        return encode_packet(Packet(Header(**told), (block,)))

    def arrive(self, frame: bytes, received: datetime, device: str = "north-1") -> None:
        """The gateway accepted it and the sink takes it."""
        stamp = Stamp(ms_of(received), self.fleet.devices[device], self.fleet.tenant_of(device))
        self._store(LIVE, frame, encode_stamp(stamp))

    def refuse(self, frame: bytes, received: datetime, reason: str, device: str = "north-1", seq: int = 0) -> str:
        """The gateway refused it; the id of its letter."""
        topic = f"v1/{device}/up/live"
        letter = DeadLetter(
            reason, "", topic, device, ms_of(received), self.fleet.tenant_of(device), 1 if seq else 0, seq
        )
        return f"g-{4:032x}-0-{self._store(DEAD, frame, encode_dead_letter(letter))}"

    def carry(self) -> int:
        """Everything that waits in the outbox for the lanes goes through the sink; how many packets."""
        with psycopg.connect(self.fleet.dsn) as connection:
            rows = connection.execute(
                "SELECT outbox_id, kafka_value, stamp FROM outbox WHERE topic = 'live' AND outbox_id > %s ORDER BY 1",
                (self.carried,),
            ).fetchall()
        for outbox_id, value, stamp in rows:
            self._store(LIVE, bytes(value), bytes(stamp))
            self.carried = outbox_id
        return len(rows)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.fleet.dsn) as connection:
            return connection.execute(statement.encode()).fetchall()

    def _store(self, topic: str, value: bytes, header: bytes) -> int:
        offset = self.offsets[topic] = self.offsets.get(topic, -1) + 1
        records = [Record(value, header, offset, topic)]
        store_partition(target(self.fleet.sink_dsn, 1 << 20), table(records).to_batches())
        return offset


@pytest.fixture
def post(fleet: Fleet) -> Iterator[Post]:
    yield Post(fleet)
    drop_all()
