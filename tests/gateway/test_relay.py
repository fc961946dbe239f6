"""The loop with everything outside it in the test's hand: random faults, and the law that nothing is told too early."""

from __future__ import annotations

from dataclasses import dataclass, field

from confluent_kafka import KafkaError
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contracts.acks import decode_ack
from contracts.topics import Topics
from gateway.acker import Acker
from gateway.admission import Admission, Inbound, Verdict
from gateway.commands import CommandFeed
from gateway.counts import Counts
from gateway.limiter import Limiter
from gateway.outlet import ErrorReport, Outlet
from gateway.registry import RegistryFeed, RegistryView
from gateway.relay import Clocks, Relay
from gateway.window import AckWindow
from tests.gateway.fakes import FakeConsumer, FakeLink, FakeProducer
from tests.gateway.samples import NOW_MS, frame, registration

ROOM = 30
FAILED = KafkaError(KafkaError._MSG_TIMED_OUT)
FATAL = KafkaError(KafkaError._FATAL, "fenced", fatal=True)


@dataclass(slots=True)
class Rig:
    """A relay over fakes, with a clock that the test moves."""

    burst: int = 1_000
    now_s: float = 0.0
    link: FakeLink = field(default_factory=FakeLink)
    producers: list[FakeProducer] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    window: AckWindow = field(default_factory=lambda: AckWindow(ROOM, 1_000_000))
    relay: Relay = field(init=False)

    def __post_init__(self) -> None:
        view = RegistryView()
        view.devices["car-1"] = registration()
        admission = Admission(Topics("t"), view.devices)
        clocks = Clocks(lambda: self.now_s, lambda: NOW_MS / 1000 + self.now_s)
        limiter = Limiter(10.0, self.burst)
        self.relay = Relay(admission, limiter, self.window, Acker(5.0), self.counts, clocks)
        self.link.receive = self.relay.receive
        outlet = Outlet(self._make, self.window, self.counts)
        feed = RegistryFeed(FakeConsumer(), "r", view)  # type: ignore[arg-type]
        commands = CommandFeed(FakeConsumer(), self.link, self.counts)  # type: ignore[arg-type]
        self.relay.attach(self.link, outlet, (feed,), commands)

    def _make(self, report: ErrorReport) -> FakeProducer:
        self.producers.append(FakeProducer(report))
        return self.producers[-1]

    def heard(self, *, rejected: bool = False) -> list[int]:
        """Every number told to the device."""
        acks = [decode_ack(payload) for _, payload, _ in self.link.published]
        ranges = [pair for ack in acks for pair in (ack.rejected if rejected else ack.confirmed)]
        return sorted(number for first, last in ranges for number in range(first, last + 1))


