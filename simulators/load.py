"""Thousands of devices in one process: one thread, one selector, real sessions, real packets, real acknowledgements.

Nothing is skipped: every packet is encoded whole, travels over its own device's mutual TLS session at QoS 1 and is
held until the gateway's end-to-end acknowledgement. A device whose window is full lets its turn pass and that is
counted, so the figures show when the line and not the generator is the limit.
"""

from __future__ import annotations

import heapq
import resource
import secrets
import selectors
import ssl
import threading
import time
from dataclasses import dataclass, field

from paho.mqtt.enums import MQTTErrorCode

from simulators.errors import PlanError
from simulators.load_device import Counts, Journal, LoadDevice, publish_properties
from simulators.plan import FleetPlan
from simulators.tape import Shape, record

FILES_BESIDE = 200
TAPES, TAPE_PACKETS = 8, 60
UPKEEP_S = 5.0
SELECT_S = 0.05


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """``window``: packets per device that may wait for confirmation; ``ask_s``: how often a device asks for one."""

    shape: Shape = field(default_factory=Shape)
    window: int = 60
    ask_s: float = 5.0
    resend_s: float = 30.0


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a run did. ``behind_s``: how late the latest turn was; latencies are publish to confirmation."""

    devices: int
    connected: int
    seconds: float
    cpu_s: float
    sent_packets: int
    sent_samples: int
    acked_packets: int
    rejected_packets: int
    unacked_packets: int
    resent_packets: int
    turns_held: int
    refused_publishes: int
    disconnects: int
    behind_s: float
    ack_ms_p50: int | None
    ack_ms_p95: int | None


class Load:
    """A load run: ``connect``, ``run``, ``drain``, ``close``; used by one thread."""

    def __init__(
        self, plan: FleetPlan, settings: LoadSettings, boot_epoch: int, journal: Journal | None = None
    ) -> None:
        """``boot_epoch`` must be new for these devices, since nothing is kept between runs."""
        _allow_files(len(plan.devices))
        self._plan, self._settings, self._journal = plan, settings, journal
        self.counts = Counts()
        tapes = [record(seed, settings.shape, TAPE_PACKETS) for seed in range(TAPES)]
        self.devices = [
            LoadDevice(planned, boot_epoch, secrets.randbits(62) + 1, tapes[n % TAPES], n * 7, self.counts)
            for n, planned in enumerate(plan.devices)
        ]
        self._ask = publish_properties()
        self._selector = selectors.DefaultSelector()
        self._registered: dict[int, int] = {}
        self._upkeep_s = 0.0
        self._began_s = self._began_cpu_s = self._ran_s = self._behind_s = 0.0

    def connect(self, timeout_s: float = 120.0) -> None:
        """Open every session. Raises PlanError when not all answer in time."""
        for number, (device, planned) in enumerate(zip(self.devices, self._plan.devices, strict=True)):
            device.connect(self._plan.broker, planned)
            self._watch(number)
            if number % 50 == 0:
                self._serve(0.0)
        deadline_s = time.monotonic() + timeout_s
        while not all(device.connected for device in self.devices):
            self._serve(SELECT_S)
            if time.monotonic() > deadline_s:
                missing = sum(not device.connected for device in self.devices)
                raise PlanError(f"{missing} of {len(self.devices)} devices were not let in; are they enrolled?")

    def run(self, seconds: float, stop: threading.Event) -> None:
        """Every device sends a packet each ``packet_ms``, their phases spread evenly."""
        period_s = self._settings.shape.packet_ms / 1_000
        self._began_s, self._began_cpu_s = time.monotonic(), time.process_time()
        turns = [(self._began_s + period_s * n / len(self.devices), n) for n in range(len(self.devices))]
        heapq.heapify(turns)
        ends_s = self._began_s + seconds
        while (now_s := time.monotonic()) < ends_s and not stop.is_set():
            while turns[0][0] <= now_s:
                due_s, number = turns[0]
                self._behind_s = max(self._behind_s, now_s - due_s)
                self._turn(number, now_s)
                heapq.heapreplace(turns, (due_s + period_s, number))
                if now_s - due_s > period_s:
                    break
            self._serve(min(SELECT_S, max(0.0, turns[0][0] - time.monotonic())))
        self._ran_s = time.monotonic() - self._began_s

    def drain(self, timeout_s: float) -> bool:
        """Send nothing new until all is confirmed; False when ``timeout_s`` was not enough."""
        deadline_s = time.monotonic() + timeout_s
        for device in self.devices:
            device.resend(time.monotonic(), self._settings.ask_s, self._ask)
        while any(device.held for device in self.devices):
            if time.monotonic() > deadline_s:
                return False
            self._serve(SELECT_S)
        return True

    def close(self) -> None:
        """Say goodbye everywhere."""
        for device in self.devices:
            device.client.disconnect()
        self._selector.close()

    def report(self) -> LoadReport:
        counts = self.counts
        return LoadReport(
            devices=len(self.devices),
            connected=sum(device.connected for device in self.devices),
            seconds=round(self._ran_s, 2),
            cpu_s=round(time.process_time() - self._began_cpu_s, 2),
            sent_packets=counts.sent,
            sent_samples=counts.sent_samples,
            acked_packets=counts.acked,
            rejected_packets=counts.rejected,
            unacked_packets=sum(len(device.held) for device in self.devices),
            resent_packets=counts.resent,
            turns_held=counts.turns_held,
            refused_publishes=counts.refused_publishes,
            disconnects=counts.disconnects,
            behind_s=round(self._behind_s, 3),
            ack_ms_p50=counts.ack_latency_ms(0.5),
            ack_ms_p95=counts.ack_latency_ms(0.95),
        )

    def _turn(self, number: int, now_s: float) -> None:
        settings, device = self._settings, self.devices[number]
        base_ms = time.time_ns() // 1_000_000 - settings.shape.packet_ms
        device.turn(now_s, base_ms, settings.window, self._ask, settings.ask_s, self._journal)
        self._watch(number)

    def _serve(self, timeout_s: float) -> None:
        """Read and write what is ready; keepalives, reconnects and resends now and then."""
        for key, events in self._selector.select(timeout_s):
            device = self.devices[key.data]
            if events & selectors.EVENT_READ:
                _read(device)
            if events & selectors.EVENT_WRITE:
                device.client.loop_write()
            self._watch(key.data)
        now_s = time.monotonic()
        if now_s >= self._upkeep_s:
            self._upkeep_s = now_s + UPKEEP_S
            for number, device in enumerate(self.devices):
                self._look_after(number, device, now_s)

    def _look_after(self, number: int, device: LoadDevice, now_s: float) -> None:
        if not device.opened:
            return
        if device.tick() != MQTTErrorCode.MQTT_ERR_SUCCESS and device.client.socket() is None:
            try:
                device.client.reconnect()
            except OSError:
                return
        device.resend(now_s, self._settings.resend_s, self._ask)
        self._watch(number)

    def _watch(self, number: int) -> None:
        """Keep the selector's interest in step with the client's socket and its wish to write."""
        client = self.devices[number].client
        socket = client.socket()
        known = self._registered.get(number, -1)
        current = socket.fileno() if socket is not None else -1
        if known not in (-1, current):
            self._selector.unregister(known)
            del self._registered[number]
        if socket is None or current == -1:
            return
        wish = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.want_write() else 0)
        if current != known:
            self._selector.register(current, wish, number)
            self._registered[number] = current
        elif self._selector.get_key(current).events != wish:
            self._selector.modify(current, wish, number)


def _read(device: LoadDevice) -> None:
    """One read, and more while TLS has bytes that the selector cannot see."""
    client = device.client
    client.loop_read()
    while isinstance(socket := client.socket(), ssl.SSLSocket) and socket.pending():
        client.loop_read()


def _allow_files(devices: int) -> None:
    """One open file per device. Raises PlanError when the machine's hard limit is lower."""
    wanted = devices + FILES_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard not in (resource.RLIM_INFINITY, -1) and hard < wanted:
        raise PlanError(f"{devices} devices need {wanted} open files, this machine allows {hard}; raise `ulimit -Hn`")
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
