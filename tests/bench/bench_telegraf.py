"""The gateway's work done by Telegraf and by the gateway, in turns, on the same broker, Kafka and backlog.

Both acknowledge after Kafka (``acks=all``, zstd, key = device) and keep every byte: Telegraf by its value parser's
base64 form. Each then takes a backlog while it is killed KILLS times; what is lost or doubled is read from Kafka.
Telegraf is built by the go command where there is one (about 40 MB, MIT licence), or FLEETSTREAM_BENCH_TELEGRAF names
a binary. It is a yardstick: nothing of it is in the product.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from contracts.packet import decode_header
from contracts.topics import Topics, up_topic
from infra.kafka import create_topics
from infra.paths import default_cache
from tests.bench.bench_gateway import DEVICES, PACKETS, PATIENCE_S, backends, cpu_s, frame, publish
from tests.bench.figures import Figure, Report
from tests.fix_stack import MqttBroker
from tests.gateway.harness import Log, Worker, forget_session, tls_client, wait_for
from tests.gateway.samples import registration

BINARY = "FLEETSTREAM_BENCH_TELEGRAF"
VERSION = "v1.37.2"
TAGS = "custom,inputs.mqtt_consumer,outputs.kafka,parsers.value,serializers.template"
ROUNDS = 3
KILLS = 10
WORKER = 1
"""Telegraf's place among the gateway's workers: the broker's rules let those read what devices send."""
PROBE_SEQ = 1_000_000
QUIET_S = 20.0
"""Nothing more comes after so long without a record."""
CONFIG = """
[agent]
  interval = "1s"
  flush_interval = "200ms"
  metric_batch_size = 1000
  metric_buffer_limit = 100000
  omit_hostname = true
[[inputs.mqtt_consumer]]
  servers = ["ssl://{host}:{mqtt}"]
  topics = ["v1/+/up/live"]
  qos = 1
  persistent_session = true
  client_id = "{client}"
  max_undelivered_messages = 2000
  tls_ca = "{ca}"
  tls_cert = "{certificate}"
  tls_key = "{key}"
  data_format = "value"
  data_type = "base64"
  [[inputs.mqtt_consumer.topic_parsing]]
    topic = "v1/+/up/live"
    tags = "_/device/_/_"
[[outputs.kafka]]
  brokers = ["{bootstrap}"]
  topic = "{topic}"
  routing_tag = "device"
  required_acks = -1
  compression_codec = 4
  version = "2.8.0"
  data_format = "template"
  template = '{{{{ .Field "value" }}}}'
"""


