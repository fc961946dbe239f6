"""Packets straight into Kafka as the gateway would write them: for measuring Kafka to store alone.

Comes in: registered devices, a tape, a time range. Goes out: the untouched frame as value, the device as key, the
gateway's stamp as the only header, every delivery confirmed.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaException, Producer

from contracts.packet import Header, Lane
from contracts.registry import Registration
from contracts.stamp import STAMP_HEADER, Stamp, encode_stamp
from contracts.topics import Topics
from simulators.tape import Shape, record

TAPES, TAPE_PACKETS = 8, 60
IN_FLIGHT_KB = 65_536
FLUSH_S = 120.0
PRODUCER = {
    "acks": "all",
    "enable.idempotence": True,
    "compression.type": "zstd",
    "linger.ms": 5,
    "partitioner": "murmur2_random",
    "queue.buffering.max.kbytes": IN_FLIGHT_KB,
}


@dataclass(frozen=True, slots=True)
class Stamped:
    """One record ready for the log."""

    device: str
    frame: bytes
    stamp: bytes
    samples: int


def stamped_packets(
    devices: Sequence[Registration], shape: Shape, boot_epoch: int, start_ms: int, rounds: int
) -> Iterator[Stamped]:
    """``rounds`` packets of every device, in time order, received when their last sample was taken."""
    tapes = [record(seed, shape, TAPE_PACKETS) for seed in range(TAPES)]
    nonces = [secrets.randbits(62) + 1 for _ in devices]
    for turn in range(rounds):
        base_ms = start_ms + turn * shape.packet_ms
        received_ms = base_ms + shape.packet_ms
        for number, device in enumerate(devices):
            header = Header(
                device.tenant, device.device, boot_epoch, nonces[number], turn + 1, Lane.LIVE, base_ms,
                turn * shape.packet_ms, True, 0,
            )  # fmt: skip
            frame = tapes[number % TAPES].packet(header, number * 7 + turn)
            stamp = encode_stamp(Stamp(received_ms, device.device_key, device.tenant_id))
            yield Stamped(device.device, frame, stamp, shape.samples)


class KafkaLoad:
    """Writes stamped packets to the live topic and counts confirmed ones."""

    def __init__(self, bootstrap: str, topics: Topics) -> None:
        self._topic = topics.live.name
        self._producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER})
        self._errors: list[str] = []
        self.packets = 0
        self.samples = 0
        self.value_bytes = 0

    def write(self, packets: Iterator[Stamped]) -> None:
        """Return when Kafka has confirmed all of them. Raises KafkaException with the first error."""
        for packet in packets:
            self._produce(packet)
        self._producer.flush(FLUSH_S)
        if self._errors or len(self._producer):
            raise KafkaException(self._errors[0] if self._errors else f"not confirmed within {FLUSH_S:.0f} s")

    def _produce(self, packet: Stamped) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic, packet.frame, packet.device, headers=[(STAMP_HEADER, packet.stamp)],
                    on_delivery=partial(self._confirmed, packet.samples),
                )  # fmt: skip
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _confirmed(self, samples: int, error: Any, message: Any) -> None:
        if error is not None:
            self._errors.append(str(error))
            return
        self.packets += 1
        self.samples += samples
        self.value_bytes += len(message.value())
