"""Do the agents' accounts, the log and the store agree? Verdicts per device and per partition; pure.

Three witnesses: the newest heartbeat of each device (what it accepted and still holds), Kafka (which offsets each
partition holds), the store (how far each consumer has come, which numbers it calls seen, which rows it holds). A
difference is *explained* when one of them says where the rest is: on the device, in the log and not taken yet, dropped
or set aside with a reason. Everything else is not, and is named with its numbers or offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from contracts.ranges import Range, count, meet, ranges_of, without

Ranges = tuple[Range, ...]
IN_STEP = "in_step"

EXPLAINED = {
    IN_STEP: "all three agree",
    "behind": "records that the log holds and this consumer has not taken yet",
    "held_by_device": "accepted, and still in the device's spool",
    "under_way": "left the device or just arrived; the log is not taken to its end yet",
    "not_told": "missing, and the agent does not say what it holds; not older than the limit",
    "dropped": "the agent dropped them and said so",
}
UNEXPLAINED = {
    "confirmed_not_stored": "the device was told that they are safe, the log is taken to its end, they are not stored",
    "overdue": "missing for longer than the limit, and the agent does not say what it holds",
    "rows_missing": "the ledger calls them stored, but there are no rows and retention did not take them",
    "rows_doubled": "stored more than once",
    "rows_not_in_ledger": "rows whose numbers the ledger does not hold: a repeat would be stored again",
    "ledger_count": "the ledger's ranges and its count of packets differ: a range was cut out or put in",
    "drops_too_wide": "reported as dropped in wider ranges than packets: some of them may hide a loss",
    "removed_before_stored": "the log no longer holds records that the store has not taken",
    "removed_before_archived": "the log no longer holds records that the archive has not written",
    "ahead_of_log": "the consumer's offset lies beyond the end of the log",
    "skipped": "records below the consumer's offset that it neither stored nor set aside",
    "not_in_log": "confirmed to the device, missing, and no record of the log carries them",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line: who (a device's boot epoch or a topic's partition), what, how many, which."""

    scope: str
    name: str
    part: int
    verdict: str
    packets: int = 0
    ranges: Ranges = ()
    detail: str = ""

    @property
    def explained(self) -> bool:
        return self.verdict in EXPLAINED


@dataclass(frozen=True, slots=True)
class Partition:
    """``begin`` and ``end`` as Kafka says; offsets of consumers are None when they have never taken anything."""

    topic: str
    number: int
    begin: int
    end: int
    takers: tuple[tuple[str, int | None], ...]
    """(consumer, its next offset)"""


@dataclass(frozen=True, slots=True)
class Epoch:
    """What the store says of one boot epoch of a device, read in one snapshot."""

    device: str
    boot_epoch: int
    missing: Ranges = ()
    on_its_way: Ranges | None = ()
    """Missing and no longer held by the device; None: the agent does not say what it holds."""
    overdue: Ranges = ()
    dropped: Ranges = ()
    dropped_reported: int = 0
    in_doubt: bool = False
    """A damaged spool put a whole range in doubt: its packets were never counted."""
    seen: Ranges = ()
    seen_packets: int = 0
    nonce: int | None = None
    expired: Ranges = ()
    rows: Ranges = ()
    doubled: Ranges = ()


