"""The harness on small made-up data sets of the published layouts, and the figures it is made of."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from anomaly.benchmarks.page import page
from anomaly.life.drift import ANOTHER_WORLD, STEADY, Reference
from anomaly.life.features import Cycles, Standard, features
from anomaly.life.model import LifeSettings, call_below, phm_score, train
from anomaly.metrics import confusion, missed_at_far, poisson_upper, roc_auc, vus_pr
from infra import score_data
from infra.cli.score import app


def fleet(units: int, seed: int) -> tuple[Cycles, np.ndarray]:
    """Units whose one sensor leaves zero over the last 60 cycles of their life."""
    rng = np.random.default_rng(seed)
    unit: list[int] = []
    cycle: list[int] = []
    sensor: list[float] = []
    life: list[int] = []
    for number in range(units):
        length = int(rng.integers(100, 180))
        left = np.arange(length)[::-1]
        unit += [number] * length
        cycle += range(1, length + 1)
        sensor += list(np.clip(60 - left, 0, None) / 20 + rng.normal(0, 0.2, length))
        life += left.tolist()
    sensors = np.stack([sensor, rng.normal(size=len(sensor))], axis=1)
    return Cycles(np.array(unit), np.array(cycle), np.zeros((len(unit), 3)), sensors), np.array(life, dtype=float)


def test_remaining_life_is_learnt_and_its_interval_covers() -> None:
    known, life = fleet(24, 1)
    asked, truth = fleet(12, 2)
    standard = Standard.learnt(known)
    settings = LifeSettings(trees=40, learning_rate=0.15, leaf_rows=20, coverage=0.8, folds=3)
    model = train(features(known, standard), known.unit, life, 0, settings)
    predicted, low, high = model.predict(features(asked, standard), asked.unit)
    late = truth < 50
    assert np.abs(predicted - truth)[late].mean() < 8
    assert ((low <= truth) & (truth <= high))[late].mean() > 0.65
    assert (low <= predicted).all() and (predicted <= high).all()
    part = np.arange(len(asked.unit)) < 70
    first = Cycles(asked.unit[part], asked.cycle[part], asked.settings[part], asked.sensors[part])
    assert np.allclose(model.predict(features(first, standard), first.unit)[0], predicted[part])
    assert model.reference.index(features(asked, standard)["short"]).max() < 0.5


def test_features_of_a_unit_do_not_depend_on_others_or_on_its_future() -> None:
    known, _ = fleet(6, 3)
    standard = Standard.learnt(known)
    one = known.unit == 4
    part = Cycles(known.unit[one][:70], known.cycle[one][:70], known.settings[one][:70], known.sensors[one][:70])
    alone, together = features(part, standard), features(known, standard)
    assert all(np.allclose(alone[name], together[name][one][:70]) for name in alone)


def test_costs_decide_the_limit_and_drift_is_seen() -> None:
    life, soon = np.array([5.0, 10.0, 20.0, 40.0]), np.array([True, False, True, False])
    assert call_below(life, soon, 1.0, 50.0) == 20.0
    assert call_below(life, soon, 50.0, 1.0) == 5.0
    rng = np.random.default_rng(4)
    steady = Reference.of(rng.normal(size=(4_000, 2))).index(
        np.stack([rng.normal(size=4_000), rng.normal(1, 1, 4_000)], 1)
    )
    assert steady[0] < STEADY and steady[1] > ANOTHER_WORLD


def test_phm_score_makes_lateness_dearer() -> None:
    assert phm_score(np.array([0.0])) == 0.0
    assert phm_score(np.array([10.0])) == pytest.approx(np.e - 1) and phm_score(np.array([-13.0])) == pytest.approx(
        np.e - 1
    )


def test_figures_of_always_and_perfect() -> None:
    truth = np.array([False] * 60 + [True] * 40)
    assert confusion(np.ones(100, dtype=bool), truth).f1 == pytest.approx(2 * 0.4 / 1.4)
    assert confusion(truth, truth) == confusion(truth, truth) and confusion(truth, truth).f1 == 1.0
    assert roc_auc(truth.astype(float), truth) == 1.0 and roc_auc(np.zeros(100), truth) == 0.5
    assert missed_at_far(truth.astype(float), truth, 0.1) == 0.0
    noise = np.random.default_rng(5).random(100)
    assert vus_pr(noise, truth, 10) < vus_pr(truth.astype(float), truth, 10) <= 1.0


def test_no_event_in_three_units_of_exposure_bounds_the_rate_at_one() -> None:
    assert poisson_upper(0, 2.9957) == pytest.approx(1.0, abs=1e-3)
    assert poisson_upper(4, 1.0) == pytest.approx(9.1535, abs=1e-3)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a small pump rig and a gearbox."""
    rng = np.random.default_rng(6)
    rig = tmp_path / "skab" / "valve9"
    rig.mkdir(parents=True)
    for run in range(2):
        values = rng.normal(size=(700, 3))
        values[550:, 1] += 3.0
        rows = [
            ";".join([f"2020-01-01 00:00:{row % 60:02d}", *map(str, values[row]), str(float(row >= 550)), "0.0"])
            for row in range(700)
        ]
        (rig / f"{run}.csv").write_text("\n".join(["datetime;a;b;c;anomaly;changepoint", *rows]))
    box = tmp_path / "gearbox"
    box.mkdir()
    for kind, level in (("h", 0.0), ("b", 3.0)):
        for load in (10, 20):
            wave = rng.normal(size=(1024 * 40, 2))
            wave[::64] += level * (1 + load / 10)
            np.savetxt(box / f"{kind}30hz{load}.csv", wave, delimiter=",", header="a1,a2", comments="")
    return tmp_path


