"""What Spark's tasks do for a training, called without Spark: records to blocks, days of devices, rows and scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from anomaly.deployment import FOREVER
from anomaly.models.file import Model
from anomaly.shard import Shard
from stream_jobs.detection.samples import Plan
from stream_jobs.models.reading import Wanted, cut
from stream_jobs.models.reading import joined as readings_of_day
from stream_jobs.models.workshop import Draw, Try, ground
from tests.anomaly.fix_models import RECIPE, SHAPE, T0, WAIT_MS, driven, samples, trained
from tests.stream_jobs.build import LIVE, TOPICS, Device, in_log_order, table
from tests.stream_jobs.fix_models import packets

DEVICES = [Device(f"car{car}", car, "north", 1) for car in (1, 2)]
SECONDS = 1_800
BOUND = {1: np.array([[0, FOREVER]]), 2: np.array([[T0, T0 + 600_000]])}


def blocks(wanted: Wanted, cuts: int) -> pd.DataFrame:
    """As the tasks give them, the records cut into ``cuts`` tables."""
    frames = [frame for device in DEVICES for frame in packets(device, device.key, 0, SECONDS)]
    plan = Plan(Shard((), WAIT_MS, wanted.signals), 1, {LIVE: TOPICS[LIVE]}, {LIVE: 0})
    whole = table(in_log_order(frames))
    size = -(-len(frames) // cuts)
    made = [
        batch
        for at in range(0, len(frames), size)
        for batch in cut(plan, wanted, 0, whole.slice(at, size).combine_chunks().to_batches())
    ]
    found: pd.DataFrame = pa.Table.from_batches(made).to_pandas()
    return found


def by_day(frame: pd.DataFrame, work: Any) -> pd.DataFrame:
    groups = frame.sample(frac=1.0, random_state=1).groupby(["device", "day"])
    found: pd.DataFrame = pd.concat([work(key, group) for key, group in groups])
    return found


def test_blocks_hold_every_reading_once_in_log_order_however_the_log_is_cut() -> None:
    wanted = Wanted(RECIPE.signals, BOUND, 0, FOREVER)
    whole = blocks(wanted, 1)
    assert whole["records"].sum() == 2 * SECONDS // 60 and set(whole["device"]) == {1, 2}
    for cuts in (1, 3, 7):
        made = blocks(wanted, cuts)
        assert made["readings"].sum() == whole["readings"].sum()
        for device, seconds in ((1, SECONDS), (2, 600)):
            mine = made[made["device"] == device].sample(frac=1.0, random_state=cuts)
            found = readings_of_day(mine)
            expected = samples(device, driven(device, 0, SECONDS), 0)
            expected = expected[expected["at_ms"] < T0 + 1_000 * seconds]
            names = ["signal", "at_ms", "seq"]
            assert np.array_equal(np.sort(found[names], order=names), np.sort(expected[names], order=names))
            assert (np.diff(found["seq"]) >= 0).all()


def test_a_span_and_stretches_that_were_not_well_are_left_out() -> None:
    wanted = Wanted(RECIPE.signals, BOUND, T0 + 60_000, T0 + 900_000)
    sick = ground([(1, None, None)], [(1, T0 + 700_000, T0 + 800_000), (5, 0, 1)]).sick
    assert sick.keys() == {1}
    drawn = by_day(blocks(wanted, 2), Draw(SHAPE, WAIT_MS, T0 + 600_000, {}, 10_000, 1)).set_index("device")
    assert drawn["n"].to_dict() == {1: 108, 2: 108}  # one row each five seconds from the first minute on
    less = by_day(blocks(wanted, 2), Draw(SHAPE, WAIT_MS, FOREVER, sick, 10_000, 1)).set_index("device")
    assert less["n"][1] == 8 and less["n"][2] == 108  # ten minutes around what was not well go, too
    assert by_day(blocks(wanted, 2), Draw(SHAPE, WAIT_MS, FOREVER, {}, 50, 1))["n"].tolist() == [50, 50]


def test_models_are_tried_side_by_side() -> None:
    wanted = Wanted(RECIPE.signals, {1: BOUND[1], 2: BOUND[1]}, 0, FOREVER)
    good, loud = trained(), trained(loud=True)

    def part(model: Model) -> Any:
        return model.shape, model.deployment(), model.faults

    rows = by_day(blocks(wanted, 4), Try((part(good), part(loud)), WAIT_MS, T0, {})).to_dict("records")
    assert [row["number"] for row in rows].count(1) == 2
    first = rows[0]
    assert first["hours"] > 0.4 and first["alarms"] == 0 and 0 < first["delays"][0] < 600
    assert sum(row["alarms"] for row in rows if row["number"] == 1) > 0
