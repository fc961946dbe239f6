"""The recorder's place in the agent: feeds it in every tick, says what is to be sent, obeys receipts.

    trigger  ->  linkage on disk  ->  notice and linkage into the spool      (within the tick)
    sealed   ->  capsule on disk  ->  capsule, then raw motion, into the spool
    receipt  ->  the device's own copy may go

Everything is on disk before any of it travels. What has no receipt is put into the spool again when the spool no longer
holds it (the gateway has acknowledged it, or the spool was lost) and its waiting time has passed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from contracts.commands import Command
from contracts.edr.record import Source
from contracts.edr.wire import Kind, Linkage, Message, Notice, encode_body, open_parcel, read_receipt, receipted_sha256
from contracts.errors import FleetstreamError, Rejected
from contracts.packet import Lane, is_parcel
from contracts.signals import Retention
from edge_agent.packing import Draft
from edge_agent.recorder.capture import Triggered
from edge_agent.recorder.feed import MOTION, RESTRAINT, CrashSource, ReadingTap, Sample
from edge_agent.recorder.keeping import Keeping, Waiting
from edge_agent.recorder.recorder import CrashRecorder, Sealed
from edge_agent.recorder.settings import RecorderSettings
from edge_agent.sources.base import Reading
from edge_agent.spool import Spool
from edge_agent.spool_model import Stored

log = logging.getLogger(__name__)
SAMPLES_PER_TICK: Final = 4_000
MAX_NOTICES: Final = 16
PACKETS_AT_ONCE: Final = 50
AHEAD_US: Final = 20_000
"""A stamp may lie this far ahead of the clock that was read before: a sensor's own timer and a rounded millisecond."""

LONGEST_WAIT_MS: Final = 3_600_000
E7: Final = 10_000_000

Holds = Callable[[int], bool]
"""Whether the spool still holds the packet of this identity."""


