"""What the stack tells the rooms is what their settings understand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic_settings import BaseSettings

from infra.cli.config import settings_classes
from infra.rooms import (
    Stack,
    api_environment,
    detect_environment,
    evidence_environment,
    gateway_environment,
    room_services,
    stream_environment,
)
from infra.settings import InfraSettings
from infra.wiring import build_stack

POSTGRES = "host=127.0.0.1 user=postgres dbname=fleetstream"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stack:
    monkeypatch.delenv("FLEETSTREAM_CONFIG", raising=False)
    settings = InfraSettings.model_validate({"home": tmp_path, "postgres_dsn": POSTGRES})
    return build_stack(settings, settings.ports.model_dump())


def load(room: str, environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> BaseSettings:
    """The room's settings; fails when a variable names no setting (the room would silently use its default)."""
    prefix = f"FLEETSTREAM__{room.upper()}__"
    settings_class = settings_classes(room)[0]
    unknown = {name for name in environment if name.removeprefix(prefix).lower() not in settings_class.model_fields}
    assert not unknown
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return settings_class()


def test_gateway(machine: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load("gateway", gateway_environment(machine), monkeypatch)
    assert settings.model_dump()["share_group"] == machine.share_group != "gateway"
    assert settings.model_dump()["certificate_file"].is_file()


def test_stream_jobs(machine: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load("stream_jobs", stream_environment(machine, 19102), monkeypatch)
    dsn = settings.model_dump()["dsn"].get_secret_value()
    assert "fleetstream_sink" in dsn and "search_path=fleetstream" in dsn


def test_detect(machine: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load("stream_jobs", detect_environment(machine), monkeypatch)
    assert settings.model_dump()["detect_folder"] == machine.settings.home / "detection"
    assert settings.model_dump()["cores"] == 1
    assert "detect" in {service.name for service in room_services(machine)}
    without = replace(machine, settings=machine.settings.model_copy(update={"detection": False}))
    assert "detect" not in {service.name for service in room_services(without)}


def test_evidence(machine: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load("stream_jobs", evidence_environment(machine), monkeypatch)
    assert "fleetstream_evidence" in settings.model_dump()["dsn"].get_secret_value()
    (root,) = settings.model_dump()["evidence_roots"]
    assert root.is_file()


def test_api(machine: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load("api", api_environment(machine), monkeypatch)
    assert "fleetstream_api" in settings.model_dump()["dsn"].get_secret_value()
    assert settings.model_dump()["pages"].is_dir()
