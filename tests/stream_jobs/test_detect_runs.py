"""When detection goes on and when it begins anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from contracts.errors import Fatal
from stream_jobs.detection.runs import Run, committed_offsets, only_one, open_run, run_key
from stream_jobs.log import Extent, LogState

LOG = LogState({"live": UUID(int=1)}, {"live": {0: Extent(5, 90), 1: Extent(0, 10)}})


def known(_: UUID) -> bool:
    return True


def read_up_to(run: Run, *offsets: int) -> None:
    """What Spark writes for a batch."""
    folder = run.checkpoint / "offsets"
    folder.mkdir(parents=True, exist_ok=True)
    for number, at in enumerate(offsets):
        lines = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps({"live": {"0": at, "1": 3}})]
        (folder / str(number)).write_text("\n".join(lines))


def test_a_restart_goes_on(tmp_path: Path) -> None:
    first = open_run(tmp_path, "a", known, LOG)
    read_up_to(first, 6, 50)
    assert committed_offsets(first.checkpoint / "offsets") == {("live", 0): 50, ("live", 1): 3}
    again = open_run(tmp_path, "a", known, LOG)
    assert (again.run_id, again.resumed, first.resumed) == (first.run_id, True, False)


@pytest.mark.parametrize(
    ("store", "at"), [(lambda _: False, 50), (known, 4), (known, 91)], ids=["lost store", "trimmed", "lost log"]
)
def test_what_is_no_continuation_begins_anew(store: Callable[[UUID], bool], at: int, tmp_path: Path) -> None:
    first = open_run(tmp_path, "a", known, LOG)
    read_up_to(first, at)
    again = open_run(tmp_path, "a", store, LOG)
    assert again.run_id != first.run_id and not again.resumed
    assert committed_offsets(again.checkpoint / "offsets") == {}


def test_another_set_leaves_nothing_of_the_old_one(tmp_path: Path) -> None:
    first = open_run(tmp_path, "a", known, LOG)
    other = open_run(tmp_path, "b", known, LOG)
    assert other.folder.is_dir() and not first.folder.exists()
    other.give_up()
    assert not open_run(tmp_path, "b", known, LOG).resumed


def test_a_run_depends_on_set_shards_and_topics() -> None:
    keys = {run_key("set-1", 4, LOG), run_key("set-2", 4, LOG), run_key("set-1", 8, LOG)}
    keys.add(run_key("set-1", 4, LogState({"live": UUID(int=2)}, LOG.extents)))
    assert len(keys) == 4 and run_key("set-1", 4, LOG) in keys


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    with only_one(tmp_path), pytest.raises(Fatal, match="in use"), only_one(tmp_path):
        pass
