"""Settings of the embedded stack: a TOML file (``FLEETSTREAM_CONFIG``, table ``[infra]``) and the environment.

``FLEETSTREAM__INFRA__PORTS__KAFKA=0`` style variables win over the file; port 0 means any free port.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from contracts.tables import PACKET_RETENTION_DAYS, SCHEMA
from infra.errors import SetupError
from infra.paths import default_cache, default_home

CONFIG_VARIABLE = "FLEETSTREAM_CONFIG"
ROOM = "infra"


Port = Annotated[int, Field(ge=0, le=65535)]


class PortSettings(BaseModel):
    """Loopback TCP ports; 0 takes a free one at each start."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    postgres: Port = 15432
    kafka: Port = 19092
    kafka_controller: Port = 19093
    mqtt: Port = 18883
    api: Port = 18080
    gateway_metrics: Port = 19101
    ingest_metrics: Port = 19102
    archive_metrics: Port = 19103
    evidence_metrics: Port = 19104
    watch_metrics: Port = 19105
    detect_metrics: Port = 19106


def room_table(room: str) -> dict[str, Any]:
    """One room's table of the common TOML file; empty without a file. Raises SetupError when it is not TOML."""
    named = os.environ.get(CONFIG_VARIABLE)
    if not named:
        return {}
    try:
        table = tomllib.loads(Path(named).read_text(encoding="utf-8")).get(room, {})
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SetupError(f"{named} cannot be read ({error}); mend the file that {CONFIG_VARIABLE} names") from error
    return dict(table)


class InfraSettings(BaseSettings):
    """What the supervisor and the command line need to know."""

    model_config = SettingsConfigDict(
        env_prefix="FLEETSTREAM__INFRA__", env_nested_delimiter="__", frozen=True, extra="forbid"
    )

    home: Path = Field(default_factory=default_home, description="runtime directory; data, logs, keys")
    cache: Path = Field(default_factory=default_cache, description="downloads shared by all stacks of this user")
    postgres_dsn: SecretStr | None = Field(
        default=None, description="superuser DSN of a PostgreSQL >= 16 to use instead"
    )
    schema_name: str = Field(default=SCHEMA, description="schema that migrations fill")
    topic_prefix: str = Field(default="fleet", description="prefix of every Kafka topic")
    retention_days: int = Field(
        default=PACKET_RETENTION_DAYS, ge=1, description="days that packet rows stay after receipt"
    )
    retention_days_by_class: dict[str, int] = Field(
        default_factory=dict, description="days that blocks of a retention class stay, where other than retention_days"
    )
    compact_after_s: int = Field(
        default=3600, ge=600, description="age at which packet rows become blocks per signal and ten minutes"
    )
    least_free_bytes: int = Field(
        default=2 * 1024**3, ge=0, description="free disk below which the stack does not start"
    )
    longest_pause_s: float = Field(
        default=30.0, ge=0.5, description="a service that keeps crashing is started again after at most this long"
    )
    services: bool = Field(default=True, description="false: only PostgreSQL, Kafka and Mosquitto")
    detection: bool = Field(default=True, description="false: no detectors in the stream, half a gigabyte less memory")
    self_watch: bool = Field(
        default=True, description="false: what the platform's own processes cost is not stored (tenant platform)"
    )
    ports: PortSettings = PortSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, env_settings, InitSettingsSource(settings_cls, room_table(ROOM)))
