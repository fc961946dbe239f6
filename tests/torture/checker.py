"""The judge: what devices accepted and were promised, against what the log and the store hold. Pure.

I1 nothing accepted is missing unless a reported drop covers it. I2 one row per identity, with the bytes that were
accepted. I3 a device's order can be rebuilt: within an epoch the device's monotonic clock never runs back from one
number to the next, and all copies of a packet lie in one partition. I4 what was acknowledged is in the log and in the
store. I6 nothing of one device or tenant stands under another. I7 each bad input is set aside with a reason. What the
store shows is what the bytes say, and the ledger tells what the rows are. I5 (lag
returns to 0 in time) is decided by the run itself, which ends only there. Every rule works on hashes as well as on
numbers, so that a clone's packets (same numbers, other bytes) are told apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from tests.torture.history import DeviceRun, Identity, Numbered

CONFLICT = "identity_conflict"
TOLERANCE: Final = 1e-9
"""Of a sum of doubles that two machines add in different orders, relative."""
PARTLY = "samples"
"""Reason under which single samples are set aside while their packet is stored."""
OWN_REASONS = frozenset({CONFLICT, PARTLY, "future", "far_past"})
"""Why a packet of an honest agent may be set aside: it was cloned, or its clock was wrong."""


@dataclass(frozen=True, slots=True)
class Content:
    """Samples of a packet and the sum of their values, each in its signal's unit."""

    samples: int
    total: float


NOTHING: Final = Content(0, 0.0)


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One packet as it lies in Kafka."""

    place: tuple[str, int]
    """Topic and partition."""
    numbered: Numbered
    mono_ms: int
    sha256: str
    offset: int = 0
    content: Content = NOTHING
    """What its bytes say, decoded by the harness."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """One row of the dead letters or of the quarantine; ``samples`` of those that are set aside one by one."""

    device: str
    reason: str
    sha256: str
    samples: int = 0


@dataclass(frozen=True, slots=True)
class StoredRow:
    """One row of packets."""

    identity: Identity
    tenant: str
    sha256: str
    content: Content = NOTHING
    """What the view of readings shows of it."""


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """What the ledger tells of a device's epoch; ``missing`` are ranges, last number included."""

    device: str
    boot_epoch: int
    stored_packets: int
    missing: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that the judge is shown. ``gaps``: (device, epoch, first, last) reported dropped by agents."""

    tenants: Mapping[str, str]
    accepted: Mapping[Identity, frozenset[str]]
    moved: frozenset[str]
    """SHA-256 of packets that were accepted under an identity which their device gave up for another one."""
    acked: frozenset[Numbered]
    rejected: frozenset[Numbered]
    poison: Mapping[str, str]
    """SHA-256 of each bad input to its name."""
    promised: frozenset[tuple[str, str]]
    """(device, SHA-256) of publishes that a gateway PUBACKed; of devices below the rate limit only."""
    out_of_order: tuple[str, ...]
    log: tuple[LogRecord, ...]
    letters: frozenset[str]
    """SHA-256 of what lies in the topics of dead letters and of answers: a clone that learns what it is answers so."""
    stored: tuple[StoredRow, ...]
    gaps: tuple[tuple[str, int, int, int], ...]
    aside: tuple[SetAside, ...]
    windows_wrong: tuple[str, ...] = ()
    heartbeats: Mapping[str, DeviceRun] = field(default_factory=dict)
    """SHA-256 of each heartbeat that a device sent, to the run that it says is its own."""
    movers: frozenset[str] = frozenset()
    """Devices that gave up an identity: under the new epoch their old packets keep the times of their own."""
    taken: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Topic and partition to the offset below which the store says that it has everything."""
    ledger: tuple[LedgerRow, ...] = ()
    latest_wrong: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Each field lists offenders, readable; all empty is innocence. See the module for the rules."""

    lost: tuple[str, ...]
    skipped: tuple[str, ...]
    doubled: tuple[str, ...]
    wrong_device: tuple[str, ...]
    acked_not_in_log: tuple[str, ...]
    acked_not_stored: tuple[str, ...]
    altered: tuple[str, ...]
    foreign: tuple[str, ...]
    promised_not_in_log: tuple[str, ...]
    puback_order: tuple[str, ...]
    order: tuple[str, ...]
    poison: tuple[str, ...]
    aside_unknown: tuple[str, ...]
    windows: tuple[str, ...]
    values: tuple[str, ...]
    ledger: tuple[str, ...]
    latest: tuple[str, ...]

    @property
    def innocent(self) -> bool:
        return not any(getattr(self, one.name) for one in fields(self))

    @property
    def unexplained(self) -> int:
        """Offences that have no count of their own in the summary."""
        named = {"lost", "skipped", "doubled", "wrong_device", "acked_not_stored", "acked_not_in_log"}
        return sum(len(getattr(self, one.name)) for one in fields(self) if one.name not in named)


def judge(case: Case) -> Verdict:
    """Decide every invariant."""
    rows = {(row.identity, row.sha256) for row in case.stored}
    aside = {(one.device, one.sha256) for one in case.aside if one.reason != PARTLY}
    return Verdict(
        lost=_sorted(_lost(case, rows, aside)),
        skipped=_sorted(_skipped(case, rows, aside)),
        doubled=_sorted(_doubled(case)),
        wrong_device=_sorted(_wrong_device(case)),
        acked_not_in_log=_sorted(_acked_not_in_log(case)),
        acked_not_stored=_sorted(_acked_not_stored(case, rows, aside)),
        altered=_sorted(
            f"{row.identity} has other bytes than were accepted"
            for row in case.stored
            if row.identity in case.accepted and row.sha256 not in case.accepted[row.identity]
        ),
        foreign=_sorted(
            f"{row.identity} was never accepted"
            for row in case.stored
            if row.identity[0] in case.tenants and row.identity not in case.accepted
        ),
        promised_not_in_log=_sorted(_promised_not_in_log(case)),
        puback_order=case.out_of_order,
        order=_sorted(_disorder(case)),
        poison=_sorted(_poison(case)),
        aside_unknown=_sorted(_aside_unknown(case)),
        windows=case.windows_wrong,
        values=_sorted(_values(case)),
        ledger=_sorted(_ledger(case, aside)),
        latest=case.latest_wrong,
    )


def _sorted(found: object) -> tuple[str, ...]:
    return tuple(sorted(map(str, found)))  # type: ignore[call-overload]


def _lost(case: Case, rows: set[tuple[Identity, str]], aside: set[tuple[str, str]]) -> list[str]:
    """I1."""
    dropped = _dropped(case)
    return [
        f"{identity} {digest[:12]}"
        for identity, digests in case.accepted.items()
        for digest in digests
        if (identity, digest) not in rows and (identity[0], digest) not in aside and not _in(identity, dropped)
    ]


def _skipped(case: Case, rows: set[tuple[Identity, str]], aside: set[tuple[str, str]]) -> list[str]:
    """I1 between log and store: what lies below the store's own offset is in the store, whoever sent it."""
    return [
        f"{record.place} offset {record.offset}: {record.numbered}"
        for record in case.log
        if record.offset < case.taken.get(record.place, 0)
        and ((record.numbered[0], record.numbered[1], record.numbered[3]), record.sha256) not in rows
        and (record.numbered[0], record.sha256) not in aside
    ]


