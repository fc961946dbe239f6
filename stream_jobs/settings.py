"""Settings of the stream jobs: a TOML file (``FLEETSTREAM_CONFIG``, table ``[stream_jobs]``) and the environment.

Variables are named ``FLEETSTREAM__STREAM_JOBS__KEY`` and win over the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

CONFIG_VARIABLE = "FLEETSTREAM_CONFIG"
ROOM = "stream_jobs"


class _RoomTable(TomlConfigSettingsSource):
    """This room's table of the common TOML file."""

    def __init__(self, settings_class: type[BaseSettings]) -> None:
        named = os.environ.get(CONFIG_VARIABLE)
        super().__init__(settings_class, Path(named) if named else None)

    def _read_file(self, file_path: Any) -> dict[str, Any]:
        table = super()._read_file(file_path).get(ROOM, {})
        return table if isinstance(table, dict) else {ROOM: table}


class StreamSettings(BaseSettings):
    """One object for every job of this room."""

    model_config = SettingsConfigDict(
        env_prefix="FLEETSTREAM__STREAM_JOBS__", env_nested_delimiter="__", frozen=True, extra="forbid"
    )

    kafka_bootstrap: str = Field(default="127.0.0.1:19092", description="Kafka's address, host:port")
    topic_prefix: str = Field(default="fleet", description="prefix of every Kafka topic")
    dsn: SecretStr = Field(description="PostgreSQL connection string of the role fleetstream_sink, with search_path")
    jars: Annotated[tuple[Path, ...], NoDecode] = Field(default=(), description="connector jars, separated by commas")
    java_home: Path | None = Field(default=None, description="Java 17 or 21; default: JAVA_HOME of the environment")
    cores: int = Field(default=2, ge=1, description="Spark's local threads and shuffle partitions")
    driver_memory_mb: int = Field(default=1024, ge=512, description="heap of Spark's JVM")
    checkpoint_folder: Path = Field(
        default=Path(".fleetstream/checkpoints"), description="scratch, fresh at each start"
    )
    archive_folder: Path = Field(default=Path(".fleetstream/archive"), description="where Parquet files go")
    archive_file_bytes: int = Field(default=64 * 1024 * 1024, ge=1, description="raw bytes that close a file")
    archive_roll_s: float = Field(default=300.0, gt=0, description="age at which an open file is closed")
    trim_after_h: float = Field(
        default=14 * 24,
        ge=0,
        description="replay window: records older than this, archived and stored, are trimmed",
    )
    trim_interval_s: float = Field(default=300.0, gt=0, description="how often trimming is looked at")
    log_folder: Path | None = Field(default=None, description="the broker's data folder, to watch the log's size")
    log_limit_bytes: int = Field(default=16 * 1024**3, ge=0, description="log size that raises an alarm; 0: none")
    max_offsets_per_trigger: int = Field(default=20_000, ge=1, description="records of one micro-batch, all partitions")
    trigger_interval_ms: int = Field(default=100, ge=0, description="shortest time between two starts of a micro-batch")
    chunk_bytes: int = Field(default=64 * 1024 * 1024, ge=1, description="Arrow bytes of one transaction")
    sink: str = Field(default="driver", description="way into the store: tasks or driver")
    close_interval_ms: int = Field(default=500, ge=10, description="how often closed windows are looked for")
    close_rows: int = Field(default=5_000, ge=1, description="windows closed in one transaction")
    gap_limit_s: float = Field(default=600.0, gt=0, description="age at which a hole in the ledger becomes an event")
    gap_look_s: float = Field(default=15.0, gt=0, description="how often the ledger is looked at for holes")
    stop_timeout_s: float = Field(default=20.0, gt=0, description="how long a stop waits for the running batch")
    detect_folder: Path = Field(
        default=Path(".fleetstream/detection"), description="what detectors have learnt; kept between starts"
    )
    detect_shards: int = Field(default=4, ge=1, le=1024, description="parts of the fleet with one state each")
    detect_wait_ms: int = Field(
        default=5_000, ge=1_000, description="watermark: how far a reading may lie behind its device's newest"
    )
    detect_late_h: float = Field(
        default=24.0, gt=0, description="how late readings are still judged again, in hours behind the device's newest"
    )
    detect_late_look_s: float = Field(default=5.0, gt=0, description="how often late readings are looked for")
    detect_interval_ms: int = Field(default=2_000, ge=0, description="shortest time between two batches of detection")
    model_folder: Path = Field(
        default=Path(".fleetstream/models"), description="files of trained models, named by their SHA-256"
    )
    train_seed: int = Field(default=1, ge=0, description="seed of `stream_jobs train`: which stretches are drawn")
    evidence_roots: Annotated[tuple[Path, ...], NoDecode] = Field(
        default=(), description="PEM files of the roots that crash records must end in, separated by commas"
    )
    evidence_pending_bytes: int = Field(
        default=64 * 1024 * 1024, ge=1024 * 1024, description="raw data of one device that may wait to be whole"
    )
    evidence_pending_days: float = Field(
        default=30.0, ge=1.0, description="how long raw data wait for their record after their last piece"
    )
    metrics_host: str = Field(default="127.0.0.1", description="address of /metrics, /livez and /readyz")
    metrics_port: int = Field(default=19102, ge=0, le=65535, description="their port; 0 takes a free one")

    @field_validator("jars", "evidence_roots", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part for part in value.split(",") if part) if isinstance(value, str) else value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, env_settings, _RoomTable(settings_cls))
