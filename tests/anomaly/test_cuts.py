"""The streaming way and the offline way give the same verdicts on the published series; excerpts, where they are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import pytest

from anomaly.base import Detector, Readings, State, Verdict, columns
from anomaly.benchmarks.cuts import compare, table
from anomaly.life.card import card
from anomaly.life.model import LifeSettings
from anomaly.types import Rows
from infra import score_data

DATA = Path(os.environ.get("FLEETSTREAM_DATA", Path(__file__).parents[3] / "shared" / "data"))
ROWS = 500


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """Links to the two smallest files of each set, so that nothing is read that is not judged."""
    labels = DATA / "nab" / "labels"
    if not labels.is_dir():
        pytest.skip(f"no recordings under {DATA}; name their folder in FLEETSTREAM_DATA")
    (tmp_path / "nab").mkdir()
    (tmp_path / "nab" / "labels").symlink_to(labels)
    for pattern in ("nab/data/realTraffic/*", "skab/valve1/*", "kit-obd/*.csv*"):
        for path in sorted(DATA.glob(pattern), key=lambda path: path.stat().st_size)[:2]:
            link = tmp_path / path.relative_to(DATA)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
    return tmp_path


def test_every_data_sets_detectors_judge_pieces_as_they_judge_the_whole(few: Path) -> None:
    runs = [run for part in score_data.read_skab(few).values() for run in part]
    found = table(score_data.read_nab(few), runs, score_data.read_drives(few), ROWS)
    assert set(found) == {
        "nab, own_past", "skab, mahalanobis", "skab, subspace", "drives, limits", "drives, air flow",
    }  # fmt: skip
    for name, row in found.items():
        assert row["different"] == 0, name
        assert row["series"] == 2 and row["readings"] >= 600 and row["cuts"] >= 4, name
    assert found["skab, mahalanobis"]["alarms"] > 0


@dataclass(frozen=True)
class Forgetful(Detector):
    """Judges by its calls, not by its state: what the comparison must see."""

    name: ClassVar[str] = "forgetful"
    layer: ClassVar[str] = "b"

    @classmethod
    def example(cls) -> Self:
        return cls()

    @property
    def channels(self) -> int:
        return 1

    def row(self) -> Rows:
        return np.zeros(1, dtype=[("seen", "<i8")])

    def judge(self, rows: Rows, readings: Readings) -> Verdict:
        return columns(rows["seen"].astype(float), 50.0, np.ones(len(rows), dtype=bool))

    def learn(self, rows: Rows, readings: Readings, verdict: Verdict) -> None:
        rows["seen"] += 1

    def dump(self, state: State) -> bytes:
        return b""

    def load(self, data: bytes) -> State:
        return self.start(1)


def test_a_state_that_does_not_survive_is_seen() -> None:
    found = compare(Forgetful(), np.arange(200), np.zeros((200, 1)), np.random.default_rng(0), 3)
    assert found.different > 100 and found.alarms == 149


def test_the_card_says_what_was_measured() -> None:
    ours = {
        "rmse_capped": 10.125,
        "coverage": 0.9,
        "mean_width": 30.0,
        "drift": 0.2,
        "call_at": 41.0,
        "cost_a_unit": 0.5,
    }
    rows = {
        "mean over seeds": ours, "always the mean": {"rmse_capped": 40.0}, "ridge": {"rmse_capped": 15.0},
        "call nobody": {"cost_a_unit": 12.0}, "call everybody": {"cost_a_unit": 0.75},
    }  # fmt: skip
    text = card({"FD009": rows}, LifeSettings())
    assert "| FD009 | 10.12 | 40.00 | 15.00 | 90 % | 30 | 0.20 |" in text
    assert "| FD009 | 41 | 0.50 | 12.00 | 0.75 |" in text
