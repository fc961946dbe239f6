"""May this publish enter the log? A function of its topic, its bytes, the receive time and the registry.

Checked here: topic, registration, size, checksum, writer fingerprint, the whole header, that topic, packet and
registration agree on who speaks, and that the header's time can be believed, except on the priority lane: a crash
may cost the device its clock, and what it tells of it must not be refused for that. The arrays are left alone unless
``verify_whole``: a body that does not decode is quarantined downstream with its bytes. What is refused keeps
its bytes and gets a reason; nothing is dropped here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from contracts.commands import decode_answer
from contracts.errors import Rejected
from contracts.identity import IdentityNotice, KnownEpochs
from contracts.limits import MAX_FUTURE_MS, MAX_PAST_MS
from contracts.packet import MAX_FRAME_BYTES, decode_header, verify_packet
from contracts.registry import Registration
from contracts.stamp import (
    DEAD_LETTER_HEADER,
    FLAG_RECORDING,
    STAMP,
    STAMP_FORMAT,
    STAMP_HEADER,
    DeadLetter,
    encode_dead_letter,
)
from contracts.status import decode_status
from contracts.topics import CHANNEL_LANES, UP_ANSWER, UP_MESSAGES, UP_PRIORITY, UP_STATUS, Topics, parse_up_topic
from gateway.claims import Claims
from gateway.header import Head, HeaderReader, head_of

MAX_ROUTES = 100_000
"""Parsed topics remembered, five per device; beyond it the memory starts anew."""

CHANNELS = frozenset((*CHANNEL_LANES, *UP_MESSAGES))
LEVELS = 4
"""Of a topic that devices publish on."""

MAX_KEPT_BYTES = 512 * 1024
"""Of a refused publish; Kafka's default takes records of 1 MiB. A broker of ours lets nothing this large through."""

MAX_TEXT = 200
"""Characters of a foreign topic or detail that a dead letter repeats."""

RECORDING_KIND = "recording"
UNREGISTERED, INTERNAL, CONFLICT = "unregistered", "internal_error", "identity_conflict"


class Inbound(NamedTuple):
    """One publish as it came."""

    topic: str
    payload: bytes
    retained: bool
    received_ms: int


class Identity(NamedTuple):
    """Which packet of the device named by the topic."""

    boot_epoch: int
    nonce: int
    seq: int


class Record(NamedTuple):
    """What Kafka gets: topic, key, value and the one header."""

    topic: str
    key: bytes
    value: bytes
    header: tuple[str, bytes]


class Accepted(NamedTuple):
    """``identity`` is None for a status message, which nobody acknowledges."""

    record: Record
    device: str
    identity: Identity | None
    urgent: bool


class Refused(NamedTuple):
    """``identity`` is None when it could not be read or must not be acknowledged; ``notice`` is for the device."""

    record: Record
    device: str
    identity: Identity | None
    reason: str
    notice: IdentityNotice | None = None


Verdict = Accepted | Refused
ReadHead = Callable[[bytes, str], Head]
"""(frame, topic) to the checked header."""


