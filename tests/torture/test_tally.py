"""The page of recorded runs adds up what the lines say."""

from __future__ import annotations

import json

from tests.torture.tally import page

RUN = {
    "seed": 7, "kills": 30, "accepted": 1_500, "stored": 1_498, "set_aside": 2, "log_records": 1_700, "lost": 0,
    "recovery_s_p95": 12.5, "ok": True, "commit": "abc1234", "faults": {"kill": 12, "clone": 1},
}  # fmt: skip


def test_runs_are_added_up_and_each_has_its_row() -> None:
    failed = RUN | {"seed": 8, "kills": 20, "lost": 3, "ok": False, "recovery_s_p95": None, "faults": {"kill": 9}}
    text = page("\n".join(json.dumps(run) for run in (RUN, RUN, failed)))
    assert "3 runs of 2 seeds, 80 kills, 4,500 packets accepted, 5,100 records in the log." in text
    assert "Over all runs: lost 3," in text
    assert "2 runs of 1 seeds with 60 kills are `ok`; over these: lost 0," in text
    assert "| 8 | abc1234 | 20 | 1500 | 1498 | 2 | 0 | – | 3 |" in text
    assert "2 kinds (one `kill` may have several victims): clone 2, kill 33." in text


def test_no_runs_are_said_to_be_none() -> None:
    assert "No run is recorded." in page("\n")
