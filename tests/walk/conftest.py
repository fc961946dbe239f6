"""The whole embedded stack, once per run, in a temporary folder on free ports."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infra.paths import default_cache
from infra.rooms import Stack
from infra.session import Session, running_stack
from infra.settings import InfraSettings, PortSettings
from infra.supervisor import Service

START_S = 900.0
"""A machine that is busy with other things may take long to start all of this."""


def patient(_: Stack, services: list[Service]) -> list[Service]:
    return [replace(service, timeout_s=START_S) for service in services]


@pytest.fixture(scope="session")
def line() -> Iterator[Session]:
    """PostgreSQL, Kafka, Mosquitto, gateway, Spark, archive and API under their supervisor."""
    home = Path(tempfile.mkdtemp(prefix="fleetstream-walk-"))
    ports = PortSettings(**dict.fromkeys(PortSettings.model_fields, 0))
    settings = InfraSettings(home=home, cache=default_cache(), ports=ports)
    try:
        with running_stack(settings, patient) as session:
            yield session
    finally:
        shutil.rmtree(home, ignore_errors=True)