@dataclass(slots=True)
class Telegraf:
    """One Telegraf; ``start`` returns when it runs, what it takes is seen in Kafka."""

    binary: Path
    config: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [str(self.binary), "--quiet", "--config", str(self.config)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self, how: int = signal.SIGKILL) -> None:
        assert self.process
        self.process.send_signal(how)
        self.process.wait(PATIENCE_S)

    def stop(self) -> None:
        self.kill(signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Bridge:
    """Who does the work, and how his records are read."""

    start: Callable[[], None]
    stop: Callable[[], object]
    kill: Callable[[], None]
    leave: Callable[[], None]
    pid: Callable[[], int]
    decode: Callable[[bytes], bytes]
    log: Log

    @property
    def taken(self) -> int:
        return self.log.end(self.log.topics.live)


@dataclass(slots=True)
class Readings:
    """Of one bridge, round by round."""

    cpu_s: list[float] = field(default_factory=list)
    per_s: list[float] = field(default_factory=list)
    resident_mib: list[float] = field(default_factory=list)
    lost: int = 0
    doubled: int = 0


def run() -> Report:
    """Rounds in turns, then the kills."""
    binary = telegraf()
    ours, theirs = Readings(), Readings()
    with backends() as stack:
        broker = MqttBroker("127.0.0.1", stack.ports.mqtt, stack.authority.ca_file, stack.authority.client)
        bootstrap = f"127.0.0.1:{stack.ports.kafka}"
        for turn in range(ROUNDS + 1):
            for readings, make in ((ours, gateway), (theirs, lambda *a: peer(binary, stack.home, *a))):
                bridge = make(broker, bootstrap, f"turn{turn}-{'gateway' if readings is ours else 'telegraf'}")
                try:
                    (killed if turn == ROUNDS else taken)(bridge, broker, readings)
                finally:
                    bridge.leave()
    return report(ours, theirs)


def report(ours: Readings, theirs: Readings) -> Report:
    made = Report("The gateway against Telegraf")
    backlog = f"{DEVICES} devices over mTLS, backlog of {PACKETS:,} packets of {len(frame('car-0', 1, 0))} B, QoS 1"
    kills = f"{KILLS} times SIGKILL while it takes the backlog; distinct packets missing, further copies in Kafka"
    each = 100_000 / PACKETS
    pair = zip(ours.cpu_s, theirs.cpu_s, strict=True)
    times = tuple(peer_s / own_s for own_s, peer_s in pair)
    made.figures.append(Figure("Telegraf's CPU over the gateway's", "times", times, 1.0, True, "the same rounds"))
    for name, read, checks in (
        ("gateway", ours, "identity, CRC, header and rate checked, devices answered"),
        (f"Telegraf {VERSION}", theirs, "nothing checked, no device answered; packets stored as base64"),
    ):
        text = f"{backlog}; {checks}"
        made.figures += [
            Figure(f"{name}, CPU", "CPU-s per 100k", tuple(each * one for one in read.cpu_s), None, False, text),
            Figure(f"{name}, rate", "1/s", tuple(read.per_s), None, True, "the same"),
            Figure(f"{name}, resident", "MiB", tuple(read.resident_mib), None, False, "the same"),
            Figure(f"{name}, lost", "packets", (read.lost,), 0 if read is ours else None, False, kills),
            Figure(f"{name}, doubled", "packets", (read.doubled,), None, False, kills),
        ]  # fmt: skip
    made.notes.append("What a kill doubles in the log is stored once: the store goes by identity.")
    return made


def telegraf() -> Path:
    """The binary, built once into the cache. Raises RuntimeError without go."""
    named = os.environ.get(BINARY)
    place = Path(named) if named else default_cache() / f"telegraf-{VERSION}" / "telegraf"
    if place.is_file():
        return place
    if named or not shutil.which("go"):
        raise RuntimeError(f"Telegraf is not there: install Go, or name a binary of {VERSION} in {BINARY}")
    command = ["go", "install", "-tags", TAGS, f"github.com/influxdata/telegraf/cmd/telegraf@{VERSION}"]
    subprocess.run(command, check=True, env={**os.environ, "GOBIN": str(place.parent)})
    return place


def gateway(broker: MqttBroker, bootstrap: str, prefix: str) -> Bridge:
    log = fresh_log(bootstrap, prefix)
    log.register(*(registration(f"car-{number}") for number in range(DEVICES)))
    worker = Worker(broker, bootstrap, prefix, {"VERIFY": "header", "DEVICE_BURST_PACKETS": str(PACKETS)})
    forget_session(broker, 0)
    forget_session(broker, WORKER)
    return Bridge(
        lambda: worker.start(until_ready=False), worker.stop, worker.kill, worker.leave,
        lambda: worker.process.pid if worker.process else 0, bytes, log,
    )  # fmt: skip


def peer(binary: Path, home: Path, broker: MqttBroker, bootstrap: str, prefix: str) -> Bridge:
    log = fresh_log(bootstrap, prefix)
    forget_session(broker, 0)
    forget_session(broker, WORKER)
    client = f"gateway-{WORKER}"
    own = broker.issue(client)
    config = home / f"{prefix}.conf"
    config.write_text(CONFIG.format(
        host=broker.host, mqtt=broker.port, client=client, ca=own.ca, certificate=own.certificate, key=own.key,
        bootstrap=bootstrap, topic=log.topics.live.name,
    ))  # fmt: skip
    made = Telegraf(binary, config)
    return Bridge(
        made.start, made.stop, made.kill, made.kill, lambda: made.process.pid if made.process else 0,
        base64.b64decode, log,
    )  # fmt: skip


def fresh_log(bootstrap: str, prefix: str) -> Log:
    topics = Topics(prefix)
    create_topics(bootstrap, topics.all())
    return Log(bootstrap, prefix)


def prepare(bridge: Bridge, broker: MqttBroker) -> tuple[float, int]:
    """Leave the session in which the backlog gathers; (CPU seconds of the start alone, records by then)."""
    bridge.start()
    client = tls_client(broker, "car-0")
    client.connect(broker.host, broker.port)
    client.loop_start()
    probe = frame("car-0", PROBE_SEQ, int(time.time() * 1000))

    def through() -> bool:
        client.publish(up_topic("car-0", "live"), probe, 1).wait_for_publish(PATIENCE_S)
        return bridge.taken > 0

    wait_for("a probe in Kafka", through, PATIENCE_S)
    client.disconnect()
    client.loop_stop()
    at_rest(bridge)
    idle_s = cpu_s(bridge.pid())
    bridge.stop()
    publish(broker)
    return idle_s, bridge.taken


def at_rest(bridge: Bridge, quiet_s: float = 2.0) -> None:
    """Wait until no record has come for so long."""
    seen, since = bridge.taken, time.monotonic()

    def still() -> bool:
        nonlocal seen, since
        if (now := bridge.taken) != seen:
            seen, since = now, time.monotonic()
        return time.monotonic() - since >= quiet_s

    wait_for("the bridge to be at rest", still, PATIENCE_S + quiet_s)


def taken(bridge: Bridge, broker: MqttBroker, readings: Readings) -> None:
    """One backlog without a kill."""
    idle_s, before = prepare(bridge, broker)
    bridge.start()
    wait_for("the first packet in Kafka", lambda: bridge.taken > before, PATIENCE_S)
    begun_s, begun_at = time.perf_counter(), bridge.taken
    wait_for("the backlog in Kafka", lambda: bridge.taken >= before + PACKETS, PATIENCE_S)
    readings.per_s.append((before + PACKETS - begun_at) / (time.perf_counter() - begun_s))
    readings.cpu_s.append(cpu_s(bridge.pid()) - idle_s)
    readings.resident_mib.append(psutil.Process(bridge.pid()).memory_info().rss / 2**20)
    if missing := count(bridge)[0]:
        raise RuntimeError(f"{missing} packets are missing from Kafka; the figure would be worthless")


def killed(bridge: Bridge, broker: MqttBroker, readings: Readings) -> None:
    """One backlog with kills spread over it."""
    _, before = prepare(bridge, broker)
    for kill in range(1, KILLS + 1):
        mark = before + PACKETS * kill // (KILLS + 1)
        bridge.start()
        wait_for("progress", lambda mark=mark: bridge.taken >= mark, PATIENCE_S)  # type: ignore[misc]
        bridge.kill()
    bridge.start()
    at_rest(bridge, QUIET_S)  # one that loses never has them all
    readings.lost, readings.doubled = count(bridge)


def count(bridge: Bridge) -> tuple[int, int]:
    """(distinct packets of the backlog that are not in Kafka, further copies of those that are)."""
    copies = Counter((one.key, bridge.decode(one.value)) for one in bridge.log.read(bridge.log.topics.live))
    probes = sum(1 for _, value in copies if is_probe(value))
    distinct = len(copies) - probes
    return PACKETS - distinct, sum(n - 1 for (_, value), n in copies.items() if not is_probe(value))


def is_probe(value: bytes) -> bool:
    return decode_header(value).seq == PROBE_SEQ
