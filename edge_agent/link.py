"""The MQTT connection as the uplink sees it: publish, and events to be collected. The broker's client hides behind it.

Events carry the generation of their connection, since packet ids begin anew with each: a PUBACK of an older
connection names another packet. The pure back-off stands here too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Connected:
    """The broker said yes. ``receive_maximum``: how many unacknowledged publishes it takes."""

    generation: int
    session_present: bool
    receive_maximum: int


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is gone, or was refused; the link tries again by itself."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class PubAck:
    """The broker answered a publish; ``refused`` is a reason code of 0x80 and above, else 0."""

    generation: int
    message_id: int
    refused: int


@dataclass(frozen=True, slots=True)
class Received:
    """Something came down to this device; ``channel`` is the topic's last level."""

    generation: int
    channel: str
    payload: bytes


Event = Connected | Disconnected | PubAck | Received


class Link(Protocol):
    """What a connection must offer; ``mqtt_link.MqttLink`` is the real one."""

    def start(self) -> None:
        """Begin to connect, and keep connecting."""
        ...

    def publish(self, channel: str, payload: bytes, ask_ack: bool) -> tuple[int, int] | None:
        """(generation, message id) of a QoS 1 publish to the device's up channel; None without a connection."""
        ...

    def events(self) -> list[Event]:
        """What happened since the last call, in order."""
        ...

    def stop(self) -> None:
        """Say goodbye, keep the session at the broker."""
        ...


def full_jitter_ms(attempt: int, least_ms: int, most_ms: int, random: Callable[[], float]) -> int:
    """How long to wait before connection attempt ``attempt`` (1 = first repeat): between least and ceiling.

    A fleet that lost its broker together must not return together, so the wait is spread over the whole interval.
    ``random`` gives [0, 1).
    """
    ceiling_ms = min(most_ms, least_ms << min(attempt, 30))
    return least_ms + int(random() * max(0, ceiling_ms - least_ms))
