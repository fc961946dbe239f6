"""The pure heart of the recorder: readings in, finished event records out. No clock, no file, no key.

A crash is written down twice when its profile wants data long after the crash (roll angle runs to 5 s): first at once,
marked incomplete, then whole. A power cut between the two leaves the first.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from typing import Final

from contracts.edr.profiles import Profile
from contracts.edr.raw import RAW_MOTION
from contracts.edr.record import Attachment, EventRecord, Trigger
from edge_agent.recorder.assemble import AFTER_END_US, AXES, Memory, elements_of
from edge_agent.recorder.axes import STANDARD_GRAVITY_MPS2, MotionFrame, rotation
from edge_agent.recorder.detector import MAX_EVENT_US, SPEED_RULES, CrashDetector, Event
from edge_agent.recorder.plausible import Felt, SpikeGate
from edge_agent.recorder.policy import lock_reason
from edge_agent.recorder.raw import raw_motion
from edge_agent.recorder.rings import ChannelRing, MotionRing, Reading
from edge_agent.recorder.settings import RecorderSettings
from edge_agent.recorder.speed_triggers import SpeedTriggers

CHANNEL_STEP_US: Final = 100_000
CRASH_DATA_US: Final = 300_000
MAX_CHANNELS: Final = 96
MAX_PENDING: Final = 8
"""Events being completed at once; more would need impacts every 30 ms for seconds: the oldest is then closed early."""

MOST_MPS2: Final = 20_000.0
"""2,000 g: no accelerometer for vehicles says more; beyond it (and for NaN) a reading is a fault of its source."""

SILENCE_US: Final = 2_000_000
"""As late as an ordinary reading may come (``feed.MAX_AGE_US``): what is due for so long waits for nobody."""

LIMIT_SHARE: Final = 0.995
"""A reading this close to the sensor's limit counts as saturated."""

BLOCK_US: Final = 50_000
SPEED_CHANNEL: Final = "speed"
LONGEST_HOLD_US: Final = 25_000_000
"""The last-stop trigger looks back 20 s beyond its own pre-event interval; the rings remember that too."""


@dataclass(slots=True)
class _Pending:
    """An event that waits for its data; ``told`` after the first, incomplete record."""

    event: Event
    number: int
    previous: Event | None
    restraints: dict[str, int]
    sequence: int
    told: bool = False


@dataclass(frozen=True, slots=True)
class Captured:
    """A record ready to be sealed. ``sequence`` is the same for the incomplete and the whole one of an event.

    ``raw``: the attachment that a whole record claims (``contracts.edr.raw``), or empty.
    """

    sequence: int
    record: EventRecord
    raw: bytes = b""


@dataclass(frozen=True, slots=True)
class Triggered:
    """What is known at the instant of a trigger (monotonic microseconds; ``speed_kmh`` None without a source)."""

    triggered_us: int
    time_zero_us: int
    trigger: Trigger
    event_number: int
    speed_kmh: float | None
    restraints: tuple[str, ...]


