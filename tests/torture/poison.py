"""Bad input of every kind that we could think of, from a registered device without an agent; each piece is unique."""

from __future__ import annotations

import hashlib
import json
import random
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from contracts.limits import MAX_FUTURE_MS
from contracts.packet import (
    CRC_BYTES,
    MARKER,
    MAX_FRAME_BYTES,
    Block,
    DoubleBlock,
    Header,
    Lane,
    Packet,
    encode_packet,
    seal,
)
from contracts.topics import UP_BACKLOG, UP_LIVE, UP_STATUS
from edge_agent.mqtt_link import MqttLink
from edge_agent.settings import MqttSettings

DEVICE, TENANT = "poison-0", "acme"
RESEND_S = 4.0
LOOK_S = 0.25
HUNDRED_YEARS_MS = 100 * 365 * 24 * 3600 * 1000


def make_poison(chance: random.Random, now_ms: int) -> list[tuple[str, str, bytes]]:
    """(name, channel, payload) of one helping."""
    salt = chance.getrandbits(40)
    bytes_ = chance.randbytes

    def frame(seq: int, **change: object) -> bytes:
        told = {
            "tenant": TENANT, "device": DEVICE, "boot_epoch": salt, "nonce": 7, "seq": seq, "lane": int(Lane.LIVE),
            "base_ms": now_ms, "mono_ms": 1, "clock_trusted": True, "samples": 1, **change,
        }  # fmt: skip
        return encode_packet(Packet(Header(**told), (Block(1, -2, 0, (0,), (5_000,)),)))  # type: ignore[arg-type]

    good = frame(1)
    nan = Packet(
        Header(TENANT, DEVICE, salt, 7, 9, 0, now_ms + 2 * MAX_FUTURE_MS, 1, True, 1),
        doubles=(DoubleBlock(1, (0,), (float("nan"),)),),
    )
    bomb = good[: -CRC_BYTES - 8] + struct.pack(">Q", 0xFFFFFFFFFFFFFF0F) + bytes_(6)
    return [
        ("noise", UP_LIVE, bytes_(300)),
        ("noise behind the marker", UP_LIVE, MARKER + bytes_(300)),
        ("one bit flipped", UP_LIVE, good[:40] + bytes([good[40] ^ 4]) + good[41:]),
        ("unknown writer", UP_LIVE, seal(MARKER + bytes_(8) + good[10:-CRC_BYTES])),
        ("half a packet", UP_LIVE, good[: len(good) // 2]),
        ("another device's name", UP_LIVE, frame(2, device="fleet-0-0")),
        ("another tenant", UP_LIVE, frame(3, tenant="globex")),
        ("another lane", UP_BACKLOG, frame(4)),
        ("from the future", UP_LIVE, frame(5, base_ms=now_ms + 2 * MAX_FUTURE_MS)),
        ("from long ago", UP_LIVE, frame(6, base_ms=now_ms - HUNDRED_YEARS_MS // 2)),
        ("number zero", UP_LIVE, frame(0)),
        ("fewer samples than said", UP_LIVE, frame(7, samples=2)),
        ("body cut short, checksum right", UP_LIVE, seal(frame(8)[: -CRC_BYTES - 3])),
        ("not a number, from the future", UP_LIVE, encode_packet(nan)),
        ("an array of 2^56 items", UP_LIVE, seal(bomb)),
        ("larger than a frame", UP_LIVE, bytes_(MAX_FRAME_BYTES + 1_000)),
        ("a heartbeat that is no JSON", UP_STATUS, b"{" + bytes_(20)),
        ("a heartbeat nested 10,000 deep", UP_STATUS, b"[" * 10_000 + str(salt).encode()),
        ("a heartbeat of another format", UP_STATUS, json.dumps({"v": 99, "salt": salt}).encode()),
        ("a channel that does not exist", f"nonsense-{salt}", bytes_(10)),
    ]  # fmt: skip


class PoisonSender:
    """Publishes until the store shows a trace of each piece: a broker may lose what it took."""

    def __init__(self, port: int, ca: Path, cert: Path, key: Path, noticed: Callable[[], set[str]]) -> None:
        settings = MqttSettings(
            host="127.0.0.1", port=port, ca=ca, cert=cert, key=key, keepalive_s=5, backoff_max_ms=1_000
        )
        self._link = MqttLink(DEVICE, settings, lambda: None)
        self._noticed = noticed
        self._stop = threading.Event()
        self._left: dict[str, tuple[str, bytes]] = {}
        self.sent: dict[str, str] = {}
        """SHA-256 to name, of everything ever given out."""
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="poison")

    def start(self) -> None:
        self._link.start()
        self._thread.start()

    def give(self, helping: list[tuple[str, str, bytes]]) -> None:
        with self._lock:
            for name, channel, payload in helping:
                digest = hashlib.sha256(payload).hexdigest()
                self.sent[digest] = name
                self._left[digest] = (channel, payload)

    @property
    def left(self) -> list[str]:
        """Names of what has left no trace yet."""
        with self._lock:
            return [self.sent[digest] for digest in self._left]

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._link.stop()

    def _run(self) -> None:
        next_s = 0.0
        while not self._stop.wait(LOOK_S):
            self._link.events()
            if time.monotonic() < next_s or not self._left:
                continue
            next_s = time.monotonic() + RESEND_S
            noticed = self._noticed()
            with self._lock:
                self._left = {digest: one for digest, one in self._left.items() if digest not in noticed}
                left = list(self._left.values())
            for channel, payload in left:
                self._link.publish(channel, payload, ask_ack=False)
