"""States of devices put together and taken apart; what late readings change, decided by itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anomaly.corrections import SURE_MS, Change, Said, Stored, changes
from anomaly.history import Trust, in_order, of_device, quiet, together
from anomaly.moments import astray
from tests.anomaly.test_shard import DRIFT, HOT, SHARD, log


def test_devices_are_judged_together_as_alone() -> None:
    samples = in_order(log(2, devices=3, seconds=160))
    half = np.searchsorted(np.unique(samples["at_ms"]), np.median(samples["at_ms"]))
    cut = np.unique(samples["at_ms"])[half]
    alone = {}
    for device in (1, 2, 3):
        mine = samples[samples["device"] == device]
        first = SHARD.run(SHARD.start(), mine[mine["at_ms"] < cut]).state
        alone[device] = (first, SHARD.run(first, mine[mine["at_ms"] >= cut]))
    both = SHARD.run(together([alone[device][0] for device in (3, 1, 2)]), samples[samples["at_ms"] >= cut])
    assert len(both.told) and not both.late
    for device, (_, step) in alone.items():
        assert SHARD.dump(of_device(both.state, device)) == SHARD.dump(step.state)
        assert quiet(of_device(both.state, device)) == quiet(step.state)
        assert both.told[both.told["device"] == device].tobytes() == step.told.tobytes()


def test_spans_of_a_device_are_one() -> None:
    rows = astray(np.array([7, 3, 7]), np.array([50, 10, 20]), np.array([60, 11, 21]))
    assert rows.tolist() == [(3, 10, 11), (7, 20, 60)]


def test_what_a_history_may_judge() -> None:
    whole, cut = Trust(0), Trust(1_000_000_000)
    assert whole.in_finding(DRIFT, 5) and not cut.in_finding(DRIFT, 2_000_000_000), "it remembers everything"
    memory_ms = HOT.detector.memory_ms or 0
    assert cut.in_finding(HOT, 1_000_000_000 + memory_ms) and not cut.in_finding(HOT, 1_000_000_000 + memory_ms - 1)


FROM_MS, TO_MS = 1_000_000, 9_000_000
times = st.integers(0, 10_000_000)


def _said(start: int, lasted: int, closed: bool, score: float) -> Said:
    return Said(start, start + lasted, start + lasted if closed else None, 2, score, 1.0, 3)


said = st.builds(_said, times, st.integers(0, 3_000_000), st.booleans(), st.sampled_from([1.0, 2.0]))
names = st.sampled_from("abcdef")


@given(
    st.dictionaries(names, st.builds(Stored, said, st.integers(0, 2), st.booleans())), st.dictionaries(names, said),
    st.sets(names),
)  # fmt: skip
def test_corrections_lead_to_the_history_and_not_beyond_it(
    stored: dict[str, Stored], judged: dict[str, Said], distrusted: set[str]
) -> None:
    found = changes(stored, judged, FROM_MS, TO_MS, lambda name: name not in distrusted)
    assert not distrusted & set(found)
    after = dict(stored)
    for name, change in found.items():
        before = stored.get(name)
        assert (change is Change.ADDED) == (before is None)
        assert (change is Change.RESTORED) == (before is not None and before.retracted)
        if change is Change.RETRACTED:
            assert name not in judged and before is not None and before.said.started_ms >= FROM_MS
            assert min(before.said.at_ms, before.said.started_ms + SURE_MS) <= TO_MS
            after[name] = Stored(before.said, 1, True)
        else:
            after[name] = Stored(judged[name], 1)
    assert changes(after, judged, FROM_MS, TO_MS, lambda name: name not in distrusted) == {}, "once is enough"
    for name, one in after.items():
        if name not in distrusted and one.said.at_ms <= TO_MS and one.said.started_ms >= FROM_MS and one.corrections:
            assert one.retracted == (name not in judged)
