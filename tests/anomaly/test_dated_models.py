"""Models that succeed one another: who judges which moment follows from event time, however the log is cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anomaly.deployment import FOREVER, check_set
from anomaly.errors import BadParameters
from anomaly.moments import SAMPLE
from anomaly.shard import Shard
from anomaly.types import Rows
from tests.anomaly.test_shard import DRIFT, HOT, SHARD, T0, WAIT_MS, log, told_of

CHANGE_MS = T0 + 100_000
OLD = replace(HOT, name="model", model="a" * 64, until_ms=CHANGE_MS)
NEW = replace(HOT, name="model", model="b" * 64, since_ms=CHANGE_MS)
ALSO = (21,)
BEFORE = Shard((DRIFT, replace(OLD, until_ms=FOREVER)), WAIT_MS, ALSO)
AFTER = Shard((DRIFT, OLD, NEW), WAIT_MS, ALSO)


def unit(rows: Rows) -> list[tuple[float, ...]]:
    """Tellings of the old and the new model, without the place in the set."""
    return [tuple(row)[1:] for row in rows.tolist() if row[0] > 0]


def hot_run(seconds: int = 200, hot_from: int = 60, hot_until: int = 160) -> Rows:
    at = np.arange(seconds)
    samples = np.zeros(seconds, SAMPLE)
    samples["device"], samples["signal"], samples["at_ms"], samples["seq"] = 1, 21, T0 + 1_000 * at, at + 1
    samples["value"] = np.where((at >= hot_from) & (at < hot_until), 120.0, 90.0)
    return samples


def test_what_is_open_at_the_change_is_closed_by_it_and_the_next_model_begins_its_own() -> None:
    old, new = (row for row in told_of(hot_run(), [], AFTER)[0] if row["deployment"] > 0)
    assert (int(old["started_ms"]), int(old["closed_ms"])) == (T0 + 60_000, CHANGE_MS)
    assert int(new["started_ms"]) == CHANGE_MS and int(new["closed_ms"]) > T0 + 160_000
    assert (int(old["readings"]), int(new["readings"])) == (40, 60)


@settings(max_examples=12)
@given(seed=st.integers(0, 4), switch=st.integers(0, 900), cuts=st.lists(st.integers(0, 4_000), max_size=8))
def test_a_set_changed_on_the_way_says_what_a_replay_with_the_whole_schedule_says(
    seed: int, switch: int, cuts: list[int]
) -> None:
    samples = log(seed)
    told, _ = told_of(samples, sorted(min(cut, len(samples)) for cut in cuts), AFTER)
    first = int(np.flatnonzero(samples["at_ms"] >= CHANGE_MS)[0])
    cut = min(switch, first)  # nothing at or after the change was read when the set is exchanged
    early = BEFORE.run(BEFORE.start(), samples[:cut])
    late = AFTER.run(AFTER.load(BEFORE.dump(early.state)), samples[cut:])
    rows = np.sort(
        np.concatenate([early.told, late.told]), order=["deployment", "device", "lane", "started_ms", "revision"]
    )
    keys = rows[["deployment", "device", "lane", "started_ms"]]
    assert rows[np.append(keys[1:] != keys[:-1], True)].tobytes() == told.tobytes()


def test_a_state_of_other_parameters_is_never_taken() -> None:
    state = BEFORE.run(BEFORE.start(), hot_run(80)).state
    assert state.parts[1].keys.tolist() == [2] and state.parts[1].excursions["open"].all()
    other = Shard((DRIFT, replace(NEW, since_ms=0)), WAIT_MS, ALSO).load(BEFORE.dump(state))
    assert not len(other.parts[1].keys) and len(other.series) == len(state.series)
    again = Shard((DRIFT, replace(OLD, since_ms=5)), WAIT_MS, ALSO).load(BEFORE.dump(state))
    assert not len(again.parts[1].keys)
    kept = AFTER.load(BEFORE.dump(state))
    assert kept.parts[1].excursions.tobytes() == state.parts[1].excursions.tobytes() and not len(kept.parts[2].keys)


def test_models_change_neither_the_declared_version_nor_what_declared_detectors_say() -> None:
    assert AFTER.version == BEFORE.version != Shard((DRIFT,), WAIT_MS).version
    assert OLD.version != NEW.version and OLD.version == replace(OLD, until_ms=FOREVER).version
    samples = log(2)
    plain = told_of(samples, [], Shard((DRIFT,), WAIT_MS, ALSO))[0]
    dated = told_of(samples, [7, 300], AFTER)[0]
    assert len(plain) and dated[dated["deployment"] == 0].tobytes() == plain.tobytes()
    assert unit(dated) and all(row["deployment"] < len(SHARD.deployments) for row in told_of(samples, [])[0])


def test_two_models_of_one_name_at_one_time_are_refused() -> None:
    assert check_set((OLD, NEW)) == (OLD, NEW)
    with pytest.raises(BadParameters, match="share a name"):
        check_set((OLD, replace(NEW, since_ms=CHANGE_MS - 1)))
    with pytest.raises(BadParameters, match="ends before it begins"):
        replace(NEW, until_ms=CHANGE_MS)
