"""The JSON of dead letters: what was set aside, what can be read of it, what was sent again."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from api.archived import samples_of
from api.letters import Opened
from api.queries.letters import write_id
from api.questions import from_ms
from api.shapes import AT, Shape, example, quality_name
from api.shapes_ledger import Aside
from contracts.packet import Block, DoubleBlock, Lane
from contracts.signals import catalogue
from contracts.stamp import FLAG_RECORDING, Stamp

READINGS_SHOWN = 500
LETTER_ID = "g-00000000000000000000000000000001-0-17"


class DeadLetter(Shape):
    """One message that was set aside. ``boot_epoch`` and ``seq`` null: they could not be read, or are another's."""

    model_config = example(
        id=LETTER_ID, kept_by="gateway", device="car-001", boot_epoch=3, seq=118, reason="future",
        detail="86400000 ms ahead of receipt", came_by="v1/car-001/up/live", received_at=AT, size_bytes=412,
        sent_again=False,
    )  # fmt: skip

    id: str
    kept_by: str = Field(description="gateway: refused; stream_job: quarantined")
    device: str
    boot_epoch: int | None
    seq: int | None
    reason: str
    detail: str
    came_by: str = Field(description="MQTT topic, or the Kafka topic of what the stream job set aside")
    received_at: datetime
    size_bytes: int
    sent_again: bool


class DeadLetters(Shape):
    """Counts of what the gateway refused, and a page of letters of both rooms, newest first."""

    as_of: datetime
    items: list[Aside]
    letters: list[DeadLetter] | None = Field(description="null: this key's role reads counts only")
    next: str | None


class LetterReading(Shape):
    """One reading of a packet that was set aside, as it says it itself."""

    signal: str
    measured_at: datetime | None = Field(description="null: the time is beyond any calendar")
    value: float | None
    unit: str
    quality: str


class LetterPacket(Shape):
    """What could be read of the bytes; null where nothing could."""

    fault: str = Field(description="what the frame itself is refused for; '': it is sound")
    tenant: str | None = None
    device: str | None = None
    boot_epoch: int | None = None
    seq: int | None = None
    lane: str | None = None
    clock_trusted: bool | None = None
    samples: int | None = None
    readings: list[LetterReading] = Field(default=[], description=f"the first {READINGS_SHOWN}")


class Resubmission(Shape):
    """One sending. ``rescued``: its own identity was taken, so it got one of an epoch reserved for what is rescued."""

    model_config = example(
        resubmission_id=1, device="car-001", boot_epoch=3, seq=118, rescued=False, shift_ms=0, samples=20,
        sent_to="live", sha256="9f" * 32, stored=False, asked_by="key:0a1b2c3d4e5f6071", asked_at=AT,
    )  # fmt: skip

    resubmission_id: int
    device: str
    boot_epoch: int
    seq: int
    rescued: bool
    shift_ms: int
    samples: int
    sent_to: str
    sha256: str
    stored: bool
    asked_by: str
    asked_at: datetime


class WholeLetter(Shape):
    """A letter with its bytes, what they say, and what was sent of it. ``obstacle`` null: it can be sent as it is."""

    letter: DeadLetter
    bytes_hex: str = Field(description="empty for a crash record's: it can be sent again, and is read through custody")
    packet: LetterPacket
    obstacle: str | None
    resubmissions: list[Resubmission]


class RepairRequest(Shape):
    """How it is to be repaired. ``shift_ms`` is added to every time of the packet (a clock that was wrong)."""

    model_config = example(shift_ms=-31_536_000_000, take_over=False)

    shift_ms: int = Field(default=0, ge=-(2**53), le=2**53)
    take_over: bool = Field(default=False, description="the packet names another tenant: it is ours")


class Resubmitted(Shape):
    """``sent`` false: the store has it already. A second sending of the same letter is stored once."""

    sent: bool
    resubmissions: list[Resubmission]


def shown(opened: Opened) -> LetterPacket:
    """What could be read."""
    header = opened.header
    if header is None:
        return LetterPacket(fault=opened.fault)
    readings = []
    if opened.packet is not None:
        blocks: tuple[Block | DoubleBlock, ...] = (*opened.packet.blocks, *opened.packet.doubles)
        for number in dict.fromkeys(block.signal for block in blocks):
            signal = catalogue().by_number(number)
            readings += [
                LetterReading(
                    signal=signal.path, measured_at=_moment(one.ms), value=one.value, unit=signal.unit,
                    quality=quality_name(one.quality),
                )
                for one in samples_of(opened.packet, Stamp(header.base_ms, 0, 0, FLAG_RECORDING), number)
            ]  # fmt: skip
            if len(readings) >= READINGS_SHOWN:
                break
    return LetterPacket(
        fault=opened.fault, tenant=header.tenant, device=header.device, boot_epoch=header.boot_epoch, seq=header.seq,
        lane=Lane(header.lane).name.lower(), clock_trusted=header.clock_trusted, samples=header.samples,
        readings=readings[:READINGS_SHOWN],
    )  # fmt: skip


def _moment(ms: int) -> datetime | None:
    try:
        return from_ms(ms)
    except OverflowError:
        return None


def letter_shape(row: dict[str, Any]) -> DeadLetter:
    fields = {name: row[name] for name in DeadLetter.model_fields if name != "id"}
    return DeadLetter(id=write_id(row), **fields)