@dataclass(frozen=True, slots=True)
class Logged:
    """What a whole recount of the log found for one boot epoch; ``whole``: nothing was trimmed from its topics."""

    numbers: Ranges
    whole: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The row set. ``caught_up``: the store had taken all that the log held when it was asked."""

    as_of_ms: int
    deep: bool
    caught_up: bool
    verdicts: tuple[Verdict, ...] = field(default_factory=tuple)

    @property
    def unexplained(self) -> int:
        return sum(not one.explained for one in self.verdicts)


def judge_partition(one: Partition) -> list[Verdict]:
    """Offsets against the log; consumers that take nothing from the topic are not among ``takers``."""
    found = [verdict for taker in one.takers if (verdict := _judge_taker(one, *taker)) is not None]
    return found or [Verdict("partition", one.topic, one.number, IN_STEP, detail=f"offsets {one.begin} to {one.end}")]


def _judge_taker(one: Partition, consumer: str, next_offset: int | None) -> Verdict | None:
    taken = next_offset or 0
    if taken < one.begin:
        verdict = "removed_before_archived" if consumer == "archive" else "removed_before_stored"
        ranges = ((taken, one.begin - 1),)
    elif taken > one.end:
        verdict, ranges = "ahead_of_log", ((one.end, taken - 1),)
    elif taken < one.end:
        verdict, ranges = "behind", ((taken, one.end - 1),)
    else:
        return None
    detail = f"{consumer}: next offset {taken}, the log holds {one.begin} to {one.end}"
    return Verdict("partition", one.topic, one.number, verdict, count(ranges), ranges, detail)


def judge_epoch(now: Epoch, before: Epoch | None, caught_up: bool, logged: Logged | None = None) -> list[Verdict]:
    """``before``: the same epoch before Kafka was asked. What the device let go of by then was in the log, so it must
    be stored by ``now`` if the store has caught up; what came later is under way."""
    found = _rows_against_ledger(now)
    held = without(now.missing, now.on_its_way) if now.on_its_way is not None else ()
    let_go = now.on_its_way if now.on_its_way is not None else ()
    settled = meet(let_go, before.on_its_way or ()) if before is not None and caught_up else ()
    if logged is not None and logged.whole:
        nowhere = without(settled, logged.numbers)
        found += _some(now, "not_in_log", nowhere)
        settled = without(settled, nowhere)
    found += _some(now, "confirmed_not_stored", settled)
    found += _some(now, "held_by_device", held)
    found += _some(now, "under_way", without(let_go, _named(found, "confirmed_not_stored", "not_in_log")))
    if now.on_its_way is None:
        found += _some(now, "overdue", meet(now.missing, now.overdue))
        found += _some(now, "not_told", without(now.missing, now.overdue))
    if not now.in_doubt and count(now.dropped) > now.dropped_reported:
        hidden = count(now.dropped) - now.dropped_reported
        found.append(_verdict(now, "drops_too_wide", now.dropped, f"{now.dropped_reported} reported", hidden))
    else:
        found += _some(now, "dropped", now.dropped)
    return found or [_verdict(now, IN_STEP, (), f"{now.seen_packets} stored")]


def _rows_against_ledger(now: Epoch) -> list[Verdict]:
    found = _some(now, "rows_missing", without(without(now.seen, now.rows), now.expired))
    found += _some(now, "rows_not_in_ledger", without(now.rows, now.seen))
    found += _some(now, "rows_doubled", now.doubled)
    if count(now.seen) != now.seen_packets:
        off = abs(count(now.seen) - now.seen_packets)
        detail = f"the ranges hold {count(now.seen)} numbers, {now.seen_packets} packets were stored"
        found.append(_verdict(now, "ledger_count", (), detail, off))
    return found


def judge_skipped(topic: str, partition: int, offsets: Iterable[int], examples: Sequence[str]) -> list[Verdict]:
    """Records of the log that a consumer passed over."""
    ranges = ranges_of(offsets)
    if not ranges:
        return []
    return [Verdict("partition", topic, partition, "skipped", count(ranges), ranges, "; ".join(examples))]


def _some(epoch: Epoch, verdict: str, ranges: Ranges) -> list[Verdict]:
    return [_verdict(epoch, verdict, ranges)] if ranges else []


def _verdict(epoch: Epoch, verdict: str, ranges: Ranges, detail: str = "", packets: int | None = None) -> Verdict:
    many = count(ranges) if packets is None else packets
    return Verdict("device", epoch.device, epoch.boot_epoch, verdict, many, ranges, detail)


def _named(found: Iterable[Verdict], *verdicts: str) -> list[Range]:
    return [one for verdict in found if verdict.verdict in verdicts for one in verdict.ranges]
