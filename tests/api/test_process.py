"""The process as the stack starts it: ready when the outbox is carried, clean end on SIGTERM, words for a bad start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import psycopg
import pytest

from api.errors import SettingsError
from api.settings import load_settings
from infra.processes import free_port
from tests.api.fix_api import CONSOLE, PATIENCE_S, Fleet
from tests.gateway.harness import wait_for

ROOT = Path(__file__).parents[2]


def start(words: list[str], **settings: object) -> subprocess.Popen[str]:
    keys = {f"FLEETSTREAM__API__{name.upper()}": str(value) for name, value in settings.items()}
    environment = {**os.environ, **keys}
    command = [sys.executable, "-m", "api", *words]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


def wait_ready(process: subprocess.Popen[str], client: httpx.Client) -> None:
    while process.poll() is None:
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            continue
    pytest.fail(f"ended: {process.communicate()[1]}")


def waiting_at_start(fleet: Fleet) -> int:
    """Registry and book of four devices, and whatever else enrolment leaves for the relay."""
    with psycopg.connect(fleet.sink_dsn) as connection:
        row = connection.execute("SELECT count(*) FROM outbox").fetchone()
    return int(row[0]) if row else 0


def test_it_serves_and_relays_until_told_to_stop(fleet: Fleet, kafka_bootstrap: str, topic_prefix: str) -> None:
    port = free_port()
    key = fleet.key("north")
    process = start(
        [], dsn=fleet.api_dsn, relay_dsn=fleet.sink_dsn, kafka_bootstrap=kafka_bootstrap, topic_prefix=topic_prefix,
        port=port, pages=CONSOLE,
    )  # fmt: skip
    headers = {"Authorization": f"Bearer {key}"}
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_S, headers=headers
        ) as client:
            wait_ready(process, client)
            rows = waiting_at_start(fleet)
            assert rows > 4
            told = f"fleetstream_api_relay_published_total {rows}.0"
            wait_for("all of them are told", lambda: told in client.get("/metrics").text)
            with client.stream("GET", "/api/v1/stream") as stream:
                lines = stream.iter_lines()
                assert next(lines).startswith("retry: ")
                process.send_signal(signal.SIGTERM)
                assert "event: bye" in list(lines)
        log = process.communicate(timeout=PATIENCE_S)[1]
    finally:
        process.kill()
    assert process.returncode == 0, log
    assert key not in log and "password" not in log


def test_a_bad_configuration_names_the_key() -> None:
    process = start(["serve"], dsn="", port="many")
    told = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 1 and "port" in told and "FLEETSTREAM__API__" in told
    process = start(["dance"])
    assert "usage" in process.communicate(timeout=PATIENCE_S)[1] and process.returncode == 2


def test_settings_from_a_file_and_over_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text('[api]\ndsn = "dbname=one"\nport = 9\n')
    monkeypatch.setenv("FLEETSTREAM_CONFIG", str(file))
    monkeypatch.setenv("FLEETSTREAM__API__PORT", "10")
    settings = load_settings()
    assert (settings.port, settings.dsn.get_secret_value()) == (10, "dbname=one")
    assert "dbname" not in repr(settings)
    file.write_text("[api]\ndsn = ")
    with pytest.raises(SettingsError, match="correct the file"):
        load_settings()
