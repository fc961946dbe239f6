"""A whole stack inside of a process: how the demo and end-to-end tests hold it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psycopg
import pytest

from contracts.errors import TryLater
from contracts.tables import ROLE_READER
from infra.rooms import reader_dsn
from infra.session import open_session, running_stack
from infra.settings import InfraSettings, PortSettings

FREE_PORTS = PortSettings(**dict.fromkeys(PortSettings.model_fields, 0))
WAIT_S = 240.0


def test_a_running_stack_heals_and_ends(tmp_path: Path) -> None:
    settings = InfraSettings(home=tmp_path, services=False, ports=FREE_PORTS)
    with running_stack(settings) as session:
        with psycopg.connect(reader_dsn(session.stack)) as connection:
            assert connection.execute("SELECT current_user").fetchone() == (ROLE_READER,)
        with pytest.raises(TryLater, match="already up"), open_session(settings):
            pass
        before = session.supervisor.state().services["postgres"]
        session.supervisor.kill("postgres")
        deadline, pause = time.monotonic() + WAIT_S, threading.Event()
        while session.supervisor.state().services["postgres"].restarts == 0 or not session.supervisor.state().ready:
            assert time.monotonic() < deadline
            pause.wait(0.05)
        after = session.supervisor.state().services["postgres"]
        assert after.pid not in (None, before.pid)
    assert {one.state for one in session.supervisor.state().services.values()} == {"stopped"}


def test_the_share_group_is_a_secret_that_stays(tmp_path: Path) -> None:
    from infra.wiring import build_stack

    settings = InfraSettings(home=tmp_path, services=False, ports=FREE_PORTS)
    first, second = (build_stack(settings, settings.ports.model_dump()).share_group for _ in range(2))
    assert first == second and len(first) == 16
    assert (tmp_path / "share_group").stat().st_mode & 0o077 == 0
