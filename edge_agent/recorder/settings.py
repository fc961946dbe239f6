"""What one installation of the recorder can be told: profile, mounting, sensor limits, where its file lies."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class RecorderSettings(BaseModel):
    """Settings of the crash recorder; units stand in the names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    profile: Literal["part563-2012", "part563-2024", "un-r160", "gb-39732", "un-r169"] = Field(
        default="part563-2024", description="the regulation whose rules and elements the recorder follows"
    )
    source: Literal["oem_edr_download", "aftermarket_device", "simulated"] = Field(
        default="aftermarket_device", description="what kind of device this is; written into every record"
    )
    path: Path = Field(default=Path("recorder.fsr"), description="the recorder's file, pre-allocated at first start")
    slot_bytes: int = Field(default=49_152, ge=4_096, le=131_072, multiple_of=512, description="room for one capsule")
    motion_rate_hz: int = Field(default=500, ge=10, le=4_000, description="accelerometer readings a second")
    sensor_limit_g: tuple[float, float, float] = Field(
        default=(50.0, 50.0, 16.0), description="where the accelerometer's x, y, z (own axes) saturate, in g"
    )
    mounting_roll_deg: float = Field(
        default=0.0, ge=-180, le=180, description="how the sensor is turned about vehicle x"
    )
    mounting_pitch_deg: float = Field(
        default=0.0, ge=-180, le=180, description="how the sensor is turned about vehicle y"
    )
    mounting_yaw_deg: float = Field(
        default=0.0, ge=-180, le=180, description="how the sensor is turned about vehicle z"
    )
    record_lateral: bool = Field(default=True, description="record lateral delta-V, and trigger on it")
    frontal_restraint: bool = Field(
        default=True, description="the vehicle has a non-reversible restraint for frontal impact"
    )
    attach_raw: bool = Field(default=True, description="send raw motion around an event beside its capsule")
    raw_slot_bytes: int = Field(
        default=524_288, ge=65_536, le=4_194_304, multiple_of=512, description="room for one event's raw motion"
    )
    raw_events: int = Field(default=3, ge=1, le=16, description="events whose raw motion is kept until its receipt")
    key: Path | None = Field(default=None, description="the device's Ed25519 key for crash records, PEM")
    chain: Path | None = Field(default=None, description="its certificates, own first, root last, PEM")
    vin: str | None = Field(default=None, max_length=64, description="goes into the linkage only")
    driver: str | None = Field(default=None, max_length=64, description="goes into the linkage only")
    receipt_wait_ms: int = Field(
        default=60_000, ge=1_000, description="send again without a receipt after this; doubles up to an hour"
    )
    stale_after_ms: int = Field(default=1_100, ge=100, le=5_000, description="an older reading is no pre-crash sample")
    state_stale_after_ms: int = Field(
        default=5_000, ge=1_000, le=60_000, description="an older word of a belt, lamp or switch is not known any more"
    )
