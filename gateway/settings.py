"""What can be configured: environment, then the ``[gateway]`` table of the TOML file, then defaults.

Environment names are ``FLEETSTREAM__GATEWAY__KEY``; the file's path stands in ``FLEETSTREAM_CONFIG``.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from contracts.names import NAME_PATTERN
from contracts.topics import SHARE_GROUP
from gateway.errors import SettingsError

CONFIG_VARIABLE = "FLEETSTREAM_CONFIG"
ROOM = "gateway"


class GatewaySettings(BaseSettings):
    """One worker. Workers of one stack differ only in ``worker``, the certificate and the metrics port."""

    model_config = SettingsConfigDict(
        env_prefix="FLEETSTREAM__GATEWAY__", env_nested_delimiter="__", frozen=True, extra="forbid"
    )

    mqtt_host: str = "127.0.0.1"
    mqtt_port: int = Field(default=8883, ge=1, le=65535)
    ca_file: Path = Field(default=Path("ca.pem"), description="who signed the broker's certificate")
    certificate_file: Path = Field(default=Path("gateway.pem"), description="its common name is gateway-{worker}")
    key_file: Path = Path("gateway.key")
    worker: int = Field(
        default=0, ge=0, description="fixed number of this worker; never run one number twice at a time"
    )
    share_group: str = Field(
        default=SHARE_GROUP,
        pattern=f"^{NAME_PATTERN.pattern}$",
        description="one per stack; before changing it let the old sessions expire, or they collect a second copy",
    )
    keepalive_s: int = Field(default=30, ge=5, le=120)
    connect_timeout_s: float = Field(default=10.0, gt=0)
    session_expiry_s: int = Field(
        default=48 * 3600, ge=3600, description="how long the broker keeps this worker's share while it is away"
    )
    receive_maximum: int = Field(
        default=2_000, ge=1, le=65_535, description="unacknowledged publishes the broker may send"
    )

    kafka_bootstrap: str = "127.0.0.1:9092"
    topic_prefix: str = Field(default="fleet", pattern=r"^[A-Za-z0-9_-]{1,64}$")
    linger_ms: float = Field(default=5.0, ge=0)

    metrics_host: str = Field(default="127.0.0.1", description="loopback: the page has no authentication")
    metrics_port: int = Field(
        default=19101, ge=0, le=65535, description="/livez, /readyz and /metrics; 0 takes a free one"
    )

    outstanding_messages: int = Field(default=4_000, ge=1, description="received, not yet in Kafka; then reading stops")
    outstanding_bytes: int = Field(default=64 * 1024 * 1024, ge=1024 * 1024)
    device_packets_per_s: float = Field(
        default=500.0, gt=0, description="per device and lane; more is left in its spool"
    )
    device_burst_packets: int = Field(default=2_000, ge=1)
    ack_after_ms: int = Field(default=5_000, ge=0, description="a confirmation waits at most this long for company")
    stalled_after_ms: int = Field(default=15_000, ge=1, description="not ready when Kafka owes an answer for this long")
    registry_max_age_ms: int = Field(
        default=60_000, ge=1, description="the registry's heartbeat: older raises the alarm gauge"
    )
    drain_timeout_s: float = Field(default=10.0, ge=0, description="how long SIGTERM waits for Kafka and for last acks")
    verify: Literal["header", "whole"] = Field(
        default="header", description="whole: decode every sample before accepting"
    )

    @property
    def worker_id(self) -> str:
        """MQTT client id and certificate name."""
        return f"gateway-{self.worker}"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, env_settings, InitSettingsSource(settings_cls, _room_table()))


def load_settings() -> GatewaySettings:
    """Raises SettingsError with one line per wrong key."""
    try:
        return GatewaySettings()
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, item['loc'])) or ROOM}: {item['msg']}" for item in error.errors()]
        raise SettingsError("The gateway's settings are wrong; nothing was started: " + "; ".join(lines)) from error


def _room_table() -> dict[str, Any]:
    named = os.environ.get(CONFIG_VARIABLE)
    if not named:
        return {}
    try:
        table = tomllib.loads(Path(named).read_text(encoding="utf-8")).get(ROOM, {})
    except (OSError, ValueError) as error:
        raise SettingsError(f"{CONFIG_VARIABLE} names {named}, which cannot be read as TOML: {error}") from error
    return table if isinstance(table, dict) else {ROOM: table}
