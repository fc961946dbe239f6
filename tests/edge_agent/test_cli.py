"""The command line: buffer check, export and repair, settings that name their fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts.packet import Lane, decode_packet
from contracts.signals import Retention
from edge_agent import cli
from edge_agent.errors import SettingsError
from edge_agent.settings import load_settings
from tests.edge_agent.doubles import NOW_MS, draft, spool_at

RUNNER = CliRunner()


def filled(folder: Path, packets: int = 3) -> Path:
    spool = spool_at(folder)
    spool.accept([draft() for _ in range(packets)], Lane.BACKLOG, NOW_MS)
    spool.close()
    return folder / "spool.db"


def test_check_and_status_of_a_sound_buffer(tmp_path: Path) -> None:
    path = filled(tmp_path)
    for command in (["buffer", "check"], ["status"]):
        done = RUNNER.invoke(cli.app, [*command, "--spool", str(path), "--json"])
        assert done.exit_code == 0, done.output
        report = json.loads(done.stdout)
        assert (report["sound"], report["packets"], report["samples"], report["lanes"]) == (True, 3, 30, {"1": 3})
        assert report["epochs"] == {"1": {"packets": 3, "first_seq": 1, "last_seq": 3}}
        text = RUNNER.invoke(cli.app, [*command, "--spool", str(path)])
        assert "3 packets" in text.stdout


def test_export_tells_every_sample(tmp_path: Path) -> None:
    done = RUNNER.invoke(cli.app, ["buffer", "export", "--spool", str(filled(tmp_path))])
    samples = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(samples) == 30
    assert samples[1] == {
        "device": "car-1", "boot_epoch": 1, "seq": 1, "signal": "Vehicle.Speed", "at_ms": NOW_MS + 1,
        "value": 0.01, "quality": 0,
    }  # fmt: skip


def test_repair_saves_what_can_be_read_and_puts_the_rest_in_doubt(tmp_path: Path) -> None:
    path = filled(tmp_path, 900)
    content = bytearray(path.read_bytes())
    middle = len(content) // 8_192 * 4_096
    content[middle : middle + 4_096] = b"\xa5" * 4_096
    path.write_bytes(content)
    checked = RUNNER.invoke(cli.app, ["buffer", "check", "--spool", str(path)])
    assert checked.exit_code == 1
    assert "buffer repair" in checked.output
    repaired = tmp_path / "repaired.db"
    done = RUNNER.invoke(cli.app, ["buffer", "repair", "--spool", str(path), "--into", str(repaired), "--json"])
    saved = json.loads(done.stdout)["saved_packets"]
    assert 500 < saved < 900
    assert RUNNER.invoke(cli.app, ["buffer", "check", "--spool", str(repaired)]).exit_code == 0
    path.unlink()
    repaired.replace(path)
    spool = spool_at(tmp_path)
    assert (spool.epoch.boot_epoch, spool.index.total.packets) == (2, saved)
    [told] = spool.report_drops(Lane.LIVE, NOW_MS, 0)
    packet = decode_packet(told.frame)
    assert packet.header.boot_epoch == 1
    assert packet.header.seq > packet.gaps[0].last_seq >= 900
    assert packet.gaps[0].retention == Retention.STANDARD
    spool.close()


def test_wrong_requests_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["status", "--spool", str(tmp_path / "no.db")], ["buffer", "repair", "--into", str(tmp_path)]):
        monkeypatch.setattr("sys.argv", ["fleetstream-agent", *arguments])
        monkeypatch.delenv("FLEETSTREAM_CONFIG", raising=False)
        with pytest.raises(SystemExit) as left:
            cli.main()
        assert left.value.code == 2
        told = capsys.readouterr().err
        assert told.startswith("fleetstream-agent: ")
        assert told.count("\n") == 1


def test_settings_come_from_environment_then_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('[edge_agent]\ndevice = "van-7"\ntenant = "north"\n[edge_agent.mqtt]\nport = 1\nhost = "h"\n')
    monkeypatch.setenv("FLEETSTREAM_CONFIG", str(file))
    monkeypatch.setenv("FLEETSTREAM__EDGE_AGENT__MQTT__PORT", "9")
    loaded = load_settings()
    assert (loaded.device, loaded.mqtt.host, loaded.mqtt.port) == ("van-7", "h", 9)


@pytest.mark.parametrize(
    ("key", "value"), [("DEVICE", "a/b"), ("MQTT__KEEPALIVE_S", "60"), ("PACKING__MAX_SAMPLES", "9000")]
)
def test_a_bad_setting_is_named(key: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLEETSTREAM_CONFIG", raising=False)
    for name, sound in (("DEVICE", "van-7"), ("TENANT", "north"), (key, value)):
        monkeypatch.setenv(f"FLEETSTREAM__EDGE_AGENT__{name}", sound)
    with pytest.raises(SettingsError, match=key.lower().replace("__", ".")):
        load_settings()