def _dropped(case: Case) -> Mapping[tuple[str, int], list[tuple[int, int]]]:
    gaps: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for device, epoch, first, last in case.gaps:
        gaps[device, epoch].append((first, last))
    return gaps


def _in(identity: Identity, dropped: Mapping[tuple[str, int], list[tuple[int, int]]]) -> bool:
    return any(first <= identity[2] <= last for first, last in dropped.get(identity[:2], ()))


def _doubled(case: Case) -> list[str]:
    """I2: also two different packets stored under one identity."""
    times = Counter(row.identity for row in case.stored)
    return [f"{identity} is stored {n} times" for identity, n in times.items() if n > 1]


def _values(case: Case) -> list[str]:
    """I2 beyond hashes, which the store only copies: readings shown against the log's bytes."""
    said = {record.sha256: record.content for record in case.log}
    without = Counter[str]()
    for one in case.aside:
        if one.reason == PARTLY:
            without[one.sha256] += one.samples
    found = []
    for row in case.stored:
        if row.sha256 not in said:
            continue  # altered or foreign
        wanted, left_out = said[row.sha256], without[row.sha256]
        near = TOLERANCE * max(1.0, abs(wanted.total))
        same = left_out > 0 or abs(row.content.total - wanted.total) <= near
        if row.content.samples != wanted.samples - left_out or not same:
            found.append(f"{row.identity} shows {row.content}, its bytes say {wanted}, {left_out} samples set aside")
    return found


def _ledger(case: Case, aside: set[tuple[str, str]]) -> list[str]:
    """What the ledger counts as stored is stored, and it misses nothing that is accounted for.

    A clone's packet in quarantine accounts for nothing: the ledger must not take it for the packet of that number.
    """
    stored = Counter(row.identity[:2] for row in case.stored)
    whole = {row.identity for row in case.stored}
    clones = {(one.device, one.sha256) for one in case.aside if one.reason == CONFLICT}
    whole |= {
        one for one, digests in case.accepted.items() if any((one[0], digest) in aside - clones for digest in digests)
    }
    dropped = _dropped(case)
    found = [
        f"{row.device} epoch {row.boot_epoch}: the ledger counts {row.stored_packets} stored, there are "
        f"{stored[row.device, row.boot_epoch]}"
        for row in case.ledger
        if row.stored_packets != stored[row.device, row.boot_epoch]
    ]
    told = {(row.device, row.boot_epoch) for row in case.ledger}
    found += [f"{key} has {n} packets and no row in the ledger" for key, n in stored.items() if key not in told]
    for row in case.ledger:
        for first, last in row.missing:
            lied = [
                seq
                for device, epoch, seq in whole
                if (device, epoch) == (row.device, row.boot_epoch) and first <= seq <= last
            ]
            lied += [seq for seq in range(first, last + 1) if _in((row.device, row.boot_epoch, seq), dropped)]
            found += [f"{row.device} epoch {row.boot_epoch}: the ledger misses {seq}, which is there" for seq in lied]
    return found


