"""What can be configured: environment (``FLEETSTREAM__SIMULATORS__KEY``), then the TOML file, then defaults."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from simulators.errors import PlanError


class SimulatorSettings(BaseSettings):
    """How a fleet or a replay runs its agents."""

    model_config = SettingsConfigDict(
        env_prefix="FLEETSTREAM__SIMULATORS__", env_nested_delimiter="__", frozen=True, extra="forbid"
    )

    workers: int = Field(2, ge=1, le=64, description="threads that tick agents")
    packet_ms: int = Field(1_000, ge=100, le=60_000, description="duration of one packet")
    ack_ms: int = Field(1_000, ge=100, description="how often a device asks for an end-to-end acknowledgement")
    status_ms: int = Field(2_000, ge=100, description="between two heartbeats of a device")
    tick_ms: int = Field(100, ge=10, le=1_000, description="how often a simulated sensor is asked")
    spool_bytes: int = Field(100_000_000, ge=65_536, description="bound of each device's spool")
    drain_s: float = Field(45.0, ge=0, description="after the sources ended, how long to wait for acknowledgements")
    replay_samples: int = Field(2_000, ge=1, le=7_000, description="samples per packet while replaying")
    load_packet_ms: int = Field(1_000, ge=100, le=60_000, description="duration of one packet of a load run")
    load_rate_hz: int = Field(5, ge=1, le=10, description="samples a second and signal of a load run: 1, 2, 5, 10")

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource, dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:  # fmt: skip
        return init_settings, env_settings, InitSettingsSource(settings_cls, _file_table())


def load_settings(**overrides: Any) -> SimulatorSettings:
    """Read the configuration; ``overrides`` win. Raises PlanError that names each bad key."""
    try:
        return SimulatorSettings(**overrides)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise PlanError(f"simulators settings: {problems}; set FLEETSTREAM__SIMULATORS__<KEY> or the file") from error


def _file_table() -> dict[str, Any]:
    name = os.environ.get("FLEETSTREAM_CONFIG")
    if not name:
        return {}
    try:
        return dict(tomllib.loads(Path(name).read_text(encoding="utf-8")).get("simulators", {}))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise PlanError(f"FLEETSTREAM_CONFIG={name}: {error}; correct the file or unset the variable") from error
