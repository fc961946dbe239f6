"""A few real agents in a process of their own, to be killed, frozen, starved and lied to.

``python -m tests.torture.device FILE [FIRST_ORDERS]``: FILE is JSON (``DevicesFile``). Orders come as JSON lines on
stdin; its end ends the process. On stdout, one JSON array a line: ``["a", packet]`` accepted (``AcceptedPacket``),
``["k", device, epoch, nonce, confirmed, rejected]`` an acknowledgement as it came, ``["h", device, epoch, nonce,
sha256]`` a heartbeat before it is sent, ``["s", held, finished]`` how many devices hold something, once a second. The
history goes through a pipe, so that a full disk never takes it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import queue
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from contracts.acks import decode_ack
from contracts.status import decode_status
from contracts.topics import DOWN_ACK, UP_STATUS
from edge_agent.agent import Agent
from edge_agent.journal import AcceptedPacket
from edge_agent.link import Event, Received
from edge_agent.mqtt_link import MqttLink
from edge_agent.settings import AgentSettings
from edge_agent.sources.base import Reading
from edge_agent.wiring import SystemClock, build_agent
from simulators.mischief import Mischief, Odds

SIGNALS = (1, 20)
"""Speed and engine speed."""
CATCH_UP_MS = 5_000
"""A longer jump of the clock is not made up for with readings."""
UNRULY = Odds(late=0.2, shuffled=0.5, held_back=0.3, repeated=0.1)
REPORT_MS = 1_000


class OneDevice(TypedDict):
    """One agent; ``every_ms`` is the period of its readings at rate 1."""

    device: str
    tenant: str
    cert: str
    key: str
    spool: str
    every_ms: int
    signals: int
    max_samples: int


class DevicesFile(TypedDict):
    """What a process is told at its start."""

    port: int
    ca: str
    spool_bytes: int
    devices: list[OneDevice]


class Moods:
    """What the process was ordered to pretend; shared by its clock and its sources."""

    def __init__(self) -> None:
        self.clock_ms = 0
        self.rate = 1.0
        self.late_ms = 0
        self.unruly = False
        self.ended = False

    def obey(self, order: dict[str, Any]) -> None:
        for name, value in order.items():
            setattr(self, name, value)


class LyingClock(SystemClock):
    """The machine's clock, set wrong; waiting is not affected."""

    def __init__(self, moods: Moods) -> None:
        self._moods = moods

    def now_ms(self) -> int:
        return super().now_ms() + self._moods.clock_ms


class Waves:
    """Two sines by wall time, as fast and as disorderly as the mood is."""

    can_wait = False
    cursor: str | None = None

    def __init__(self, number: int, one: OneDevice, moods: Moods) -> None:
        self._number, self._moods = number, moods
        self._every_ms, self._signals = one["every_ms"], SIGNALS[: one["signals"]]
        self._next_ms = 0.0
        self._mischief: Mischief[Reading] = Mischief(UNRULY, number)

    @property
    def finished(self) -> bool:
        return self._moods.ended

    def seek(self, cursor: str) -> None:
        raise AssertionError(f"a live source has no past, asked for {cursor}")

    def read(self, now_ms: int, limit: int) -> Sequence[Reading]:
        if self._moods.ended:
            return ()
        step_ms = self._every_ms / self._moods.rate
        if abs(now_ms - self._next_ms) > CATCH_UP_MS:
            self._next_ms = float(now_ms)
        readings: list[Reading] = []
        while self._next_ms <= now_ms and len(readings) < limit:
            readings += self._at(int(self._next_ms) - self._moods.late_ms)
            self._next_ms += step_ms
        if self._moods.unruly:
            return self._mischief.pass_on(readings)
        return readings + self._mischief.finish()

    def _at(self, at_ms: int) -> list[Reading]:
        phase = at_ms / 7_000 + self._number
        values = (round(60 + 40 * math.sin(phase), 2), round(2_000 + 900 * math.sin(phase * 1.3), 1))
        return [Reading(signal, at_ms, value) for signal, value in zip(self._signals, values, strict=False)]

    def close(self) -> None:
        """Holds nothing open."""