def _wrong_device(case: Case) -> list[str]:
    """I6."""
    owners = {digest: identity[0] for identity, digests in case.accepted.items() for digest in digests}
    return [
        f"{row.identity} of tenant {row.tenant} holds bytes of {owners.get(row.sha256, row.identity[0])}"
        for row in case.stored
        if owners.get(row.sha256, row.identity[0]) != row.identity[0]
        or case.tenants.get(row.identity[0], row.tenant) != row.tenant
    ]


def _acked_not_in_log(case: Case) -> list[str]:
    """I4: a confirmation is only true when the log has a packet of this very nonce, a rejection needs a letter."""
    held = {record.numbered for record in case.log}
    return [f"{numbered} was confirmed and is not in the log" for numbered in case.acked - held]


def _acked_not_stored(case: Case, rows: set[tuple[Identity, str]], aside: set[tuple[str, str]]) -> list[str]:
    """I4, one step on: in the log is not yet in the store. Rejected ones are in the store as dead letters."""
    digests = {record.numbered: record.sha256 for record in case.log}
    found = []
    for numbered in case.acked:
        identity, digest = (numbered[0], numbered[1], numbered[3]), digests.get(numbered)
        if digest is None or ((identity, digest) not in rows and (numbered[0], digest) not in aside):
            found.append(f"{numbered} was confirmed and is not in the store")
    for numbered in case.rejected:
        identity = (numbered[0], numbered[1], numbered[3])
        if not any((numbered[0], digest) in aside for digest in case.accepted.get(identity, ())):
            found.append(f"{numbered} was rejected and is not among the dead letters")
    return found


def _promised_not_in_log(case: Case) -> list[str]:
    """The broker forgets what is PUBACKed; so the log must have it first."""
    held = {record.sha256 for record in case.log} | case.letters
    return [f"{device} {digest[:12]}" for device, digest in case.promised if digest not in held]


def _disorder(case: Case) -> list[str]:
    """I3."""
    found: list[str] = []
    runs: defaultdict[tuple[str, int, int], dict[int, int]] = defaultdict(dict)
    places: dict[tuple[Numbered, str], tuple[str, int]] = {}
    for record in case.log:
        place = places.setdefault((record.numbered, record.sha256), record.place)
        if place != record.place:
            found.append(f"copies of {record.numbered} lie in {place} and in {record.place}")
        runs[record.numbered[:3]][record.numbered[3]] = record.mono_ms
    for run, clock in runs.items():
        times = [clock[seq] for seq in sorted(clock)]
        if times != sorted(times) and not (run[0] in case.movers and _moved_among(times)):
            found.append(f"numbers of {run} do not follow the device's monotonic clock")
    return found


def _moved_among(times: list[int]) -> bool:
    """Whether these are two rows of rising times, all of one before all of the other: old packets among new ones."""
    for cut in set(times):
        old, new = [one for one in times if one < cut], [one for one in times if one >= cut]
        if old == sorted(old) and new == sorted(new):
            return True
    return False


def _poison(case: Case) -> list[str]:
    """I7: there, and with a reason."""
    aside = {one.sha256 for one in case.aside if one.reason}
    return [f"{name} left no trace" for digest, name in case.poison.items() if digest not in aside]


def _aside_unknown(case: Case) -> list[str]:
    """Nothing is set aside that nobody sent, and what is a device's own has a cause: its clock, or its clone.

    A heartbeat has one cause only: another run of that device is or was under the same epoch. While the store has not
    said whose it is, each gateway worker believes the run that it heard first, so the owner's may be refused as well.
    """
    sent = {digest for digests in case.accepted.values() for digest in digests} | case.moved
    runs = _runs(case)

    def explained(one: SetAside) -> bool:
        if one.sha256 not in case.heartbeats:
            return one.sha256 in case.poison or (one.sha256 in sent and one.reason in OWN_REASONS)
        device, epoch, nonce = case.heartbeats[one.sha256]
        return one.reason == CONFLICT and one.device == device and bool(runs[device, epoch] - {nonce})

    return [f"{one.device} {one.reason} {one.sha256[:12]}" for one in case.aside if not explained(one)]


def _runs(case: Case) -> Mapping[tuple[str, int], set[int]]:
    """Device and epoch to the nonces that were heard under them."""
    runs: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    for device, epoch, nonce in (*(record.numbered[:3] for record in case.log), *case.heartbeats.values()):
        runs[device, epoch].add(nonce)
    return runs
