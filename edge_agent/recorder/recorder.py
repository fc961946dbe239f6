"""The recorder as the agent runs it: captured events are sealed, kept on disk and only then told to the uplink."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from contracts.edr.capsule import ChainPlace, Kept, Signer, seal
from contracts.edr.export import build_export
from contracts.edr.profiles import Profile
from contracts.edr.wire import event_id
from contracts.errors import FleetstreamError
from edge_agent.recorder.capture import Captured, EventCapture, Triggered
from edge_agent.recorder.errors import RecorderFull
from edge_agent.recorder.rings import Reading
from edge_agent.recorder.store import RecordStore

log = logging.getLogger(__name__)

REMEMBERED_EVENTS: Final = 32


@dataclass(frozen=True, slots=True)
class Sealed:
    """A capsule that lies durably in the recorder's file. ``supersedes``: the event's incomplete one, or 0.

    ``raw``: the attachment that it claims, not yet on disk; empty when it claims none. ``durable`` is False when the
    file was full of locked records or failed: it exists in memory only (``supersedes`` then is 0), send it while there
    is time.
    """

    record_no: int
    supersedes: int
    capsule: bytes
    complete: bool
    locked: bool
    raw: bytes = b""
    durable: bool = True


class CrashRecorder:
    """Feed it readings; what it returns is already safe. One thread; times are monotonic microseconds."""

    def __init__(self, capture: EventCapture, profile: Profile, store: RecordStore, signer: Signer) -> None:
        self._capture = capture
        self._profile = profile
        self._store = store
        self._signer = signer
        self._numbers: dict[int, int] = {}
        self.refused = 0
        for header in store.live():
            if header.damaged:
                log.error(
                    "event=crash_record_damaged record_no=%d locked=%s delivered=%s",
                    header.record_no, header.locked, header.delivered,
                )  # fmt: skip

    def on_motion(self, at_us: int, x: float, y: float, z: float) -> list[Sealed]:
        """One accelerometer reading: sensor axes, m/s², gravity included."""
        captured = self._capture.on_motion(at_us, x, y, z)
        return self._keep(captured) if captured else []

    def on_channel(self, at_us: int, name: str, value: Reading) -> list[Sealed]:
        """One channel's reading, in the profile's unit or as a state's name."""
        return self._keep(self._capture.on_channel(at_us, name, value))

    def on_restraint(self, at_us: int, name: str) -> list[Sealed]:
        """A non-reversible restraint was commanded."""
        return self._keep(self._capture.on_restraint(at_us, name))

    def on_tick(self, now_us: int) -> list[Sealed]:
        """The device's clock; to be told in every round, also while all sources are silent."""
        return self._keep(self._capture.on_tick(now_us))

    def close(self) -> list[Sealed]:
        """The supply fails or the agent stops: open events are kept as they are."""
        return self._keep(self._capture.close())

    def booted(self, boot_epoch: int) -> None:
        """Records name this boot epoch from now on."""
        self._capture.booted(boot_epoch)

    def take_triggers(self) -> list[Triggered]:
        """The events that were triggered since the last call."""
        return self._capture.take_triggers()

    def event_id(self, triggered_us: int) -> str:
        """The name of an event of this start."""
        return event_id(self._store.recorder_id, self._store.ignition_cycles, triggered_us)

    def delivered(self, sha256: bytes) -> bool:
        """The cloud's database holds the capsule with this hash; False when no such record is here."""
        for header in self._store.live():
            if header.sha256 == sha256:
                self.receipt(header.record_no)
                return True
        return False

    def capsule(self, record_no: int) -> bytes | None:
        """A held record's bytes; None when it was replaced meanwhile. Raises RecorderFileUnusable."""
        for header in self._store.live():
            if header.record_no == record_no:
                return self._store.payload(header)
        return None

    def receipt(self, record_no: int) -> None:
        """The cloud's database holds this record: its place may be used again, unless it is locked."""
        self._store.mark_delivered(record_no)

    def undelivered(self) -> list[Sealed]:
        """What lies whole in the file without a receipt, oldest first: to be sent (again) after a start."""
        return [
            Sealed(header.record_no, 0, self._store.payload(header), header.complete, header.locked)
            for header in self._store.live()
            if not (header.delivered or header.damaged)
        ]

    def export(self, issued_at_ms: int) -> bytes:
        """Everything held, as one signed file; ``issued_at_ms`` since 1970 is known only here, at download.

        A damaged record goes along as the medium returns it: whoever verifies the file is told what of it is damaged.
        """
        held = [(header.record_no, self._store.as_it_is(header)) for header in self._store.live()]
        cycles = self._store.ignition_cycles
        return build_export(held, self._signer, self._store.recorder_id, issued_at_ms, cycles)

    def _keep(self, captured: Iterable[Captured]) -> list[Sealed]:
        kept = []
        for one in captured:
            try:
                kept.append(self._seal(one))
            except (FleetstreamError, ArithmeticError, ValueError, LookupError) as error:
                # whatever is wrong with one record, the agent and the next crash go on
                self.refused += 1
                log.error("event=crash_record_not_sealed reason=%r refused=%d", str(error), self.refused)
        return kept

    def _seal(self, one: Captured) -> Sealed:
        """Sealed and on disk; or, when the file is full or fails, sealed, its number used up, and in memory only."""
        store = self._store
        supersedes = self._numbers.get(one.sequence, 0)
        try:
            beside, full = store.plan(supersedes), None
        except RecorderFull as error:
            beside, full = store.live(), error
        place = ChainPlace(
            recorder_id=store.recorder_id,
            record_no=store.last_record_no + 1,
            previous_sha256=store.hash_of(store.last_record_no),
            kept=tuple(Kept(header.record_no, header.sha256) for header in beside),
        )
        capsule = seal(one.record, self._profile, place, self._signer)
        if full is not None:
            return self._from_memory(one, capsule, full.reason)
        try:
            header = store.put(capsule, one.record.locked, one.record.complete, supersedes)
        except OSError as error:
            return self._from_memory(one, capsule, str(error))
        self._numbers[one.sequence] = header.record_no
        while len(self._numbers) > REMEMBERED_EVENTS:
            self._numbers.pop(next(iter(self._numbers)))
        log.info(
            "event=crash_record_kept record_no=%d complete=%s locked=%s trigger=%s bytes=%d unusable=%d spikes=%d",
            header.record_no, header.complete, header.locked, one.record.trigger, len(capsule),
            self._capture.unusable, self._capture.spikes,
        )  # fmt: skip
        return Sealed(header.record_no, supersedes, capsule, header.complete, header.locked, one.raw)

    def _from_memory(self, one: Captured, capsule: bytes, reason: str) -> Sealed:
        self.refused += 1
        number = self._store.spend(capsule)
        log.error("event=crash_record_not_kept reason=%r record_no=%d refused=%d", reason, number, self.refused)
        return Sealed(number, 0, capsule, one.record.complete, one.record.locked, one.raw, durable=False)
