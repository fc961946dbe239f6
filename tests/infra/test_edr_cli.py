"""``fleetstream edr simulate`` and ``verify``: exit codes and what they print."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infra.ca import DevelopmentCa
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
    said = runner.invoke(app, ["verify", str(crash)])
    assert said.exit_code == 0 and "ignition cycle at download: 1\n" in said.stdout


def test_roots_are_trusted_by_file_or_by_hash_and_there_may_be_several(crash: Path, tmp_path: Path) -> None:
    found = json.loads(runner.invoke(app, ["verify", str(crash), "--json"]).stdout)
    root = found["root_sha256"]
    assert [one["root_sha256"] for one in found["records"]] == [root]
    assert f"sealed under root {root}" in runner.invoke(app, ["verify", str(crash)]).stdout
    authority = DevelopmentCa(tmp_path / "ca", datetime(2026, 9, 21, tzinfo=UTC)).signer("car-1").certificate
    both = runner.invoke(app, ["verify", str(crash), "--trust-root", root, "--trust-root", str(authority), "--json"])
    assert both.exit_code == 0 and json.loads(both.stdout)["root_trusted"]
    other = runner.invoke(app, ["verify", str(crash), "--trust-root", str(authority)])
    assert other.exit_code == 1 and "who sealed it answers to root" in other.stderr
    for wrong in ("no such file", str(crash)):
        assert isinstance(runner.invoke(app, ["verify", str(crash), "--trust-root", wrong]).exception, SetupError)


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
