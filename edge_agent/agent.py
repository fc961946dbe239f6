"""The loop a newcomer reads first: source -> sampler -> packer -> spool -> uplink, once per tick.

    readings = source.read(now)              what was measured since the last tick
    kept     = sampler.keep(readings)        what is worth keeping
    drafts   = packer.close(...)             a packet's duration later: bodies without identity
    packets  = spool.accept(drafts, lane)    one fsynced commit: now they are *accepted*, and journalled
    uplink.send()                            published; freed only by the gateway's acknowledgement

``tick`` never waits for the network and at most one fsync for the disk, so one thread can drive many agents. A disk
that takes nothing never stops the acquisition: drafts wait in bounded memory, then older packets of low class fall
(told upstream as gaps), and what fits nowhere is counted and told in the heartbeat. A damaged spool is set aside and
a new one takes over.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from contracts.commands import encode_answer
from contracts.packet import Lane
from contracts.status import encode_status
from contracts.topics import UP_ANSWER
from edge_agent.clock import Clock, StepWatch
from edge_agent.commands import CommandDesk
from edge_agent.errors import SpoolCorruptError, SpoolFullError
from edge_agent.heed import heed
from edge_agent.journal import Journal, journal_all
from edge_agent.orders import SAMPLING, orders, use_sampling
from edge_agent.outage import Absence
from edge_agent.parts import Parts
from edge_agent.settings import AgentSettings
from edge_agent.sources.base import CountsRefusals
from edge_agent.spool import Spool
from edge_agent.spool_model import Stored
from edge_agent.spool_move import endings, move, to_move
from edge_agent.status import agent_status
from edge_agent.waiting import Waiting

log = logging.getLogger("edge_agent.agent")
RETRY_DISK_MS = 1_000
IDLE_ACKS_MS = 1_000
"""Frees that no commit took along are committed on their own after this long."""
REPORT_DROPS_MS = 5_000
"""Gaps are told at most this often, so that a spool that drops steadily does not fill itself with reports."""
READ_LIMIT = 5_000


class Agent:
    """One device. Use it from one thread at a time."""

    def __init__(
        self, settings: AgentSettings, parts: Parts, clock: Clock, journal: Journal, wake: threading.Event
    ) -> None:
        self._settings, self._parts, self._clock, self._journal = settings, parts, clock, journal
        self.settings, self.clock, self.uplink, self.sampler = settings, clock, parts.uplink, parts.sampler
        self.wake = wake
        """Set by the link when it has news; ``run`` waits on it, a fleet may share one event among agents."""
        self.desk = CommandDesk(settings.device, orders(self, parts.on_receipt), parts.memory)
        self.waiting = Waiting(settings.spool.memory_bytes)
        self.spool: Spool | None = None
        self._damaged = False
        self._retry_disk_ms = 0
        self._needs_reserve = False
        self._cursor: str | None = None
        self._sought = False
        self._leaving = False
        self._next_status_ms = 0
        self._acks_since_ms = 0
        self._next_report_ms = 0
        self._steps = StepWatch()
        self.absence = Absence(settings.uplink.snapshot_after_ms)
        if SAMPLING in parts.memory.kept:
            use_sampling(self, parts.memory.kept[SAMPLING])

    def start(self) -> None:
        """Open the spool, journal what it holds, begin to connect."""
        self._open_spool()
        self._parts.link.start()

    def tick(self) -> int:
        """One round of the loop; returns after how many milliseconds at most it wants the next."""
        mono_ms = self._clock.mono_ms()
        self._watch_for_crash(mono_ms)
        try:
            self._open_spool()
            if self.spool is not None:
                self._parts.uplink.collect(mono_ms)
                self._obey(self.spool)
                self._after_an_outage(self.spool, mono_ms)
            self._acquire(mono_ms)
            if self.spool is not None:
                self._commit(self.spool, mono_ms)
                self._upkeep(self.spool, mono_ms)
                self._parts.uplink.send(mono_ms)
                self._heartbeat(mono_ms)
        except SpoolFullError as error:
            self._disk_full(mono_ms, error)
        except SpoolCorruptError as error:
            self._spool_damaged(error)
        return 1 if self._parts.uplink.may_send_more and not self._needs_reserve else self._settings.tick_ms

    def run(self, stop: threading.Event, drain_ms: int = 5_000) -> None:
        """Tick until ``stop`` is set or a finite source is told to its end and acknowledged; then leave in order."""
        self.start()
        while not stop.is_set() and not self.done:
            self.wake.wait(self.tick() / 1_000)
            self.wake.clear()
        self.stop(drain_ms)

    def stop(self, drain_ms: int = 5_000) -> None:
        """Pack and commit what waits, give the cloud ``drain_ms`` to acknowledge, say goodbye; the rest stays held."""
        self._leaving = True
        self._parts.source.close()
        deadline_ms = self._clock.mono_ms() + drain_ms
        if self._parts.crash is not None:
            self._parts.crash.close(self._clock.mono_ms(), self._clock.now_ms(), self._clock.trusted())
        self._pack(self._clock.mono_ms())
        self.tick()
        while self.spool is not None and not self.drained and self._clock.mono_ms() < deadline_ms:
            self.wake.wait(self.tick() / 1_000)
            self.wake.clear()
        self.send_status()
        self._parts.link.stop()
        if self.spool is not None:
            try:
                self.spool.close()
            except (SpoolFullError, SpoolCorruptError) as error:
                log.warning("event=close_failed device=%s reason=%r", self._settings.device, str(error))
            self.spool = None

    @property
    def connected(self) -> bool:
        """Whether the broker is there, as far as the device knows."""
        return self._parts.uplink.is_connected

    @property
    def refused_publishes(self) -> int:
        """Publishes that the broker answered with a refusal (0x87: not this certificate's topic)."""
        return self._parts.uplink.refused_publishes

    @property
    def packed(self) -> bool:
        """The source has ended and no reading waits to be packed."""
        return self._parts.source.finished and not self._parts.packer

    @property
    def drained(self) -> bool:
        """Nothing waits anywhere on the device: all that was read is acknowledged."""
        return (
            self.spool is not None and not self.waiting and not self._parts.packer
            and self.spool.index.total.packets == 0 and not self.spool.unreported_drops
        )  # fmt: skip

    @property
    def done(self) -> bool:
        """A finite source has ended and everything is acknowledged."""
        return self._parts.source.finished and self.drained

    def _open_spool(self) -> None:
        if self.spool is not None or self._clock.mono_ms() < self._retry_disk_ms:
            return
        try:
            spool = self._parts.open_spool(self._damaged)
        except SpoolFullError as error:
            self._disk_full(self._clock.mono_ms(), error)
            return
        self._damaged = False
        self._tell(spool.all_packets())
        if spool.cursor is not None and not self._sought:
            self._parts.source.seek(spool.cursor)
        self._sought = True
        if self._parts.crash is not None:
            self._parts.crash.booted(spool)
        self._parts.uplink.attach(spool)
        self.spool = spool
        log.info(
            "event=spool_open device=%s boot_epoch=%d held=%d",
            self._settings.device, spool.epoch.boot_epoch, spool.index.total.packets,
        )  # fmt: skip

    def _watch_for_crash(self, mono_ms: int) -> None:
        """First of all, whatever the spool does: the recorder has files of its own."""
        crash, clock = self._parts.crash, self._clock
        if crash is None:
            return
        if not self._leaving:
            crash.watch(mono_ms, clock.now_ms(), clock.trusted())
        drafts = crash.drafts(mono_ms, clock.now_ms(), clock.trusted(), self._spool_holds, not self.waiting)
        if drafts:
            self.waiting.add(drafts, mono_ms)

    def _spool_holds(self, identity: int) -> bool:
        return self.spool is not None and self.spool.get(identity) is not None

    def _acquire(self, mono_ms: int) -> None:
        """Read, thin, pack. A source that can wait waits for a spool that is open and has room."""
        source = self._parts.source
        must_wait = self.spool is None or self.spool.nearly_full or bool(self.waiting)
        if not (self._leaving or source.finished or (source.can_wait and must_wait)):
            readings = source.read(self._clock.now_ms(), READ_LIMIT)
            if self._parts.derive is not None:
                readings = [*readings, *self._parts.derive(readings)]
            if self._parts.crash is not None:
                self._parts.crash.tap(readings, mono_ms, self._clock.now_ms(), self._clock.trusted())
            self._parts.packer.add(self._parts.sampler.keep(readings), mono_ms)
        if self._parts.packer.due(mono_ms) or (source.finished and self._parts.packer):
            self._pack(mono_ms)
        elif not self._parts.packer:
            self._cursor = source.cursor

    def _pack(self, mono_ms: int) -> None:
        self.waiting.add(self._parts.packer.close(mono_ms, self._clock.trusted()), mono_ms)
        self._cursor = self._parts.source.cursor

    def _commit(self, spool: Spool, mono_ms: int) -> None:
        """Group commit: enough packets, or the oldest waited long enough, or one of them is urgent."""
        rules = self._settings.spool
        due = self.waiting.due(mono_ms, rules.commit_packets, rules.commit_ms)
        if not due or mono_ms < self._retry_disk_ms:
            return
        now_ms = self._clock.now_ms() if self._clock.trusted() else 0
        spool.may_expire = self._steps.steady(now_ms, mono_ms)
        packets, refused = spool.accept(
            self.waiting.drafts, self._parts.uplink.lane, now_ms, self._cursor,
            lost_samples=self.waiting.lost_samples, may_evict=self.waiting.half_full,
        )  # fmt: skip
        self.waiting.clear()
        self._acks_since_ms = mono_ms
        self.waiting.lose(refused)
        if self._parts.crash is not None:
            self._parts.crash.stored(packets)
        self._tell(packets)
        self._parts.uplink.accepted(packets)

    def _tell(self, packets: Iterable[Stored]) -> None:
        """Journal accepted packets, before any of them may leave."""
        journal_all(self._journal, self._settings.device, packets)

    def _upkeep(self, spool: Spool, mono_ms: int) -> None:
        """Frees without company, gaps to tell, the reserve to restore."""
        if not spool.has_pending_acks:
            self._acks_since_ms = mono_ms
        elif mono_ms - self._acks_since_ms >= IDLE_ACKS_MS:
            spool.apply_acks()
        if spool.unreported_drops and self._parts.uplink.is_connected and mono_ms >= self._next_report_ms:
            self._next_report_ms = mono_ms + REPORT_DROPS_MS
            packets = spool.report_drops(self._parts.uplink.lane, self._clock.now_ms(), mono_ms)
            self._tell(packets)
            self._parts.uplink.accepted(packets)
        if spool.disowned and (old := to_move(spool)):
            self._journal(endings(self._settings.device, old))
            packets = move(spool, old)
            self._tell(packets)
            self.uplink.accepted(packets)
        if self._needs_reserve and mono_ms >= self._retry_disk_ms:
            self._needs_reserve = not self._parts.take_reserve()
            self._retry_disk_ms = mono_ms + RETRY_DISK_MS if self._needs_reserve else 0

    def _disk_full(self, mono_ms: int, error: SpoolFullError) -> None:
        """Wait, with the reserve given back; the readings go on into bounded memory."""
        if not self._needs_reserve:
            log.warning("event=disk_full device=%s reason=%r", self._settings.device, str(error))
        self._parts.give_reserve()
        self._needs_reserve = True
        self._retry_disk_ms = mono_ms + RETRY_DISK_MS

    def _spool_damaged(self, error: SpoolCorruptError) -> None:
        log.error("event=spool_damaged device=%s reason=%r", self._settings.device, str(error))
        if self.spool is not None:
            try:
                self.spool.abandon()
            except (SpoolFullError, SpoolCorruptError):
                log.warning("event=abandon_failed device=%s", self._settings.device)
        self.spool, self._damaged = None, True

    def _obey(self, spool: Spool) -> None:
        """Carry out what came down; answers leave as soon as there is a link."""
        uplink = self._parts.uplink
        notices, uplink.notices = uplink.notices, []
        commands, uplink.commands = uplink.commands, []
        for payload in notices:
            heed(payload, spool, uplink, self.desk, self._settings.device, self._clock.now_ms())
        for payload in commands:
            self.desk.take(payload, self._clock.now_ms(), self._clock.trusted())
        while self.desk.unsent and uplink.send_message(UP_ANSWER, encode_answer(self.desk.unsent[0])):
            self.desk.unsent.popleft()

    def flush(self) -> None:
        """Close the open packets; what is on its way is due again."""
        self._pack(self._clock.mono_ms())
        self._parts.uplink.window.resend_all(self._clock.mono_ms())

    def _after_an_outage(self, spool: Spool, mono_ms: int) -> None:
        """A device that was away for long tells first what every signal is now, then what happened meanwhile."""
        if not self.absence.look(self.uplink.is_connected, mono_ms):
            return
        if self._parts.source.can_wait or mono_ms < self._retry_disk_ms:
            return
        now_ms, fresh_ms = self._clock.now_ms(), self._settings.packing.packet_ms
        self._pack(mono_ms)
        self._parts.packer.add(self._parts.sampler.snapshot(now_ms, fresh_ms), mono_ms)
        drafts = self._parts.packer.close(mono_ms, self._clock.trusted())
        stamp_ms = now_ms if self._clock.trusted() else 0
        packets, _ = spool.accept(drafts, Lane.LIVE, stamp_ms, may_evict=False)
        self.absence.snapshot_due = False
        self._tell(packets)
        self.uplink.accepted(packets, ahead=True)

    def _heartbeat(self, mono_ms: int) -> None:
        if mono_ms >= self._next_status_ms and self.send_status():
            self._next_status_ms = mono_ms + self._settings.uplink.status_ms

    def send_status(self) -> bool:
        if self.spool is None:
            return False
        source = self._parts.source
        refused = sum(self._parts.packer.refused.values())
        refused += source.bad_lines if isinstance(source, CountsRefusals) else 0
        status = agent_status(
            self._settings.device, self._clock.now_ms(), self.spool, self._parts.uplink, self.waiting, refused
        )
        return self._parts.uplink.send_status(encode_status(status))
