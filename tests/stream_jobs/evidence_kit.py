"""Parcels as a device sends them and the gateway stamps them, for tests of the evidence consumer."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

import psycopg

from contracts.edr.capsule import NO_PREVIOUS, ChainPlace, open_capsule, seal
from contracts.edr.record import Attachment, EventRecord, Source
from contracts.edr.wire import CapsuleParcel, Linkage, Message, Notice, encode_body, event_of
from contracts.edr.x509 import X509Checks
from contracts.packet import Header, Lane, Parcel, encode_parcel
from contracts.stamp import Stamp, encode_stamp
from contracts.tables import ROLE_EVIDENCE, ROLE_SINK
from edge_agent.recorder.signing import DeviceSigner, development_signer
from infra.enrol import Enrolment, enrol
from stream_jobs.evidence.intake import Place, Raw
from stream_jobs.evidence.store import EvidenceStore, Outcome
from stream_jobs.evidence.writer import Rules
from tests.contracts.edr.evidence import PROFILE, record

NOW_MS = 1_790_000_000_000


def signer(seed: bytes) -> DeviceSigner:
    return development_signer(seed, dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2040, 1, 1, tzinfo=dt.UTC))


def root_of(key: DeviceSigner) -> bytes:
    return hashlib.sha256(key.certificates[-1]).digest()


@dataclass
class Recorder:
    """A device's recorder: seals records in a chain and wraps them up."""

    device: str
    tenant: str
    device_key: int
    tenant_id: int
    key: DeviceSigner
    recorder_id: bytes
    boot_epoch: int = 1
    nonce: int = 77
    seq: int = 0
    record_no: int = 0
    previous: bytes = NO_PREVIOUS

    def capsule(
        self, attachments: tuple[Attachment, ...] = (), source: Source = "simulated", made: EventRecord | None = None
    ) -> CapsuleParcel:
        """The next record of the chain; each is an event of its own."""
        self.record_no += 1
        made = replace(
            made or record(40 + self.record_no), time_zero_us=1_000_000 * self.record_no, attachments=attachments,
            source=source,
        )  # fmt: skip
        data = seal(made, PROFILE, ChainPlace(self.recorder_id, self.record_no, self.previous, ()), self.key)
        self.previous = hashlib.sha256(data).digest()
        return CapsuleParcel(event_of(open_capsule(data)), self.record_no, data)

    def notice(self, event_id: str) -> Notice:
        return Notice(event_id, PROFILE.name, "simulated", "delta_v", 1, 31_000, 523, ())

    def linkage(self, event_id: str, **changes: Any) -> Linkage:
        whole = Linkage(event_id, NOW_MS - 5_000, True, "WVWZZZ1KZ00000000", "d-17", 490_117_000, 84_000_000, 400)
        return replace(whole, **changes)

    def parcel(self, message: Message, seq: int | None = None, **header: Any) -> bytes:
        """The frame, under the next sequence number."""
        if seq is None:
            self.seq += 1
            seq = self.seq
        kind, body = encode_body(message)
        made = Header(
            self.tenant, self.device, self.boot_epoch, self.nonce, seq, int(Lane.PRIORITY), NOW_MS, 5, True, 0
        )
        return encode_parcel(Parcel(replace(made, **header), int(kind), body))

    def stamp(self) -> bytes:
        return encode_stamp(Stamp(NOW_MS, self.device_key, self.tenant_id))


@dataclass
class Desk:
    """A consumer's store with the log in front of it as a list."""

    store: EvidenceStore
    owner_dsn: str
    topic_id: UUID = field(default_factory=uuid4)
    offset: int = 0
    log: list[Raw] = field(default_factory=list)

    def append(self, recorder: Recorder, *frames: bytes) -> list[Raw]:
        """Put frames into the log."""
        raws = []
        for frame in frames:
            raws.append(Raw(Place(self.topic_id, 0, self.offset), recorder.stamp(), frame))
            self.offset += 1
        self.log += raws
        return raws

    def take(self, recorder: Recorder, *messages: Message, now_ms: int = NOW_MS) -> Outcome:
        raws = self.append(recorder, *(recorder.parcel(message) for message in messages))
        return self.store.take("priority", raws, now_ms)

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.owner_dsn) as connection:
            return connection.execute(query.encode(), values).fetchall()


def make_desk(role_dsn: Callable[[str], str], schema_dsn: str, roots: frozenset[bytes] = frozenset()) -> Desk:
    return Desk(EvidenceStore(role_dsn(ROLE_EVIDENCE), Rules(roots, X509Checks(), 200_000)), schema_dsn)


def make_recorders(role_dsn: Callable[[str], str], kinds: dict[str, str]) -> Iterator[Recorder]:
    """One recorder per device name; the part before the first dash is the tenant."""
    enrolments = [Enrolment(name, name.split("-")[0], f"Car {name}", "car", kind) for name, kind in kinds.items()]
    with psycopg.connect(role_dsn(ROLE_SINK)) as connection:
        made = enrol(connection, enrolments)
    for one in made:
        key, recorder_id = signer(one.device.encode()), hashlib.sha256(one.device.encode()).digest()[:16]
        yield Recorder(one.device, one.tenant, one.device_key, one.tenant_id, key, recorder_id)