def test_the_command_scores_what_is_there_and_ends_with_json(data: Path) -> None:
    done = CliRunner().invoke(app, ["--data", str(data), "--months", "0", "--page", str(data / "scores.md")])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout.strip().splitlines()[-1])
    assert set(result) == {"skab", "gearbox", "cuts"}
    pieces = result["cuts"]["one pass against pieces"]["skab, mahalanobis"]
    assert pieces["readings"] == 1_400 and pieces["alarms"] > 0 and pieces["different"] == 0
    assert result["skab"]["valve9"]["mahalanobis"]["roc_auc"] > 0.95
    (loads,) = result["gearbox"].values()
    assert min(row["roc_auc"] for row in loads.values()) > 0.9 and min(row["pr_auc"] for row in loads.values()) > 0.9
    assert "always alarm" in (data / "scores.md").read_text()


def test_a_page_keeps_the_parts_that_were_not_scored_now() -> None:
    first = page({"skab": {"v": {"x": {"f1": 0.5}}}, "nab": {"corpus": {"x": {"standard": 60.0}}}})
    again = page({"skab": {"v": {"x": {"f1": 0.75}}}}, first)
    assert "0.75" in again and "| x | 0.5 |" not in again and "| x | 60 |" in again
    assert again.index("## nab") < again.index("## skab")
    assert page({}, again) == again and again.count("# Scores\n") == 1


def test_labels_of_another_version_are_refused(tmp_path: Path) -> None:
    (tmp_path / "nab" / "labels").mkdir(parents=True)
    (tmp_path / "nab" / "data" / "f").mkdir(parents=True)
    (tmp_path / "nab" / "labels" / "combined_windows.json").write_text(
        '{"f/x.csv": [["2020-01-01 00:00:00.000000", "2020-01-01 09:00:00.000000"]]}'
    )
    (tmp_path / "nab" / "data" / "f" / "x.csv").write_text("timestamp,value\n2020-01-01 00:00:00,1.0\n")
    with pytest.raises(Exception, match="labels name"):
        score_data.read_nab(tmp_path)