class EarLink(MqttLink):
    """The real link; what the cloud acknowledges is told to the judge as it comes, and each heartbeat before it leaves.

    Heartbeats are no packets: no spool holds them and no journal names them. Yet the gateway sets aside those of a run
    whose epoch is another's, so the judge must know whose they were.
    """

    def publish(self, channel: str, payload: bytes, ask_ack: bool) -> tuple[int, int] | None:
        if channel == UP_STATUS:
            status = decode_status(payload)
            tell("h", self._device, status.boot_epoch, status.nonce, hashlib.sha256(payload).hexdigest())
        return super().publish(channel, payload, ask_ack)

    def events(self) -> list[Event]:
        events = super().events()
        for event in events:
            if isinstance(event, Received) and event.channel == DOWN_ACK:
                ack = decode_ack(event.payload)
                tell("k", self._device, ack.boot_epoch, ack.nonce, ack.confirmed, ack.rejected)
        return events


def tell(*what: object) -> None:
    """One line on stdout, whole or not at all as far as the reader is concerned."""
    line = json.dumps(what, separators=(",", ":")).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]


def journal(packets: Sequence[AcceptedPacket]) -> None:
    for packet in packets:
        tell("a", packet)


def make_agent(number: int, one: OneDevice, told: DevicesFile, moods: Moods) -> Agent:
    settings = AgentSettings.model_validate(
        {
            "device": one["device"], "tenant": one["tenant"],
            "spool": {"path": one["spool"], "max_bytes": told["spool_bytes"]},
            "mqtt": {
                "host": "127.0.0.1", "port": told["port"], "ca": told["ca"], "cert": one["cert"], "key": one["key"],
                "keepalive_s": 5, "connect_timeout_s": 5, "backoff_min_ms": 100, "backoff_max_ms": 1_000,
            },
            "packing": {"packet_ms": 250, "max_samples": one["max_samples"]}, "sampling": {"thin": False},
            "uplink": {"ack_ms": 500, "resend_ms": 3_000, "resend_max_ms": 6_000, "status_ms": 1_000},
        }
    )  # fmt: skip
    wake = threading.Event()
    link = EarLink(one["device"], settings.mqtt, wake.set)
    return build_agent(settings, Waves(number, one, moods), LyingClock(moods), journal, wake, link)


def obey(agents: list[Agent], moods: Moods, orders: queue.SimpleQueue[dict[str, Any]], now_ms: int) -> None:
    """All orders that have come; between two ticks, since an agent belongs to one thread."""
    while not orders.empty():
        order = orders.get()
        if order.pop("resend", False):
            for agent in agents:
                if agent.spool is not None:
                    agent._parts.uplink.window.resend_all(now_ms)
        moods.obey(order)


def listen(orders: queue.SimpleQueue[dict[str, Any]], stop: threading.Event) -> None:
    for line in sys.stdin:
        orders.put(json.loads(line))
    stop.set()


def main(file: Path, first_orders: str) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s level=%(levelname)s logger=%(name)s %(message)s")
    told: DevicesFile = json.loads(file.read_text(encoding="utf-8"))
    moods, stop = Moods(), threading.Event()
    orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    orders.put(json.loads(first_orders))
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=listen, args=(orders, stop), daemon=True).start()
    clock = SystemClock()
    obey([], moods, orders, 0)
    agents = [make_agent(number, one, told, moods) for number, one in enumerate(told["devices"])]
    for agent in agents:
        agent.start()
    report_ms = 0
    while not stop.is_set():
        wait_ms = min(agent.tick() for agent in agents)
        now_ms = clock.mono_ms()
        obey(agents, moods, orders, now_ms)
        if now_ms >= report_ms:
            report_ms = now_ms + REPORT_MS
            tell("s", sum(not agent.drained for agent in agents), moods.ended)
        stop.wait(wait_ms / 1_000)
    for agent in agents:
        agent.stop(drain_ms=0)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "{}"))
