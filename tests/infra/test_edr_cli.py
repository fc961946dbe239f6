"""``fleetstream edr simulate`` and ``verify``: exit codes and what they print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infra.cli.edr import app
from infra.errors import SetupError

runner = CliRunner()


@pytest.fixture(scope="module")
def crash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("edr") / "crash.fsx"
    words = ["simulate", "--pulse", "haversine", "--profile", "part563-2024", "--seed", "3", "--json"]
    done = runner.invoke(app, [*words, "--out", str(out)])
    assert done.exit_code == 0, done.output
    (record,) = json.loads(done.stdout)["records"]
    assert record["max_delta_v_longitudinal"] == pytest.approx(-45, abs=4.5)
    assert (record["source"], record["locked"], record["complete"]) == ("simulated", "restraint", True)
    return out


def test_a_sound_file_verifies(crash: Path) -> None:
    done = runner.invoke(app, ["verify", str(crash), "--json"])
    found = json.loads(done.stdout)
    assert done.exit_code == 0 and found["holds"] and found["faults"] == []
    assert not found["root_trusted"], "nobody said which root to trust"
    assert "telematics record" in found["notice"]
    assert runner.invoke(app, ["verify", str(crash)]).exit_code == 0


def test_a_flipped_bit_is_named_and_exits_1(crash: Path, tmp_path: Path) -> None:
    data = bytearray(crash.read_bytes())
    data[len(data) // 2] ^= 16
    bad = tmp_path / "bad.fsx"
    bad.write_bytes(data)
    done = runner.invoke(app, ["verify", str(bad), "--json"])
    found = json.loads(done.stdout)
    assert done.exit_code == 1 and not found["holds"]
    assert any(fault["first_byte"] <= len(data) // 2 <= fault["last_byte"] for fault in found["faults"])
    assert "FAULT" in runner.invoke(app, ["verify", str(bad)]).output


def test_an_expired_chain_exits_1(crash: Path) -> None:
    done = runner.invoke(app, ["verify", str(crash), "--at", "2055-01-01"])
    assert done.exit_code == 1 and "expired" in done.output


def test_a_drive_without_a_crash_seals_nothing(tmp_path: Path) -> None:
    out = tmp_path / "none.fsx"
    done = runner.invoke(app, ["simulate", "--pulse", "kerb_strike", "--profile", "un-r160", "--out", str(out)])
    assert done.exit_code == 0 and "0 record(s)" in done.output
    assert runner.invoke(app, ["verify", str(out)]).exit_code == 0


def test_wrong_words_are_answered_with_the_right_ones(tmp_path: Path) -> None:
    done = runner.invoke(app, ["simulate", "--pulse", "bang", "--profile", "un-r160", "--out", str(tmp_path / "x")])
    assert done.exit_code == 2 and "haversine" in done.output
    missing = runner.invoke(app, ["verify", str(tmp_path / "nothing.fsx")])
    assert isinstance(missing.exception, SetupError)
