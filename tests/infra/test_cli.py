"""The command line as a person uses it: a real stack in its own folder, exit codes, sentences with fixes."""

from __future__ import annotations

import csv
import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from contracts.stamp import STAMP_HEADER
from contracts.topics import Topics
from infra.cli.config import line_of
from infra.cli.main import MENU
from infra.cli.main import app as menu
from infra.processes import FREE_PORTS, free_ports, running
from infra.settings import InfraSettings, PortSettings
from infra.state import read_state
from infra.wiring import build_stack
from tests.stream_jobs.build import Device, speed

CLI_TIMEOUT_S = 600


def run(environment: Mapping[str, str], *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """One command in its own process."""
    command = [sys.executable, "-m", "infra", *arguments]
    merged = {**os.environ, "COLUMNS": "200", **environment}
    return subprocess.run(
        command, env=merged, capture_output=True, text=True, timeout=CLI_TIMEOUT_S, input=stdin, check=False
    )


def environment_of(home: Path) -> dict[str, str]:
    ports = {f"FLEETSTREAM__INFRA__PORTS__{name.upper()}": "0" for name in PortSettings.model_fields}
    return {"FLEETSTREAM_HOME": str(home), "FLEETSTREAM__INFRA__SERVICES": "false", **ports}


@pytest.fixture(scope="module")
def up() -> Iterator[dict[str, str]]:
    """The environment of a stack of servers that is up in the background."""
    with tempfile.TemporaryDirectory(prefix="fleetstream-cli-", ignore_cleanup_errors=True) as home:
        environment = environment_of(Path(home))
        started = run(environment, "up", "--detach")
        assert started.returncode == 0, started.stderr
        yield environment
        run(environment, "down")


def pids(environment: Mapping[str, str]) -> list[int]:
    state = json.loads(run(environment, "status", "--json").stdout)
    return [state["pid"], *(one["pid"] for one in state["services"].values())]


def test_status_names_every_service(up: dict[str, str]) -> None:
    answer = run(up, "status", "--json")
    state = json.loads(answer.stdout)
    assert answer.returncode == 0 and state["ready"] is True
    assert set(state["services"]) == {"postgres", "kafka", "mosquitto"}
    assert "ready" in run(up, "status").stdout


def test_a_second_up_says_already_up(up: dict[str, str]) -> None:
    for arguments in (["up"], ["up", "--detach"]):
        answer = run(up, *arguments)
        assert answer.returncode == 1
        assert re.fullmatch(r"fleetstream: The stack in \S+ is already up.*fleetstream status`\n", answer.stderr)


def test_a_port_in_use_is_one_sentence_with_the_fix(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        environment = {**environment_of(tmp_path), "FLEETSTREAM__INFRA__PORTS__KAFKA": str(port)}
        for arguments in (["up"], ["up", "--detach"]):
            answer = run(environment, *arguments)
            expected = (
                f"fleetstream: Port {port} (kafka) is in use; "
                "set FLEETSTREAM__INFRA__PORTS__KAFKA to another one, or to 0\n"
            )
            assert (answer.returncode, answer.stderr) == (1, expected)
        assert f"in use: {port} (kafka)" in run(environment, "doctor").stdout


def test_a_full_disk_is_one_sentence_with_the_fix(tmp_path: Path) -> None:
    environment = {**environment_of(tmp_path), "FLEETSTREAM__INFRA__LEAST_FREE_BYTES": str(10**18)}
    answer = run(environment, "up")
    assert answer.returncode == 1 and answer.stderr.count("\n") == 1
    assert "are free where" in answer.stderr and "FLEETSTREAM_HOME" in answer.stderr
    assert run(environment, "doctor").returncode == 1


def test_doctor_finds_this_machine_sound(up: dict[str, str]) -> None:
    answer = run(up, "doctor", "--json")
    findings = {one["what"]: one for one in json.loads(answer.stdout)}
    assert set(findings) == {
        "python",
        "packages",
        "java",
        "jars",
        "mosquitto",
        "postgresql",
        "disk",
        "ports",
        "open files",
    }
    assert [one for one in findings.values() if not one["ok"] and not one["fix"]] == []
    assert all(findings[what]["ok"] for what in ("python", "java", "jars", "mosquitto", "postgresql", "disk", "ports"))


def test_sql_prints_tables_csv_and_json(up: dict[str, str]) -> None:
    query = "SELECT 1 AS n, 'a,b' AS text, NULL AS nothing, 0.5::float8 AS x, '{1,2}'::int[] AS list"
    table = run(up, "sql", query)
    assert table.returncode == 0 and table.stdout.split() == [
        "n",
        "text",
        "nothing",
        "x",
        "list",
        "1",
        "a,b",
        "0.5",
        "[1,",
        "2]",
    ]
    rows = list(csv.DictReader(run(up, "sql", query, "--csv").stdout.splitlines()))
    assert rows == [{"n": "1", "text": "a,b", "nothing": "", "x": "0.5", "list": "[1, 2]"}]
    assert json.loads(run(up, "sql", "-", "--json", stdin=query).stdout) == [
        {"n": 1, "text": "a,b", "nothing": None, "x": 0.5, "list": [1, 2]}
    ]


def test_sql_of_an_empty_result_has_a_header(up: dict[str, str]) -> None:
    assert run(up, "sql", "SELECT device, seq FROM packets", "--csv").stdout == "device,seq\n"
    assert json.loads(run(up, "sql", "SELECT device FROM packets", "--json").stdout) == []


@pytest.mark.parametrize(
    "query",
    ["DELETE FROM tenants", "SELECT * FROM api_keys", "CREATE TABLE x (a int)", "SELEC", "SET ROLE postgres",
     "SELECT 1; DROP TABLE tenants", "COPY tenants TO PROGRAM 'cat'"],
)  # fmt: skip
def test_sql_only_reads(up: dict[str, str], query: str) -> None:
    answer = run(up, "sql", query)
    assert answer.returncode == 1 and answer.stderr.startswith("fleetstream: The query was refused: ")


def test_enrolling_a_device_writes_rows_and_issues_a_certificate(up: dict[str, str]) -> None:
    answer = run(
        up, "device", "enrol", "van-7", "--tenant", "north", "--asset", "Van 7", "--asset-kind", "car", "--json"
    )
    issued = json.loads(answer.stdout)
    assert issued["device"] == "van-7" and all(Path(issued[name]).is_file() for name in ("ca", "certificate", "key"))
    assert run(up, "sql", "SELECT device, kind FROM devices", "--csv").stdout == "device,kind\nvan-7,device\n"
    refused = run(up, "device", "enrol", "a/b", "--tenant", "north", "--asset", "x")
    assert refused.returncode == 1 and "bad_name" in refused.stderr
    assert run(up, "device", "revoke", "van-7").returncode == 0


def test_migrate_and_maintain_report(up: dict[str, str]) -> None:
    assert json.loads(run(up, "migrate", "--json").stdout)["applied"] == []
    run(up, "store", "maintain")  # a new day may have begun since the stack came up
    kept = json.loads(run(up, "store", "maintain", "--json").stdout)
    assert kept["created"] == kept["dropped"] == [] and kept["blocks"] == 0 and not kept["busy"]


def test_logs_are_named_by_service(up: dict[str, str]) -> None:
    assert re.match(r"postgres +\S", run(up, "logs", "postgres", "-n", "2").stdout)
    unknown = run(up, "logs", "nothing")
    assert unknown.returncode == 1 and "there are: kafka" in unknown.stderr


def test_a_killed_server_is_back_and_down_leaves_nothing(up: dict[str, str]) -> None:
    before = pids(up)
    os.kill(json.loads(run(up, "status", "--json").stdout)["services"]["mosquitto"]["pid"], signal.SIGKILL)
    end_s = time.monotonic() + CLI_TIMEOUT_S
    while json.loads(run(up, "status", "--json").stdout)["services"]["mosquitto"]["restarts"] == 0:
        assert time.monotonic() < end_s
    seen = {*before, *pids(up)}
    assert run(up, "down").returncode == 0
    assert [pid for pid in seen if pid and running(pid)] == []
    assert run(up, "down").stdout == "nothing is up\n"
    again = run(up, "up", "--detach")
    assert again.returncode == 0, again.stderr


def test_without_a_stack_commands_say_so_with_exit_3(tmp_path: Path) -> None:
    for arguments in (["status"], ["sql", "SELECT 1"], ["migrate"]):
        answer = run(environment_of(tmp_path), *arguments)
        assert answer.returncode == 3 and "start it with `fleetstream up --detach`" in answer.stderr


def test_sigterm_ends_a_foreground_stack_cleanly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "infra", "up"]
    environment = {**os.environ, **environment_of(tmp_path)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline().startswith("up: http://127.0.0.1:")
        seen = pids(environment_of(tmp_path))
        process.send_signal(signal.SIGTERM)
        assert process.wait(CLI_TIMEOUT_S) == 0
    assert [pid for pid in seen if running(pid)] == []


def test_every_command_of_the_menu_shows_an_example() -> None:
    for name, module in MENU:
        if not (Path(__file__).parents[2] / f"{module.replace('.', '/')}.py").exists():
            pytest.fail(f"{name}: {module} is missing")
        answer = CliRunner().invoke(menu, [name, "--help"])
        assert answer.exit_code == 0, name
        app = importlib.import_module(module).app
        if app.registered_callback is None:
            assert "Example:" in answer.stdout, name
            continue
        for one in app.registered_commands:
            command = one.name or one.callback.__name__.replace("_", "-")
            told = CliRunner().invoke(app, [command, "--help"])
            assert told.exit_code == 0 and "Example:" in told.stdout, f"{name} {command}"


def test_help_of_a_real_process_has_no_colours_when_asked() -> None:
    answer = run({"NO_COLOR": "1"}, "status", "--help")
    assert answer.returncode == 0 and "Example:" in answer.stdout and "\x1b[" not in answer.stdout


def test_config_check_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "fleetstream.toml"
    file.write_text('[infra]\ntopic_prefix = "fleet"\n\n[infra.ports]\nkafka = 99999\n')
    answer = run({"FLEETSTREAM_CONFIG": str(file)}, "config", "check")
    assert answer.returncode == 1
    assert f"{file}:5: infra.ports.kafka: " in answer.stderr
    answer = run({"FLEETSTREAM__INFRA__PORTS__API": "http"}, "config", "check")
    assert "FLEETSTREAM__INFRA__PORTS__API: infra.ports.api: " in answer.stderr


def test_line_of_a_key_or_its_table() -> None:
    text = "[gateway]\nport = 1\n\n[infra]\nhome = 'x'\n[infra.ports]\napi = 3\n"
    assert line_of(text, "infra", ["home"]) == 5
    assert line_of(text, "infra", ["ports", "api"]) == 7
    assert line_of(text, "infra", ["ports", "missing"]) == 6
    assert line_of(text, "gateway", ["port"]) == 2


def test_free_ports_differ_and_can_be_bound() -> None:
    ports = free_ports(50, taken={FREE_PORTS[0]})
    assert len(set(ports)) == 50 and FREE_PORTS[0] not in ports
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as every server does
            probe.bind(("127.0.0.1", port))


def test_the_page_on_restoring_brings_a_lost_store_back(up: dict[str, str]) -> None:
    """The store is really dropped; the servers are up and no service is, as the page asks for."""
    enrol = ("device", "enrol", "van-9", "--tenant", "north", "--asset", "Van", "--json")
    enrolled = json.loads(run(up, *enrol).stdout)
    state = read_state(Path(up["FLEETSTREAM_HOME"]))
    assert state is not None
    stack = build_stack(InfraSettings(home=Path(up["FLEETSTREAM_HOME"])), state.ports)
    device = Device("van-9", enrolled["device_key"], "north", enrolled["tenant_id"])
    producer = Producer({"bootstrap.servers": stack.bootstrap, "acks": "all"})
    for seq in range(1, 21):
        now_ms = time.time_ns() // 1_000_000
        header, packet = (STAMP_HEADER, device.stamp(now_ms)), device.packet(seq, speed(seq), base_ms=now_ms)
        producer.produce(Topics().live.name, packet, b"van-9", headers=[header])
    with psycopg.connect(stack.superuser_dsn, autocommit=True) as owner:
        devices = len(owner.execute("SELECT device FROM fleetstream.devices").fetchall())
        for key, page in owner.execute("SELECT kafka_key, kafka_value FROM fleetstream.registry_book").fetchall():
            producer.produce(Topics().book.name, bytes(page), key.encode())
        assert producer.flush(180) == 0
        refused = run(up, "restore")
        assert refused.returncode == 1 and "it is not lost" in refused.stderr
        owner.execute("DROP SCHEMA fleetstream CASCADE")
    page = Path(__file__).parents[2] / "docs" / "how-to" / "restore-after-losing-the-database.md"
    commands = re.findall(r"^fleetstream (migrate|restore)$", page.read_text(encoding="utf-8"), re.M)
    assert commands == ["migrate", "restore"]
    assert run(up, "migrate").returncode == 0
    restored = run(up, "restore", "--json")
    assert restored.returncode == 0, restored.stderr[-2000:]
    done = json.loads(restored.stdout)
    assert (done["devices"], done["packets"], done["samples"], done["records_read"]) == (devices, 20, 20, 20)
    assert done["packet_rows"] == 20 and len(done["digest"]) == 64 and "API keys" in done["not_restored"][0]
    assert json.loads(run(up, *enrol).stdout)["device_key"] == enrolled["device_key"]
