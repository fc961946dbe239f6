"""Drives with faults as packets in log order, and what detection finds in them offline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg

from anomaly.deployed import DEPLOYED
from anomaly.excursions import TOLD
from anomaly.moments import SAMPLE
from anomaly.shard import Shard
from anomaly.types import Rows
from contracts.packet import Block
from stream_jobs.sinks.findings import finding_of
from tests.stream_jobs.build import T0, Device, Frame

WAIT_MS = 5_000
SECONDS_MS = (0, 1_000, 2_000, 3_000)
COOLANT, RPM, VOLTAGE, BEARING = 21, 20, 50, 1011
SHARD = Shard(DEPLOYED, WAIT_MS)
FOUND = """
SELECT finding_id, revision, deployment, device, (extract(epoch FROM opened_at) * 1000)::bigint,
    (extract(epoch FROM closed_at) * 1000)::bigint, score, observed, severity, readings
FROM findings ORDER BY finding_id"""


@dataclass(frozen=True, slots=True)
class Sent:
    """One packet: its frame and its readings as detection should see them."""

    device: Device
    frame: Frame
    samples: Rows


def drives(devices: Mapping[str, Device], seconds: int = 400, seed: int = 4, wild: bool = True) -> list[Sent]:
    """Each device: coolant every 5 s, voltage and engine speed every second; faults in the middle of some.

    ``wild``: packets change places within the watermark, every tenth is sent twice.
    """
    rng = np.random.default_rng(seed)
    sent: list[tuple[float, Sent]] = []
    for device in devices.values():
        for seq, first in enumerate(range(0, seconds, 4), 1):
            one = _packet(device, seq, first, rng)
            when = first + (float(rng.random() * 4) if wild else 0.0)
            sent.append((when, one))
            if wild and rng.random() < 0.1:
                sent.append((when + 0.5, one))
    return [one for _, one in sorted(sent, key=lambda pair: pair[0])]


def _packet(device: Device, seq: int, first: int, rng: np.random.Generator) -> Sent:
    hot = device.name == "car1" and 100 <= first < 260
    flat = device.name == "car2" and first >= 150
    coolant = [900 + 300 * hot + int(rng.integers(0, 9))]
    volts = [(1160 if flat else 1410) + int(rng.integers(0, 9)) for _ in range(4)]
    speed = [9_000 + int(rng.integers(0, 99)) for _ in range(4)]
    bearing = [1_200 + int(rng.integers(0, 9))]  # too hot for any machine, but no car has one
    blocks = [
        (Block(COOLANT, -1, 0, (0,), tuple(coolant)), 10),
        (Block(VOLTAGE, -2, 0, SECONDS_MS, tuple(volts)), 100),
        (Block(RPM, -1, 0, SECONDS_MS, tuple(speed)), 10),
        (Block(BEARING, -1, 0, (0,), tuple(bearing)), 10),
    ]
    base_ms = T0 + 1_000 * first + 137
    rows = [
        (device.key, 0, block.signal, base_ms + offset, 1, seq, 0, value / scale)
        for block, scale in blocks
        for offset, value in zip(block.offsets_ms, block.values, strict=True)
    ]
    samples = np.array(rows, SAMPLE)
    samples["pos"] = np.arange(len(rows))
    frame = device.packet(seq, *(block for block, _ in blocks), base_ms=base_ms)
    return Sent(device, (frame, device.stamp(base_ms + 5_000)), samples)


def offline(sent: list[Sent]) -> dict[str, tuple[Any, ...]]:
    """What one call in NumPy finds, by finding id; only of deployments that are for cars."""
    told = SHARD.run(SHARD.start(), np.concatenate([np.zeros(0, SAMPLE), *(one.samples for one in sent)])).told
    names = {one.device.key: one.device for one in sent}
    found = {}
    for row in told.view(TOLD):
        deployment = DEPLOYED[row["deployment"]]
        if "car" not in deployment.kinds:
            continue
        device = names[int(row["device"])]
        one = finding_of(deployment, row, device.name, device.tenant, device.name)
        found[one.id] = (
            one.id, one.revision, one.deployment, one.device, one.started_at_ms, one.closed_at_ms, one.score,
            one.observed, int(one.severity), one.readings,
        )  # fmt: skip
    return found


def stored(dsn: str) -> dict[str, tuple[Any, ...]]:
    """What lies in the store, in the same shape."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(FOUND).fetchall()
    return {row[0]: (*row[:4], *(None if at is None else int(at) for at in row[4:6]), *row[6:]) for row in rows}