class CrashPost:
    """One per agent, used by its thread. Times: ``mono_ms`` monotonic, ``now_ms`` Unix epoch."""

    def __init__(
        self, settings: RecorderSettings, keeping: Keeping, restraints: frozenset[str],
        source: CrashSource | None, tap: ReadingTap,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._keeping = keeping
        self._recorder: CrashRecorder = keeping.recorder
        self._restraints = restraints
        self._source, self._tap = source, tap
        self._notices: list[Message] = []
        self.strange_receipts = 0
        self.ahead = 0
        """Samples refused because their stamp lay ahead of the device's clock."""
        self.not_kept = 0
        """Linkages that the disk refused; they were sent from memory."""

    def booted(self, spool: Spool) -> None:
        """The spool is open: its epoch, and which copies of ours it holds from before."""
        self._recorder.booted(spool.epoch.boot_epoch)
        after_id = 0
        while packets := spool.next(Lane.PRIORITY, after_id, PACKETS_AT_ONCE):
            self.stored(packets)
            after_id = packets[-1].identity

    def watch(self, mono_ms: int, now_ms: int, trusted: bool) -> None:
        """Take what the crash source saw since the last tick; close what is due though nothing was seen."""
        samples = () if self._source is None else self._source.samples(mono_ms * 1_000, SAMPLES_PER_TICK)
        for sample in samples:
            self._tap.own(sample.name)
            self._feed(sample, mono_ms, now_ms, trusted)
        if len(samples) < SAMPLES_PER_TICK:  # else the source has more of the past to tell
            self._keep(self._recorder.on_tick(mono_ms * 1_000), mono_ms, now_ms, trusted)

    def tap(self, readings: Sequence[Reading], mono_ms: int, now_ms: int, trusted: bool) -> None:
        """Take those ordinary readings that mean something to the recorder."""
        for sample in self._tap.samples(readings, now_ms, mono_ms * 1_000):
            self._feed(sample, mono_ms, now_ms, trusted)

    def drafts(self, mono_ms: int, now_ms: int, trusted: bool, holds: Holds, may_repeat: bool) -> list[Draft]:
        """What is to go into the spool now: notices, and what waits for a receipt and is due.

        ``may_repeat`` is False while earlier drafts still wait for their commit.
        """
        messages, self._notices = self._notices, []
        for key, entry in list(self._keeping.waiting.items()):
            if key not in self._keeping.waiting:
                continue  # went with another one
            if (entry.wait_ms and not may_repeat) or not self._due(entry, mono_ms, holds):
                continue
            found = self._messages(entry)
            if found is None:
                del self._keeping.waiting[key]
            elif not found:
                self._keeping.gone(key)
            messages += found or []
        return [_draft(message, mono_ms, now_ms, trusted) for message in messages]

    def stored(self, packets: Iterable[Stored]) -> None:
        """These packets are in the spool: remember which of them are copies of what waits."""
        for packet in packets:
            if not is_parcel(packet.frame):
                continue
            try:
                message = open_parcel(packet.frame)[1]
            except Rejected:
                continue
            sha256 = receipted_sha256(message)
            entry = self._keeping.waiting.get((message.event_id, sha256)) if sha256 else None
            if entry is not None:
                entry.copies.add(packet.identity)
                entry.wait_ms = entry.wait_ms or self._settings.receipt_wait_ms

    def on_receipt(self, command: Command) -> None:
        """The cloud's database holds something of ours."""
        try:
            receipt = read_receipt(command)
        except Rejected as error:
            self.strange_receipts += 1
            log.warning("event=receipt_refused reason=%s", error.reason)
            return
        if self._keeping.receipt((receipt.event_id, receipt.sha256)):
            log.info("event=crash_receipt event_id=%s waiting=%d", receipt.event_id, len(self._keeping.waiting))

    def close(self, mono_ms: int, now_ms: int, trusted: bool) -> None:
        """The agent leaves: open events are sealed as they are."""
        self._keep(self._recorder.close(), mono_ms, now_ms, trusted)

    def _feed(self, sample: Sample, mono_ms: int, now_ms: int, trusted: bool) -> None:
        name, value = sample.name, sample.value
        if sample.at_us > mono_ms * 1_000 + AHEAD_US:
            self._refuse_ahead(sample, mono_ms)
            return
        if name == MOTION and isinstance(value, tuple):
            sealed = self._recorder.on_motion(sample.at_us, *value)
        elif isinstance(value, tuple):
            return
        elif name.startswith(RESTRAINT):
            command = name.removeprefix(RESTRAINT)
            if command not in self._restraints:
                return
            sealed = self._recorder.on_restraint(sample.at_us, command)
        else:
            sealed = self._recorder.on_channel(sample.at_us, name, value)
        self._keep(sealed, mono_ms, now_ms, trusted)

    def _refuse_ahead(self, sample: Sample, mono_ms: int) -> None:
        """Taken as it says, it would make everything up to its instant look like the past, which is not taken twice."""
        self.ahead += 1
        if self.ahead & (self.ahead - 1) == 0:  # the 1st, 2nd, 4th, 8th: a broken source must not fill the log
            ahead_ms = sample.at_us // 1_000 - mono_ms
            log.warning("event=sample_ahead_of_clock name=%s ahead_ms=%d refused=%d", sample.name, ahead_ms, self.ahead)

    def _keep(self, sealed: Iterable[Sealed], mono_ms: int, now_ms: int, trusted: bool) -> None:
        for one in sealed:
            self._keeping.keep_capsule(one)
        for triggered in self._recorder.take_triggers():
            self._announce(triggered, mono_ms, now_ms, trusted)

    def _announce(self, triggered: Triggered, mono_ms: int, now_ms: int, trusted: bool) -> None:
        """Linkage on disk, notice ready to go."""
        event = self._recorder.event_id(triggered.triggered_us)
        zero_at_ms = now_ms - mono_ms + triggered.time_zero_us // 1_000
        linkage = self._linkage(event, zero_at_ms, now_ms, trusted)
        try:
            self._keeping.keep_linkage(linkage)
        except OSError as error:
            self.not_kept += 1
            self._notices.append(linkage)
            log.error("event=linkage_not_kept reason=%r", str(error))
        source: Source = self._settings.source
        speed = triggered.speed_kmh
        notice = Notice(
            event, self._settings.profile, source, triggered.trigger, triggered.event_number,
            triggered.triggered_us - triggered.time_zero_us, None if speed is None else round(speed * 10),
            triggered.restraints,
        )  # fmt: skip
        self._notices = [*self._notices, notice][-MAX_NOTICES:]
        log.warning("event=crash_trigger event_id=%s trigger=%s", event, triggered.trigger)

    def _linkage(self, event: str, zero_at_ms: int, now_ms: int, trusted: bool) -> Linkage:
        place, settings = self._tap.place(), self._settings
        if place is None:
            return Linkage(event, zero_at_ms, trusted, settings.vin, settings.driver, None, None, None)
        return Linkage(
            event, zero_at_ms, trusted, settings.vin, settings.driver,
            round(place.latitude * E7), round(place.longitude * E7), max(0, now_ms - place.at_ms),
        )  # fmt: skip

    def _due(self, entry: Waiting, mono_ms: int, holds: Holds) -> bool:
        """Whether to offer an entry now; it is asked again after its waiting time."""
        if mono_ms < entry.due_ms:
            return False
        entry.copies = {identity for identity in entry.copies if holds(identity)}
        wait_ms = entry.wait_ms or self._settings.receipt_wait_ms
        entry.due_ms = mono_ms + wait_ms
        if entry.copies:
            return False
        entry.wait_ms = min(2 * wait_ms, LONGEST_WAIT_MS) if entry.wait_ms else wait_ms
        return True

    def _messages(self, entry: Waiting) -> list[Message] | None:
        """None when the medium does not return the entry; it stays where it is."""
        try:
            return entry.messages()
        except (FleetstreamError, OSError) as error:
            log.error("event=kept_entry_unreadable reason=%r", str(error))
            return None


def _draft(message: Message, mono_ms: int, now_ms: int, trusted: bool) -> Draft:
    kind, body = encode_body(message)
    return Draft(Retention.PRIORITY, now_ms, mono_ms, trusted, 0, parcel=(Kind(kind), body))
