"""What can be configured on a device: environment, then the ``[edge_agent]`` table of the TOML file, then defaults.

Environment names are ``FLEETSTREAM__EDGE_AGENT__KEY`` with ``__`` between levels, for example
``FLEETSTREAM__EDGE_AGENT__MQTT__HOST``; the file's path stands in ``FLEETSTREAM_CONFIG``.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from contracts.names import NAME_PATTERN
from edge_agent.errors import SettingsError
from edge_agent.recorder.settings import RecorderSettings

Name = Annotated[str, StringConstraints(pattern=f"^{NAME_PATTERN.pattern}$")]
MAX_SAMPLES_PER_PACKET = 7_000
"""A sample takes at most 17 bytes (5 time, 10 value, 2 quality); 7,000 of them and every block's head fit a frame."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MqttSettings(_Part):
    """The broker and this device's identity. Without ``ca`` the link is plain TCP (loopback tests only)."""

    host: str = "127.0.0.1"
    port: int = 8883
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    keepalive_s: int = Field(default=30, ge=5, le=44)
    """paho notices a dead link after two keepalives; 44 keeps that under the promised 90 s."""
    session_expiry_s: int = 7 * 24 * 3600
    connect_timeout_s: float = 10.0
    backoff_min_ms: int = 500
    backoff_max_ms: int = 60_000


class SpoolSettings(_Part):
    """The store-and-forward file and its bounds."""

    path: Path = Path("spool.db")
    max_bytes: int = Field(default=1_000_000_000, ge=65_536)
    max_age_ms: int = Field(default=30 * 24 * 3600 * 1000, ge=1_000)
    reserve_bytes: int = 524_288
    """Given back to the file system when it is full, so that deletes can still be written."""
    commit_packets: int = Field(default=100, ge=1)
    commit_ms: int = Field(default=0, ge=0)
    """How long a closed packet may wait for company; 0 commits in the tick that closed it."""
    memory_bytes: int = 4_000_000
    """What may wait in memory while the disk takes nothing."""


class PackingSettings(_Part):
    """How readings become packets."""

    packet_ms: int = Field(default=1_000, ge=10, le=60_000)
    max_samples: int = Field(default=2_000, ge=1, le=MAX_SAMPLES_PER_PACKET)
    max_span_ms: int = Field(default=600_000, ge=1_000)
    """Samples whose event times lie in different spans never share a packet: one mad stamp spoils only itself."""


class SamplingRule(_Part):
    """When a reading is worth keeping; zero switches a condition off."""

    deadband: float = Field(default=0.0, ge=0)
    on_change: bool = False
    min_interval_ms: int = Field(default=0, ge=0)
    max_interval_ms: int = Field(default=0, ge=0)


class SamplingSettings(_Part):
    """``thin = false`` keeps every reading; rules are keyed by catalogue path."""

    thin: bool = True
    states: SamplingRule = SamplingRule(on_change=True, max_interval_ms=60_000)
    default: SamplingRule = SamplingRule()
    rules: dict[str, SamplingRule] = {}


class DeriveSettings(_Part):
    """Readings that the agent makes of others; None: it makes none."""

    harsh_braking_mps2: float | None = Field(default=None, ge=1.0, le=12.0)
    """A mean deceleration over about a second from here on becomes a reading of its own; 4.0 is some 0.4 g."""


class UplinkSettings(_Part):
    """How packets leave."""

    in_flight: int = Field(default=100, ge=1, le=1_000)
    """Published and not yet PUBACKed: paho walks its queue, 100 is fastest."""
    window: int = Field(default=1_000, ge=2)
    """Published and not yet acknowledged end to end."""
    ack_packets: int = Field(default=50, ge=1)
    ack_ms: int = Field(default=10_000, ge=100)
    resend_ms: int = Field(default=30_000, ge=1_000)
    resend_max_ms: int = 600_000
    backlog_packets_per_s: int = Field(default=1_000, ge=1)
    live_unsent: int = Field(default=200, ge=1)
    """With more unsent live packets than this the link counts as down and new packets go to the backlog lane."""
    status_ms: int = Field(default=10_000, ge=100)
    snapshot_after_ms: int = Field(default=60_000, ge=1_000)
    """After an outage of this length the first thing sent is what every signal is now."""


class AgentSettings(BaseSettings):
    """Everything one agent needs to know."""

    model_config = SettingsConfigDict(
        env_prefix="FLEETSTREAM__EDGE_AGENT__", env_nested_delimiter="__", frozen=True, extra="forbid"
    )

    device: Name
    tenant: Name
    tick_ms: int = Field(default=50, ge=1, le=1_000)
    """How often a source is asked at least."""
    mqtt: MqttSettings = MqttSettings()
    spool: SpoolSettings = SpoolSettings()
    packing: PackingSettings = PackingSettings()
    sampling: SamplingSettings = SamplingSettings()
    uplink: UplinkSettings = UplinkSettings()
    derive: DeriveSettings = DeriveSettings()
    notices: Path | None = None
    """File in which the machine's display finds what alerts say (``notices.py``); absent: this device shows none."""
    recorder: RecorderSettings | None = None
    """The crash recorder; absent: this device has none."""

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource, dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:  # fmt: skip
        return init_settings, env_settings, InitSettingsSource(settings_cls, _file_table())


def load_settings(**overrides: Any) -> AgentSettings:
    """Read the configuration; ``overrides`` win. Raises SettingsError that names each bad key."""
    try:
        return AgentSettings(**overrides)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise SettingsError(
            f"edge_agent settings: {problems}; set FLEETSTREAM__EDGE_AGENT__<KEY> or the file"
        ) from error


def _file_table() -> dict[str, Any]:
    name = os.environ.get("FLEETSTREAM_CONFIG")
    if not name:
        return {}
    try:
        return dict(tomllib.loads(Path(name).read_text(encoding="utf-8")).get("edge_agent", {}))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"FLEETSTREAM_CONFIG={name}: {error}; correct the file or unset the variable") from error