class Admission:
    """Holds the names and the registry that every decision needs, and remembers whose epochs it has heard."""

    def __init__(
        self,
        topics: Topics,
        registry: Mapping[str, Registration],
        *,
        epochs: Mapping[str, KnownEpochs] | None = None,
        verify_whole: bool = False,
    ) -> None:
        self._registry = registry
        self._epochs = {} if epochs is None else epochs
        self._claims = Claims()
        self._read: ReadHead = _read_whole if verify_whole else HeaderReader().read
        self._lane_topics = tuple(topics.lane(lane).name for lane in range(len(CHANNEL_LANES)))
        self._status_topic = topics.status.name
        self._answer_topic = topics.answers.name
        self._dead_topic = topics.dead_letters.name
        self._routes: dict[str, tuple[str, str]] = {}

    def bucket(self, topic: str) -> str:
        """Which rate limit a publish counts against: each channel of a device has its own, all nonsense one."""
        if topic in self._routes:
            return topic
        levels = topic.split("/")
        return topic if len(levels) == LEVELS and levels[-1] in CHANNELS else "/".join(levels[:2])

    def admit(self, message: Inbound) -> Verdict:
        """Never raises for anything that a device can send."""
        device = ""
        try:
            device, channel = self._route(message.topic)
            registered = self._registry.get(device)
            if registered is None:
                return self._refuse(message, device, UNREGISTERED)
            if message.retained:
                raise Rejected("retained", "a retained publish would be delivered again and again")
            if channel == UP_STATUS:
                return self._status(message, registered)
            if channel == UP_ANSWER:
                return self._answer(message, registered)
            return self._packet(message, registered, channel)
        except Rejected as error:
            return self._refuse(message, device, error.reason, error.detail)

    def broken(self, message: Inbound) -> Refused:
        """For a publish on which ``admit`` itself failed: kept aside, never confirmed."""
        return self._refuse(message, "", INTERNAL)

    def _route(self, topic: str) -> tuple[str, str]:
        route = self._routes.get(topic)
        if route is None:
            route = parse_up_topic(topic)
            if len(self._routes) >= MAX_ROUTES:
                self._routes.clear()
            if route[0] in self._registry:
                self._routes[topic] = route
        return route

    def _packet(self, message: Inbound, registered: Registration, channel: str) -> Verdict:
        header = self._read(message.payload, message.topic)
        lane = CHANNEL_LANES[channel]
        if header.device != registered.device:
            raise Rejected("device_mismatch", f"packet says {header.device}, topic says {registered.device}")
        if header.tenant != registered.tenant:
            raise Rejected("tenant_mismatch", f"packet says {header.tenant}")
        if self._is_anothers(registered.device, header.boot_epoch, header.nonce):
            return self._conflict(message, registered.device, header.boot_epoch, header.nonce)
        self._claims.claim(registered.device, header.boot_epoch, header.nonce)
        if header.lane != lane:
            raise Rejected("lane_mismatch", f"packet says {header.lane}, topic says {channel}")
        recording = registered.kind == RECORDING_KIND
        if channel != UP_PRIORITY:
            _check_time(header.base_ms - message.received_ms, recording)
        record = self._stamped(self._lane_topics[lane], message, registered, FLAG_RECORDING if recording else 0)
        identity = Identity(header.boot_epoch, header.nonce, header.seq)
        return Accepted(record, registered.device, identity, channel == UP_PRIORITY)

    def _status(self, message: Inbound, registered: Registration) -> Verdict:
        if len(message.payload) > MAX_FRAME_BYTES:
            raise Rejected("too_large", f"{len(message.payload)} bytes")
        status = decode_status(message.payload)
        if status.device != registered.device:
            raise Rejected("device_mismatch", "the status names another device")
        if self._is_anothers(registered.device, status.boot_epoch, status.nonce):
            return self._conflict(message, registered.device, status.boot_epoch, status.nonce)
        return Accepted(self._stamped(self._status_topic, message, registered, 0), registered.device, None, False)

    def _answer(self, message: Inbound, registered: Registration) -> Accepted:
        if decode_answer(message.payload).device != registered.device:
            raise Rejected("device_mismatch", "the answer names another device")
        return Accepted(self._stamped(self._answer_topic, message, registered, 0), registered.device, None, False)

    def _is_anothers(self, device: str, boot_epoch: int, nonce: int) -> bool:
        """Whether the epoch belongs to another run: by the store's word, and where that is silent by who came first."""
        known = self._epochs.get(device)
        owner = None if known is None else known.nonces.get(boot_epoch)
        if owner is None:
            owner = self._claims.owner(device, boot_epoch)
        return owner is not None and owner != nonce

    def _conflict(self, message: Inbound, device: str, boot_epoch: int, nonce: int) -> Refused:
        """Never acknowledged, so its spool keeps it. Only the store's word sends the device to an epoch of its own:
        by a claim alone two workers might send both runs away, and what is stored would come again.
        """
        refused = self._refuse(message, device, CONFLICT, f"epoch {boot_epoch} belongs to another run", named=False)
        known = self._epochs.get(device)
        if known is None or boot_epoch not in known.nonces:
            return refused
        highest = max(known.highest, self._claims.highest(device), boot_epoch)
        return refused._replace(notice=IdentityNotice(boot_epoch, nonce, highest))

    def _stamped(self, topic: str, message: Inbound, registered: Registration, flags: int) -> Record:
        """Packs what ``contracts.stamp.encode_stamp`` packs, without the object in between."""
        stamp = STAMP.pack(STAMP_FORMAT, flags, message.received_ms, registered.device_key, registered.tenant_id)
        return Record(topic, registered.device.encode(), message.payload, (STAMP_HEADER, stamp))

    def _refuse(self, message: Inbound, device: str, reason: str, detail: str = "", *, named: bool = True) -> Refused:
        """``named`` False: its sequence number is another packet's, so it is neither kept nor confirmed.

        The same holds, whatever the reason, for a number under another run's epoch: it would explain that run's loss.
        """
        identity = self._identity(message.payload) if device and named else None
        if identity is not None and self._is_anothers(device, identity.boot_epoch, identity.nonce):
            identity = None
        registered = self._registry.get(device)
        letter = DeadLetter(
            reason=reason,
            detail=_printable(detail),
            mqtt_topic=_printable(message.topic),
            device=device,
            received_ms=message.received_ms,
            tenant_id=registered.tenant_id if registered else 0,
            boot_epoch=identity.boot_epoch if identity else 0,
            seq=identity.seq if identity else 0,
        )
        header = (DEAD_LETTER_HEADER, encode_dead_letter(letter))
        record = Record(self._dead_topic, device.encode(), message.payload[:MAX_KEPT_BYTES], header)
        return Refused(record, device, identity if registered else None, reason)

    def _identity(self, frame: bytes) -> Identity | None:
        """Whose checksum does not hold has no identity: confirming a number read from it could free another packet."""
        try:
            header = decode_header(frame)
        except Rejected:
            return None
        return Identity(header.boot_epoch, header.nonce, header.seq)


def _check_time(ahead_ms: int, recording: bool) -> None:
    """Raises Rejected for a header that its clock cannot have meant; a recording may be of any age."""
    if ahead_ms > MAX_FUTURE_MS:
        raise Rejected("future", f"{ahead_ms} ms ahead of receipt")
    if -ahead_ms > MAX_PAST_MS and not recording:
        raise Rejected("far_past", f"{-ahead_ms} ms before receipt")


def _read_whole(frame: bytes, _topic: str) -> Head:
    return head_of(verify_packet(frame))


def _printable(text: str) -> str:
    """Foreign text shortened, and without the characters that a database column refuses."""
    return text[:MAX_TEXT].encode("ascii", "backslashreplace").decode().replace("\x00", "\\x00")
