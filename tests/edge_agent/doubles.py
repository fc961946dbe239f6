"""A cloud in memory behind the ``Link`` protocol, and small builders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contracts.acks import Ack, encode_ack
from contracts.commands import Answer, decode_answer
from contracts.packet import Block, Header, decode_header
from contracts.ranges import ranges_of
from contracts.signals import Retention
from contracts.status import AgentStatus, decode_status
from edge_agent.link import Connected, Disconnected, Event, PubAck, Received
from edge_agent.packing import Draft
from edge_agent.settings import AgentSettings, SpoolSettings
from edge_agent.spool import Spool
from edge_agent.spool_open import open_spool

NOW_MS = 1_790_000_000_000


class Cloud:
    """Broker and gateway in one: remembers every publish, acknowledges when told to."""

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes, bool]] = []
        self.statuses: list[AgentStatus] = []
        self.answers: list[Answer] = []
        self.stored: dict[tuple[int, int], bytes] = {}
        self.generation = 0
        self.up = False
        self.acks = True
        self.pubacks = True
        self.puback_code = 0
        self.unconfirmed: dict[tuple[int, int], list[int]] = {}
        self._events: list[Event] = []
        self._message = 0

    def start(self) -> None:
        self.connect()

    def connect(self, session_present: bool = True) -> None:
        self.generation += 1
        self.up = True
        self._events.append(Connected(self.generation, session_present, 65_535))

    def cut(self) -> None:
        self.up = False
        self._events.append(Disconnected(self.generation, "cut"))

    def publish(self, channel: str, payload: bytes, ask_ack: bool) -> tuple[int, int] | None:
        if not self.up:
            return None
        self._message += 1
        if self.pubacks:
            self._events.append(PubAck(self.generation, self._message, self.puback_code))
        if channel == "status":
            self.statuses.append(decode_status(payload))
        elif channel == "answer":
            self.answers.append(decode_answer(payload))
        elif not self.puback_code:
            self._take(channel, payload, ask_ack)
        return self.generation, self._message

    def _take(self, channel: str, payload: bytes, ask_ack: bool) -> None:
        self.published.append((channel, payload, ask_ack))
        header = decode_header(payload)
        identity = (header.boot_epoch, header.seq)
        assert self.stored.setdefault(identity, payload) == payload, "a resend must be byte-identical"
        self.unconfirmed.setdefault((header.boot_epoch, header.nonce), []).append(header.seq)
        if self.acks:
            self.confirm()

    def confirm(self) -> None:
        """Acknowledge everything taken so far."""
        for (epoch, nonce), numbers in self.unconfirmed.items():
            self.down("ack", encode_ack(Ack(epoch, nonce, ranges_of(numbers))))
        self.unconfirmed.clear()

    def down(self, channel: str, payload: bytes) -> None:
        self._events.append(Received(self.generation, channel, payload))

    def events(self) -> list[Event]:
        taken, self._events = self._events, []
        return taken

    def stop(self) -> None:
        self.up = False

    def headers(self) -> list[Header]:
        return [decode_header(payload) for _, payload, _ in self.published]


def draft(retention: Retention = Retention.STANDARD, samples: int = 10, base_ms: int = NOW_MS, bulk: int = 0) -> Draft:
    """A small sound body; ``bulk`` large values make the frame about that many bytes longer."""
    values = tuple(range(samples)) if not bulk else tuple(2**50 + n for n in range(bulk // 8))
    count = len(values)
    return Draft(retention, base_ms, 0, True, count, (Block(1, -2, 0, tuple(range(count)), values),))


def spool_at(folder: Path, **settings: Any) -> Spool:
    return open_spool(spool_settings(folder, **settings), "car-1", "north", NOW_MS)


def spool_settings(folder: Path, **settings: Any) -> SpoolSettings:
    return SpoolSettings(path=folder / "spool.db", reserve_bytes=65_536, **settings)


def agent_settings(folder: Path, **parts: Any) -> AgentSettings:
    spool = {"path": folder / "spool.db", "reserve_bytes": 65_536, **parts.pop("spool", {})}
    return AgentSettings(device="car-1", tenant="north", spool=spool, **parts)  # type: ignore[arg-type]