class EventCapture:
    """Feeds on monotonic microseconds; every ``on_`` method returns the records that became ready."""

    def __init__(self, profile: Profile, settings: RecorderSettings, boot_epoch: int, ignition_cycle: int) -> None:
        self._profile = profile
        self._settings = settings
        self._boot_epoch = boot_epoch
        self._ignition_cycle = ignition_cycle
        self._motion_step_us = 1_000_000 // settings.motion_rate_hz
        self._frame = MotionFrame(
            rotation(settings.mounting_roll_deg, settings.mounting_pitch_deg, settings.mounting_yaw_deg)
        )
        self._limits = tuple(LIMIT_SHARE * limit * STANDARD_GRAVITY_MPS2 for limit in settings.sensor_limit_g)
        # the crash must still be there when the last element's interval (roll: 5 s) has run out
        longest_ms = max(element.to_ms or 0 for element in profile.elements)
        self._motion = MotionRing((longest_ms // 1_000 + 2) * settings.motion_rate_hz)
        self._channels: dict[str, ChannelRing] = {}
        self._gate = SpikeGate()
        self._detector = CrashDetector(profile, settings.record_lateral)
        self._speed_triggers = SpeedTriggers(profile)
        self._vru_names = frozenset(
            element.feed.removeprefix("restraint:")
            for element in profile.elements
            if element.feed.startswith("restraint:vru_")
        )
        self._pending: list[_Pending] = []
        self._fresh: list[_Pending] = []
        self._first: Event | None = None
        self._previous: tuple[Event, int] | None = None
        self._sequence = 0
        self._due_us: int | None = None
        self._standing = False
        self._last_motion_us: int | None = None
        self._block: list[float] = [0.0, 0.0, 0.0, 0.0]
        self._block_start_us = 0
        self._limited: dict[str, int] = {}
        self.unusable = 0
        """Readings that were no number or beyond any sensor; motion of that kind is dropped, a channel says unknown."""

    def on_motion(self, at_us: int, x: float, y: float, z: float) -> list[Captured]:
        """One accelerometer reading in the sensor's own axes (m/s², gravity included)."""
        if not (abs(x) <= MOST_MPS2 and abs(y) <= MOST_MPS2 and abs(z) <= MOST_MPS2):
            self.unusable += 1
            return self._ready(at_us)
        if self._last_motion_us is not None and at_us <= self._last_motion_us:
            return []
        self._last_motion_us = at_us
        if self._standing:
            self._frame.learn(x, y, z)
        for felt in self._gate.push(Felt(at_us, *self._frame.convert(x, y, z), self._limit_bits(x, y, z))):
            self._take(felt)
        return self._ready(at_us)

    def on_channel(self, at_us: int, name: str, value: Reading) -> list[Captured]:
        """One reading of a channel in the profile's unit, a state's name, or None when its source says unknown."""
        if isinstance(value, float) and not math.isfinite(value):
            self.unusable += 1
            value = None
        self._remember(name, at_us, value)
        if name == SPEED_CHANNEL and value is None:
            self._standing = False  # a zero must not be learned while nobody knows whether the vehicle stands
            self._frame.moving()
        elif name == SPEED_CHANNEL and isinstance(value, float):
            self._standing = value == 0.0
            if not self._standing:
                self._frame.moving()
            for event in self._speed_triggers.on_speed(at_us, value):
                self._open(event)
        return self._ready(at_us)

    def on_restraint(self, at_us: int, name: str) -> list[Captured]:
        """A non-reversible restraint was commanded; ``name`` is that of its time element (``..._time_driver``).

        Second and later stages are written down but begin no event. Raises KeyError for a name that the profile lacks.
        """
        self._profile.element(name)
        vru = name in self._vru_names
        if "stage2" not in name and (not vru or self._profile.vru_trigger):
            event = self._detector.on_restraint(at_us)
            if event is not None:
                event.trigger = "vru" if vru else event.trigger
                self._open(event)
        if self._pending:
            self._pending[-1].restraints.setdefault(name, at_us)
        return self._ready(at_us)

    def on_tick(self, now_us: int) -> list[Captured]:
        """The device's clock stands at ``now_us``: what is due is written down though no source speaks any more."""
        return self._ready(now_us - SILENCE_US)

    def booted(self, boot_epoch: int) -> None:
        """The spool opened this epoch: records name it from now on (0 before)."""
        self._boot_epoch = boot_epoch

    @property
    def spikes(self) -> int:
        """Motion readings that stood out of calm as no vehicle can make them, and were dropped."""
        return self._gate.dropped

    def take_triggers(self) -> list[Triggered]:
        """The events that were triggered since the last call, for the notice."""
        fresh, self._fresh = self._fresh, []
        return [self._triggered(pending) for pending in fresh]

    def close(self) -> list[Captured]:
        """The supply is failing or the agent stops: every open event is written down as it is, incomplete."""
        for felt in self._gate.flush():
            self._take(felt)
        captured = [self._record(pending, complete=False) for pending in self._pending if not pending.told]
        self._pending.clear()
        self._due_us = None
        return captured

    def _take(self, felt: Felt) -> None:
        """One motion reading that is believed."""
        self._motion.add(felt.at_us, felt.x, felt.y, felt.z, felt.limits)
        self._average(felt)
        started, ended = self._detector.on_motion(felt.at_us, felt.x, felt.y)
        if started is not None:
            self._open(started)
        if ended is not None:
            self._due_us = felt.at_us

    def _limit_bits(self, x: float, y: float, z: float) -> int:
        """Which of the record's axes is touched by a saturated sensor axis (any, when the mounting mixes them)."""
        limits = self._limits
        if abs(x) < limits[0] and abs(y) < limits[1] and abs(z) < limits[2]:
            return 0
        saturated = (abs(x) >= limits[0], abs(y) >= limits[1], abs(z) >= limits[2])
        return self._frame.touched(saturated)

    def _average(self, felt: Felt) -> None:
        """Means over 50 ms, and since when within them an axis stood at its limit, kept as channels."""
        block, at_us = self._block, felt.at_us
        length_us = at_us - self._block_start_us
        if length_us >= BLOCK_US and block[3]:
            # after a silence the block still ends where it ended
            middle_us = self._block_start_us + min(length_us, 2 * BLOCK_US) // 2
            for axis, total in zip(AXES, block[:3], strict=True):
                self._remember(f"acceleration_{axis}_g", middle_us, total / block[3] / STANDARD_GRAVITY_MPS2)
            for axis, since_us in self._limited.items():
                self._remember(f"limit_{axis}", since_us, "on")
            self._limited.clear()
            self._block = block = [0.0, 0.0, 0.0, 0.0]
        if not block[3]:
            self._block_start_us = at_us
        for index, value in enumerate((felt.x, felt.y, felt.z)):
            block[index] += value
            if felt.limits >> index & 1:
                self._limited.setdefault(AXES[index], at_us)
        block[3] += 1

    def _remember(self, name: str, at_us: int, value: Reading) -> None:
        ring = self._channels.get(name)
        if ring is None:
            if len(self._channels) >= MAX_CHANNELS:
                return
            longest_us = 1_000 * max(-(element.from_ms or 0) for element in self._profile.elements)
            kept = (longest_us + LONGEST_HOLD_US) * 2 // CHANNEL_STEP_US
            ring = self._channels[name] = ChannelRing(kept, int(0.45 * CHANNEL_STEP_US))
        ring.add(at_us, value)

    def _open(self, event: Event) -> None:
        """The first and the last event of one crash begin not more than the profile's window apart."""
        previous, number = None, 1
        since_first_us = -1 if self._first is None else event.time_zero_us - self._first.time_zero_us
        if self._previous is not None and 0 <= since_first_us <= 1_000 * self._profile.multi_event_window_ms:
            previous, number = self._previous[0], self._previous[1] + 1
        else:
            self._first = event
        self._previous = (event, number)
        self._sequence += 1
        self._pending.append(_Pending(event, number, previous, {}, self._sequence))
        self._fresh = [*self._fresh, self._pending[-1]][-MAX_PENDING:]
        self._due_us = event.triggered_us

    def _ready(self, at_us: int) -> list[Captured]:
        if self._due_us is None or at_us < self._due_us:
            return []
        captured = []
        waiting = []
        overfull = len(self._pending) - MAX_PENDING
        for index, pending in enumerate(self._pending):
            first_us, whole_us = self._times(pending.event)
            if at_us >= whole_us or index < overfull:
                captured.append(self._record(pending, complete=at_us >= whole_us))
                continue
            if at_us >= first_us and not pending.told:
                captured.append(self._record(pending, complete=False))
                pending.told = True
            waiting.append(pending)
        self._pending = waiting
        times = [self._times(one.event)[1 if one.told else 0] for one in waiting]
        # an event that has not ended may end any moment: look again after one filter margin
        self._due_us = min((max(due_us, at_us + 1) for due_us in times), default=None)
        return captured

    def _times(self, event: Event) -> tuple[int, int]:
        """When the crash data are in, and when everything is (microseconds of the device's clock)."""
        zero_us = event.time_zero_us
        motion_trigger = event.rule not in SPEED_RULES
        crash_us = event.triggered_us
        if motion_trigger:
            end_us = event.end_us if event.end_us is not None else zero_us + MAX_EVENT_US
            # 60 ms beyond: the filter's margin and a restraint command that lags its bus
            crash_us = max(zero_us + CRASH_DATA_US, min(end_us, zero_us + MAX_EVENT_US) + AFTER_END_US) + 60_000
        whole_us = crash_us
        for element in self._profile.elements:
            known = element.feed.split(":", 1)[-1] in self._channels or element.feed.startswith("acceleration:")
            if element.to_ms and known:
                whole_us = max(whole_us, zero_us + 1_000 * element.to_ms + CHANNEL_STEP_US)
        return crash_us, whole_us

    def _record(self, pending: _Pending, complete: bool) -> Captured:
        event, settings = pending.event, self._settings
        since_us = None if pending.previous is None else event.time_zero_us - pending.previous.time_zero_us
        memory = Memory(
            channels=self._channels,
            motion=self._motion,
            motion_step_us=self._motion_step_us,
            restraints=pending.restraints,
            record_lateral=settings.record_lateral,
            stale_after_us=1_000 * settings.stale_after_ms,
            state_stale_after_us=1_000 * settings.state_stale_after_ms,
            ignition_cycle=self._ignition_cycle,
            event_number=pending.number,
            since_previous_us=since_us,
            complete=complete,
        )
        assembled = elements_of(self._profile, event, memory)
        fitted = (settings.frontal_restraint, settings.record_lateral)
        reason = lock_reason(self._profile, event, pending.restraints, self._vru_names, *fitted)
        record = EventRecord(
            profile=self._profile.name,
            profile_version=self._profile.version,
            source=settings.source,
            trigger=event.trigger,
            time_zero_rule=event.rule,
            boot_epoch=self._boot_epoch,
            time_zero_us=event.time_zero_us,
            trigger_after_us=event.triggered_us - event.time_zero_us,
            end_after_us=None if event.end_us is None else event.end_us - event.time_zero_us,
            event_number=pending.number,
            since_previous_us=since_us,
            ignition_cycle_crash=self._ignition_cycle,
            locked=bool(reason),
            lock_reason=reason,
            acceleration_step_us=self._motion_step_us,
            complete=assembled.complete,
            elements=assembled.elements,
            not_available=assembled.missing,
        )
        if not (complete and settings.attach_raw):
            return Captured(pending.sequence, record)
        raw = raw_motion(self._motion, event.time_zero_us)
        if not raw:
            return Captured(pending.sequence, record)
        claim = Attachment(RAW_MOTION, hashlib.sha256(raw).digest(), len(raw))
        return Captured(pending.sequence, replace(record, attachments=(claim,)), raw)

    def _triggered(self, pending: _Pending) -> Triggered:
        event, ring = pending.event, self._channels.get(SPEED_CHANNEL)
        newest = None if ring is None else ring.at(event.triggered_us)
        speed = newest[1] if newest is not None else None
        return Triggered(
            event.triggered_us, event.time_zero_us, event.trigger, pending.number,
            speed if isinstance(speed, float) else None, tuple(pending.restraints),
        )  # fmt: skip
