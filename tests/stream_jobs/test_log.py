"""Where reading starts: the ledger's offset, the beginning for a topic it does not know, an error for a gap."""

from __future__ import annotations

import json
import threading
from uuid import UUID, uuid4

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from contracts.errors import TryLater
from contracts.topics import Topics
from infra.kafka import create_topics
from stream_jobs.errors import LogLost
from stream_jobs.log import Extent, LogReader, LogState, lag, refuse_lost_store, starting_offsets
from stream_jobs.service import patiently
from tests.stream_jobs.fix_ingest import send
from tests.stream_jobs.fix_process import wait_for

ONE, TWO = UUID(int=1), UUID(int=2)
STATE = LogState({"a": ONE, "b": TWO}, {"a": {0: Extent(0, 10), 1: Extent(5, 9)}, "b": {0: Extent(3, 3)}})


def test_known_partitions_go_on_and_unknown_ones_begin() -> None:
    ledger = {(ONE, 0): 7, (ONE, 1): 9, (uuid4(), 0): 55}
    assert json.loads(starting_offsets(STATE, ledger)) == {"a": {"0": 7, "1": 9}, "b": {"0": -2}}
    assert lag(STATE, ledger) == {"a": 3, "b": 0}
    assert lag(STATE, {}) == {"a": 14, "b": 0}


def test_a_log_that_begins_after_the_ledger_names_the_gap() -> None:
    with pytest.raises(LogLost, match="records 3 to 4 are gone"):
        starting_offsets(STATE, {(ONE, 1): 3})


def test_a_trimmed_log_that_the_store_never_saw_is_a_lost_store() -> None:
    seen = {(ONE, 1): 9, (TWO, 0): 3}
    refuse_lost_store(STATE, seen)
    for missing in seen:
        with pytest.raises(LogLost, match="fleetstream restore"):
            refuse_lost_store(STATE, {key: at for key, at in seen.items() if key != missing})


def test_a_log_that_ends_before_the_ledger_is_refused() -> None:
    with pytest.raises(LogLost, match="the log ends before 10"):
        starting_offsets(STATE, {(ONE, 0): 11})


def test_kafka_s_own_ids_and_extents(kafka_bootstrap: str, topic_prefix: str) -> None:
    live = Topics(topic_prefix).live
    send(kafka_bootstrap, live.name, [("car1", b"x", None)] * 5)
    reader = LogReader(kafka_bootstrap, [live.name])
    first = patiently(reader.state, threading.Event())
    assert sum(extent.end for extent in first.extents[live.name].values()) == 5
    assert reader.state().ids == first.ids
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    full = next(number for number, extent in first.extents[live.name].items() if extent.end)
    for done in admin.delete_records([TopicPartition(live.name, full, 3)]).values():
        done.result()
    assert reader.state().extents[live.name][full] == Extent(3, 5)
    with pytest.raises(LogLost, match="records 1 to 2 are gone"):
        starting_offsets(reader.state(), {(first.ids[live.name], full): 1})
    for gone in admin.delete_topics([live.name]).values():
        gone.result()
    wait_for(lambda: live.name not in admin.list_topics(timeout=180).topics)
    create_topics(kafka_bootstrap, [live])
    again = patiently(reader.state, threading.Event())
    assert again.ids != first.ids
    assert set(json.loads(starting_offsets(again, {(first.ids[live.name], full): 5}))[live.name].values()) == {-2}


def test_a_missing_topic_is_not_ready_yet(kafka_bootstrap: str) -> None:
    with pytest.raises(TryLater):
        LogReader(kafka_bootstrap, ["nothing.of.this.name"]).state()
