"""Packets, registrations and statuses for the gateway's tests."""

from __future__ import annotations

from contracts.packet import Block, Header, Packet, encode_packet
from contracts.registry import Registration
from contracts.status import AgentStatus

NOW_MS = 1_790_000_000_000
NONCE = 0x1234_5678_9ABC_DEF


def registration(
    device: str = "car-1", key: int = 7, tenant: str = "acme", tenant_id: int = 3, kind: str = "device"
) -> Registration:
    return Registration(device, key, tenant, tenant_id, kind)


def packet(
    device: str = "car-1",
    seq: int = 1,
    *,
    tenant: str = "acme",
    epoch: int = 1,
    nonce: int = NONCE,
    lane: int = 0,
    base_ms: int = NOW_MS,
    samples: int = 5,
) -> Packet:
    """A sound packet of one block."""
    block = Block(1, -2, 100, tuple(range(samples)), tuple(range(samples)))
    return Packet(Header(tenant, device, epoch, nonce, seq, lane, base_ms, 1_000, True, samples), (block,))


def frame(device: str = "car-1", seq: int = 1, **fields: int | str) -> bytes:
    return encode_packet(packet(device, seq, **fields))  # type: ignore[arg-type]


def status(device: str = "car-1") -> AgentStatus:
    return AgentStatus(device, 1, NONCE, NOW_MS, 10, 100, 5, 0, 0, 0, 4, 4_000, 1_000, 0, 9_000, "0.1.0")