class Faults(RuleBasedStateMachine):
    """Publishes, confirmations in any order, failures, fatal errors and reconnects, in any sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig()
        self.seq = 0
        self.in_kafka: set[bytes] = set()
        self.sent: dict[tuple[int, int], bytes] = {}
        self.mid = 0

    @precondition(lambda self: self.rig.link.connected)
    @rule(how_many=st.integers(1, 8), ask=st.booleans())
    def publish(self, how_many: int, ask: bool) -> None:
        for _ in range(how_many):
            self.seq += 1
            self.mid += 1
            payload = frame(seq=self.seq, samples=0)
            self.sent[self.rig.link.connection, self.mid] = payload
            self.rig.link.incoming.append(("v1/car-1/up/live", payload, self.mid, False, ask))

    @precondition(lambda self: self.rig.producers[-1].open)
    @rule(data=st.data())
    def kafka_confirms_one(self, data: st.DataObject) -> None:
        producer = self.rig.producers[-1]
        at = data.draw(st.integers(0, len(producer.open) - 1))
        self.in_kafka.add(producer.open[at][0][2])
        producer.end(at)

    @precondition(lambda self: self.rig.producers[-1].open)
    @rule()
    def kafka_fails_one(self) -> None:
        self.rig.producers[-1].end(0, FAILED)

    @rule()
    def the_producer_dies(self) -> None:
        self.rig.producers[-1].report(FATAL)

    @rule()
    def the_connection_is_lost(self) -> None:
        """What was read is unacknowledged for the broker; what was not read is still with it."""
        self.rig.link.connected = False
        self.rig.link.incoming = []

    @rule()
    def the_connection_comes_back(self) -> None:
        if not self.rig.link.connected:
            self.rig.link.connection += 1
            self.rig.link.connected = True
            self.mid = 0

    @rule(pause_s=st.floats(0.01, 6.0))
    def a_round(self, pause_s: float) -> None:
        self.rig.now_s += pause_s
        self.rig.relay.step()

    @invariant()
    def no_puback_and_no_confirmation_before_kafka(self) -> None:
        assert all(self.sent[puback] in self.in_kafka for puback in self.rig.link.pubacks)
        assert all(frame(seq=seq, samples=0) in self.in_kafka for seq in self.rig.heard())

    @invariant()
    def pubacks_are_in_order_on_each_connection(self) -> None:
        pubacks = self.rig.link.pubacks
        assert pubacks == sorted(set(pubacks))

    @invariant()
    def the_window_is_bounded(self) -> None:
        assert len(self.rig.window) <= ROOM

    def teardown(self) -> None:
        """Once Kafka answers again, everything that was read is confirmed to its device."""
        self.the_connection_comes_back()
        for _ in range(200):
            producer = self.rig.producers[-1]
            self.in_kafka |= {sent[2] for sent, _ in producer.open}
            producer.end_all()
            self.a_round(6.0)
        assert len(self.rig.window) == 0 and not self.rig.link.incoming
        assert set(self.rig.heard()) == {
            seq for seq in range(1, self.seq + 1) if frame(seq=seq, samples=0) in self.in_kafka
        }


TestFaults = Faults.TestCase
TestFaults.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def round_trip(rig: Rig, payload: bytes, topic: str = "v1/car-1/up/live", *, ask: bool = False) -> None:
    """One publish, confirmed by Kafka, one more round."""
    rig.link.incoming.append((topic, payload, rig.counts.received + 1, False, ask))
    rig.relay.step()
    rig.producers[-1].end_all()
    rig.relay.step()


def test_who_asks_is_answered_at_once_and_who_does_not_by_the_timer() -> None:
    rig = Rig()
    round_trip(rig, frame(seq=1))
    assert rig.heard() == []
    round_trip(rig, frame(seq=2), ask=True)
    assert rig.heard() == [1, 2]
    round_trip(rig, frame(seq=3))
    rig.now_s += 5.0
    rig.relay.step()
    assert rig.heard() == [1, 2, 3]


def test_priority_and_rejected_packets_are_answered_at_once() -> None:
    rig = Rig()
    round_trip(rig, frame(seq=1, lane=2), "v1/car-1/up/priority")
    assert rig.heard() == [1]
    round_trip(rig, frame(seq=2, tenant="rival"))
    assert (rig.heard(rejected=True), rig.counts.refused) == ([2], {"tenant_mismatch": 1})


def test_what_is_over_the_rate_is_pubacked_and_neither_produced_nor_confirmed() -> None:
    rig = Rig(burst=3)
    for seq in range(1, 6):
        round_trip(rig, frame(seq=seq), ask=True)
    assert rig.heard() == [1, 2, 3]
    assert [packet_id for _, packet_id in rig.link.pubacks] == [1, 2, 3, 4, 5]
    assert (rig.counts.shed, rig.counts.produced) == (2, 3)


def test_a_bug_in_the_judgement_keeps_the_bytes_and_confirms_nothing() -> None:
    rig = Rig()

    class Broken(Admission):
        """Fails on everything."""

        def admit(self, message: Inbound) -> Verdict:
            raise ZeroDivisionError

    rig.relay._admission = Broken(Topics("t"), {})
    rig.link.incoming.append(("v1/car-1/up/live", b"odd", 1, False, True))
    rig.relay.step()
    assert [sent[2] for sent, _ in rig.producers[0].open] == [b"odd"]
    rig.producers[0].end_all()
    rig.relay.step()
    assert (rig.link.pubacks, rig.heard(), rig.heard(rejected=True)) == ([(1, 1)], [], [])
    assert rig.counts.refused == {"internal_error": 1}


def test_stopping_takes_nothing_new_and_finishes_what_was_begun() -> None:
    rig = Rig()
    rig.link.incoming.append(("v1/car-1/up/live", frame(seq=1), 1, False, False))
    rig.relay.step()
    rig.producers[0].end_all()
    rig.relay.request_stop()
    rig.link.incoming.append(("v1/car-1/up/live", frame(seq=2), 2, False, False))
    rig.relay.run(5.0)
    assert (rig.link.pubacks, rig.heard(), rig.link.closed) == ([(1, 1)], [1], True)
    assert rig.counts.received == 1


def test_a_puback_of_an_older_connection_is_dropped_and_counted() -> None:
    rig = Rig()
    rig.link.incoming.append(("v1/car-1/up/live", frame(seq=1), 1, False, True))
    rig.relay.step()
    rig.link.connection += 1
    rig.producers[0].end_all()
    rig.relay.step()
    assert (rig.link.pubacks, rig.counts.stale_pubacks, rig.heard()) == ([], 1, [1])
