"""The way into Kafka when it goes wrong: failed records go again, a dead producer is replaced, nothing is forgotten."""

from __future__ import annotations

from confluent_kafka import KafkaError

from gateway.admission import Record
from gateway.counts import Counts
from gateway.outlet import RETRY_PAUSE_S, ErrorReport, Outlet
from gateway.window import AckWindow, Entry
from tests.gateway.fakes import FakeProducer

FATAL = KafkaError(KafkaError._FATAL, "fenced", fatal=True)
FAILED = KafkaError(KafkaError._MSG_TIMED_OUT)


class Bench:
    """An outlet over fake producers, each one kept."""

    def __init__(self) -> None:
        self.producers: list[FakeProducer] = []
        self.window = AckWindow(100, 10_000)
        self.counts = Counts()
        self.outlet = Outlet(self._make, self.window, self.counts)

    def _make(self, report: ErrorReport) -> FakeProducer:
        self.producers.append(FakeProducer(report))
        return self.producers[-1]

    def send(self, number: int) -> Entry:
        entry = Entry(number, 1, Record("topic", b"key", b"%d" % number, ("fs", b"stamp")), 0.0)
        self.window.add(entry)
        self.outlet.send(entry)
        return entry

    def values(self, producer: int = -1) -> list[bytes]:
        return [sent[2] for sent, _ in self.producers[producer].open]


def test_a_confirmed_record_is_finished() -> None:
    bench = Bench()
    first, second = bench.send(1), bench.send(2)
    assert bench.producers[0].open[0][0] == ("topic", b"key", b"1", [("fs", b"stamp")])
    bench.producers[0].end(1)
    bench.outlet.poll(0.0)
    assert (first.finished, second.finished, bench.counts.produced) == (False, True, 1)


def test_a_failed_record_goes_again_after_a_pause() -> None:
    bench = Bench()
    entry = bench.send(1)
    bench.producers[0].end(0, FAILED)
    bench.outlet.poll(0.0)
    assert bench.values() == [b"1"]
    bench.producers[0].end(0, FAILED)
    bench.outlet.poll(RETRY_PAUSE_S / 2)
    assert bench.values() == []
    bench.outlet.poll(RETRY_PAUSE_S)
    assert bench.values() == [b"1"]
    bench.producers[0].end(0)
    bench.outlet.poll(RETRY_PAUSE_S)
    assert entry.finished
    assert bench.counts.kafka_errors == {"_MSG_TIMED_OUT": 2}


def test_a_full_queue_or_a_refusal_only_delays() -> None:
    bench = Bench()
    bench.producers[0].full = True
    bench.send(1)
    bench.producers[0].full = False
    bench.producers[0].refuse = KafkaError(KafkaError._UNKNOWN_TOPIC)
    bench.send(2)
    bench.producers[0].refuse = None
    bench.outlet.poll(RETRY_PAUSE_S)
    assert bench.values() == [b"1", b"2"]


def test_a_fatal_error_replaces_the_producer_and_repeats_what_is_unconfirmed() -> None:
    bench = Bench()
    entries = [bench.send(number) for number in (1, 2, 3, 4)]
    bench.producers[0].end(0)
    bench.outlet.poll(0.0)
    bench.producers[0].end(0, FATAL)
    bench.outlet.poll(0.0)
    assert len(bench.producers) == 2
    assert bench.values() == [b"2", b"3", b"4"]
    assert bench.counts.producers_replaced == 1
    bench.producers[1].end_all()
    bench.outlet.poll(1.0)
    assert all(entry.finished for entry in entries)


def test_a_fatal_error_that_belongs_to_no_record() -> None:
    bench = Bench()
    bench.send(1)
    bench.producers[0].report(KafkaError(KafkaError._TRANSPORT))
    bench.outlet.poll(0.0)
    assert len(bench.producers) == 1
    bench.producers[0].report(FATAL)
    bench.outlet.poll(0.0)
    assert (len(bench.producers), bench.values()) == (2, [b"1"])


def test_what_the_old_producer_still_reports_counts_only_when_good() -> None:
    bench = Bench()
    first, second = bench.send(1), bench.send(2)
    old = bench.producers[0]
    late = [delivered for _, delivered in old.open]
    old.report(FATAL)
    bench.outlet.poll(0.0)
    late[0](None, object())
    late[1](FAILED, object())
    bench.outlet.poll(RETRY_PAUSE_S)
    assert (first.finished, second.finished) == (True, False)
    assert bench.values() == [b"1", b"2"]
    bench.producers[1].end_all()
    bench.outlet.poll(1.0)
    assert bench.counts.produced == 2
