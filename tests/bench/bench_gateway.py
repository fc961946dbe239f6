"""What a packet costs the gateway: a backlog at the broker, taken to Kafka by one worker, PUBACKs after ``acks=all``.

Figures are the worker's own CPU (user and system) over its whole life less what an idle start costs. Broker,
Kafka and gateway share the machine, so packets per second of wall time say less than packets per CPU-second.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from contracts.packet import Block, Header, Packet, encode_packet
from contracts.topics import Topics, up_topic
from infra.backends import Backends, Ports
from infra.kafka import create_topics
from infra.paths import default_cache
from infra.processes import free_port
from tests.bench.figures import Figure, Report
from tests.fix_stack import MqttBroker
from tests.gateway.harness import Log, Worker, forget_session, tls_client, wait_for
from tests.gateway.samples import registration

DEVICES = 100
PACKETS_PER_DEVICE = 500
PACKETS = DEVICES * PACKETS_PER_DEVICE
ROUNDS = 3
SAMPLES = 14
BLOCKS = 10
PATIENCE_S = 180.0


@dataclass(frozen=True, slots=True)
class Round:
    """One backlog taken."""

    per_cpu_s: float
    per_s: float
    resident_mib: float


def run() -> Report:
    report = Report("Gateway: MQTT to Kafka, acknowledged after Kafka")
    with backends() as stack:
        broker = MqttBroker("127.0.0.1", stack.ports.mqtt, stack.authority.ca_file, stack.authority.client)
        size = len(frame("car-0", 1, 0))
        base = f"{DEVICES} devices over mTLS, {size} B packets of {BLOCKS * SAMPLES} samples, backlog of {PACKETS:,}"
        for verify, target in (("header", 25_000.0), ("whole", 12_000.0)):
            rounds = [_round(broker, f"127.0.0.1:{stack.ports.kafka}", f"bench-{verify}-{n}", verify)
                      for n in range(ROUNDS)]  # fmt: skip
            text = f"{base}, verify={verify}"
            report.figures += [
                Figure(f"packets per CPU-second, {verify}", "1/s", tuple(r.per_cpu_s for r in rounds), target,
                       conditions=text),
                Figure(f"packets per second, {verify}", "1/s", tuple(r.per_s for r in rounds), conditions=text),
                Figure(f"resident memory, {verify}", "MiB", tuple(r.resident_mib for r in rounds), conditions=text),
            ]  # fmt: skip
    report.notes += [
        "The worker's TLS, MQTT decoding and librdkafka are inside the figure; publishing is not.",
        "What whole costs above header is decoding: fastavro makes a Python object of every number.",
    ]
    return report


@contextmanager
def backends() -> Iterator[Backends]:
    home = Path(tempfile.mkdtemp(prefix="fleetstream-bench-"))
    ports = Ports(postgres=free_port(), kafka=free_port(), kafka_controller=free_port(), mqtt=free_port())
    stack = Backends(home, default_cache(), ports)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()
        shutil.rmtree(home, ignore_errors=True)


def _round(broker: MqttBroker, bootstrap: str, prefix: str, verify: str) -> Round:
    topics = Topics(prefix)
    create_topics(bootstrap, topics.all())
    log = Log(bootstrap, prefix)
    log.register(*(registration(f"car-{number}") for number in range(DEVICES)))
    settings = {"VERIFY": verify, "DEVICE_BURST_PACKETS": str(PACKETS_PER_DEVICE)}
    worker = Worker(broker, bootstrap, prefix, settings)
    forget_session(broker)
    try:
        worker.start()  # leaves the session in which the backlog gathers
        idle_s = cpu_s(_pid(worker))
        worker.stop()
        publish(broker)
        worker.start(until_ready=False)
        wait_for("the first packet in Kafka", lambda: log.end(topics.live) > 0, PATIENCE_S)
        begun_s, begun_at = time.perf_counter(), log.end(topics.live)
        # asked of Kafka: a page of metrics costs the worker as much as a hundred packets
        wait_for("the backlog to be in Kafka", lambda: log.end(topics.live) >= PACKETS, PATIENCE_S)
        wall_s = time.perf_counter() - begun_s
        wait_for("the last PUBACK", lambda: worker.metric("pubacks_total") >= PACKETS)
        spent_s = cpu_s(_pid(worker)) - idle_s
        resident = psutil.Process(_pid(worker)).memory_info().rss / 2**20
    finally:
        worker.leave()
    stored = len(log.read(topics.live))
    if stored < PACKETS:
        raise RuntimeError(f"{PACKETS - stored} packets are missing from Kafka; the figure would be worthless")
    return Round(PACKETS / spent_s, (PACKETS - begun_at) / wall_s, resident)


def publish(broker: MqttBroker) -> None:
    now_ms = int(time.time() * 1000)
    for number in range(DEVICES):
        name = f"car-{number}"
        client = tls_client(broker, name)
        client.max_inflight_messages = 100
        client.connect(broker.host, broker.port)
        client.loop_start()
        sent = [client.publish(up_topic(name, "live"), frame(name, seq, now_ms), 1)
                for seq in range(1, PACKETS_PER_DEVICE + 1)]  # fmt: skip
        for one in sent:
            one.wait_for_publish(PATIENCE_S)
        client.disconnect()
        client.loop_stop()


def frame(name: str, seq: int, now_ms: int) -> bytes:
    offsets = tuple(100 * at for at in range(SAMPLES))
    values = tuple((at * 37 + seq) % 4_000 for at in range(SAMPLES))
    blocks = tuple(Block(number, -2, 1_000 * number, offsets, values) for number in range(1, BLOCKS + 1))
    header = Header("acme", name, 1, 0x1234_5678_9ABC_DEF0, seq, 0, now_ms, 123_456_789, True, BLOCKS * SAMPLES)
    return encode_packet(Packet(header, blocks))


def _pid(worker: Worker) -> int:
    assert worker.process
    return worker.process.pid


def cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
