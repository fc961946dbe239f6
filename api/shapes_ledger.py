"""The JSON of the delivery ledger: packets by identity, what agents dropped, holes that stayed, what was set aside.

Null means that nobody has said it; zero is only told when it is known to be zero. Ages are in milliseconds.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from api.shapes import AT, Shape, example


class SeqRange(Shape):
    """Sequence numbers, both ends inclusive."""

    first: int
    last: int


class LedgerRow(Shape):
    """What became of one boot epoch's packets. ``missing``: accepted by the agent, not accounted for yet."""

    model_config = example(
        device="car-001", boot_epoch=3, accepted_packets=120, accepted_samples=2400, confirmed_packets=119,
        held_packets=1, stored_packets=118, stored_samples=2360, evidence_packets=0, duplicates_suppressed=2,
        dropped_packets=0, dropped_samples=0, quarantined_packets=0, dead_lettered_packets=0, missing_packets=2,
        missing=[{"first": 119, "last": 120}], on_its_way_packets=1, not_accepted_samples=0, oldest_unacked_ms=800,
        oldest_waiting_ms=2300, reported_at=AT, heard_at=AT,
    )  # fmt: skip

    device: str
    boot_epoch: int
    accepted_packets: int = Field(description="at least, while reported_at is null")
    accepted_samples: int | None
    confirmed_packets: int | None = Field(
        description="told to the device as safe, as of heard_at; null: the agent does not say"
    )
    held_packets: int | None = Field(description="still in the device's spool, as of heard_at; null: it does not say")
    stored_packets: int
    stored_samples: int
    evidence_packets: int = Field(description="crash records and their pieces, stored apart from readings")
    duplicates_suppressed: int
    dropped_packets: int = Field(description="by number: reported as dropped and nowhere else; see /ledger/drops")
    dropped_samples: int
    quarantined_packets: int
    dead_lettered_packets: int
    missing_packets: int
    missing: list[SeqRange] = Field(description="the first 20 ranges; on their way, or lost if they stay")
    on_its_way_packets: int | None = Field(description="missing and not held by the device; null: it does not say")
    not_accepted_samples: int | None = Field(
        description="samples that never got into the spool, since it was made; told with the newest boot epoch"
    )
    oldest_unacked_ms: int | None = Field(description="as the agent said it at reported_at; null: none, or unknown")
    oldest_waiting_ms: int | None = Field(description="the same, as old as it would be now; newest boot epoch only")
    reported_at: datetime | None = Field(description="when the agent last told its own account; null: never")
    heard_at: datetime | None = Field(description="when the device last told any account; null: never")


class LedgerTotals(Shape):
    """Sums over all devices of the tenant; packets unless named samples. Null: no device has said it."""

    devices: int
    accepted_packets: int
    accepted_samples: int | None
    confirmed_packets: int | None
    held_packets: int | None
    stored_packets: int
    stored_samples: int
    evidence_packets: int
    duplicates_suppressed: int
    dropped_packets: int
    quarantined_packets: int
    dead_lettered_packets: int
    missing_packets: int
    not_accepted_samples: int | None
    open_gaps: int = Field(description="holes older than the limit")
    oldest_waiting_ms: int | None


class Ledger(Shape):
    """A page of the ledger with the totals of the whole."""

    as_of: datetime
    totals: LedgerTotals
    items: list[LedgerRow]
    next: str | None


class Drop(Shape):
    """A range of packets that an agent accepted and dropped, as it reported it. ``packets`` null: it cannot know."""

    model_config = example(
        device="car-001", boot_epoch=3, first_seq=17, last_seq=40, reason="spool_bytes", **{"class": "bulk"},
        packets=24, samples=480, reported_at=AT,
    )  # fmt: skip

    device: str
    boot_epoch: int
    first_seq: int
    last_seq: int
    reason: str
    retention_class: str = Field(alias="class")
    packets: int | None
    samples: int | None
    reported_at: datetime


class Drops(Shape):
    """A page of dropped ranges."""

    as_of: datetime
    items: list[Drop]
    next: str | None


class LedgerGap(Shape):
    """A hole in the ledger that was seen more than once; ``since`` is when it was first seen.

    ``waiting``: younger than the limit; ``open``: older, and told on the events topic; ``closed``: all of it is stored
    now; ``explained``: what is not stored was dropped or set aside with a reason.
    """

    model_config = example(
        gap_id=5, device="car-001", boot_epoch=3, state="open", missing_packets=3, first_seq=17, last_seq=19, since=AT,
        opened_at=AT, ended_at=None,
    )  # fmt: skip

    gap_id: int
    device: str
    boot_epoch: int
    state: str
    missing_packets: int
    first_seq: int
    last_seq: int
    since: datetime
    opened_at: datetime | None
    ended_at: datetime | None


class LedgerGaps(Shape):
    """A page of holes, newest first."""

    as_of: datetime
    items: list[LedgerGap]
    next: str | None


class Aside(Shape):
    """How much was set aside for one reason; bytes are kept. ``samples`` null: they were not counted."""

    model_config = example(
        reason="bad_crc", packets=3, samples=None, bytes=2048, first_received_at=AT, last_received_at=AT
    )

    reason: str
    packets: int
    samples: int | None
    bytes: int
    first_received_at: datetime | None
    last_received_at: datetime | None


class SetAside(Shape):
    """Counts by reason."""

    as_of: datetime
    items: list[Aside]
