"""What can be configured: environment (``FLEETSTREAM__API__KEY``), then ``[api]`` of the TOML file, then defaults."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from api.errors import SettingsError


class ApiSettings(BaseSettings):
    """Everything the API and its relay need to know."""

    model_config = SettingsConfigDict(
        env_prefix="FLEETSTREAM__API__", env_nested_delimiter="__", frozen=True, extra="forbid"
    )

    host: str = Field("127.0.0.1", description="address to listen on; put TLS in front of any other than loopback")
    port: int = Field(18080, ge=0, le=65535)
    dsn: SecretStr = Field(description="PostgreSQL as the role fleetstream_api, search path included")
    pages: Path | None = Field(None, description="folder of the console's static files; none: no page at /")
    edr_key: Path | None = Field(None, description="Ed25519 key (PEM) that signs crash records' exports; none: none")
    edr_chain: Path | None = Field(None, description="its certificates (PEM), own first, root last")
    pool_size: int = Field(8, ge=1, le=100)
    pool_timeout_s: float = Field(5.0, gt=0, description="longest wait for a connection before 503")
    statement_timeout_ms: int = Field(10_000, ge=100)
    key_cache_s: float = Field(10.0, ge=0, le=300, description="how long a revoked key may go on working")
    rate_per_s: float = Field(20.0, gt=0, description="requests per second and key, in the long run")
    rate_burst: int = Field(100, ge=1)
    readings_range_s: int = Field(7 * 86_400, ge=1, description="longest time range of one readings question")
    windows_range_s: int = Field(92 * 86_400, ge=1)
    export_rows: int = Field(20_000_000, ge=1, description="largest export, judged by the hourly windows in its range")
    exports_per_key: int = Field(2, ge=1, description="exports of one key that may run at once")
    archive_folder: Path | None = Field(None, description="the archive's files, for readings older than the store's")
    stream_poll_ms: int = Field(250, ge=50, description="least time between two looks at the store")
    feed_poll_ms: int = Field(500, ge=10, description="time between two looks of a feed that waits")
    stream_frame_ms: int = Field(250, ge=50, description="least time between two frames to one client")
    stream_heartbeat_s: float = Field(15.0, gt=0, description="proxies close silent connections after 30 to 60 s")
    streams_per_key: int = Field(8, ge=1)
    stream_pending: int = Field(20_000, ge=1, description="values that may wait for one slow client")

    mail_host: str | None = Field(None, description="server that takes mails about alerts; none: no mail is sent")
    mail_port: int = Field(587, ge=1, le=65535)
    mail_from: str = Field("Fleetstream <fleetstream@localhost>", description="sender of mails about alerts")
    mail_security: Literal["none", "starttls", "tls"] = "starttls"
    mail_user: str = ""
    mail_password: SecretStr = SecretStr("")
    webhook_private: bool = Field(False, description="webhooks may go to private networks, and over plain HTTP")

    relay_dsn: SecretStr | None = Field(None, description="PostgreSQL as the role fleetstream_sink; none: no relay")
    kafka_bootstrap: str = "127.0.0.1:9092"
    topic_prefix: str = "fleet"
    relay_poll_ms: int = Field(200, ge=10)
    relay_batch: int = Field(500, ge=1, le=10_000)
    relay_beat_s: float = Field(5.0, gt=0)
    asks_for_gaps: bool = Field(True, description="ask devices for what the ledger misses longer than its limit")
    latest_every_s: float = Field(5.0, gt=0, description="least time between two looks of the topic of latest values")
    outbox_keep_h: float = Field(24.0, ge=0, description="published outbox rows older than this are deleted")

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource, dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:  # fmt: skip
        return init_settings, env_settings, InitSettingsSource(settings_cls, _file_table())


def load_settings(**overrides: Any) -> ApiSettings:
    """Read the configuration; ``overrides`` win. Raises SettingsError that names each bad key."""
    try:
        return ApiSettings(**overrides)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise SettingsError(f"api settings: {problems}; set FLEETSTREAM__API__<KEY> or the file's [api]") from error


def _file_table() -> dict[str, Any]:
    name = os.environ.get("FLEETSTREAM_CONFIG")
    if not name:
        return {}
    try:
        return dict(tomllib.loads(Path(name).read_text(encoding="utf-8")).get("api", {}))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"FLEETSTREAM_CONFIG={name}: {error}; correct the file or unset the variable") from error
