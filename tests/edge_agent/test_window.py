"""The send window against a plain model, through any order of events."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from contracts.packet import Lane
from edge_agent.link import full_jitter_ms
from edge_agent.settings import UplinkSettings
from edge_agent.window import SendWindow

RULES = UplinkSettings(
    in_flight=5, window=8, ack_packets=4, ack_ms=1_000, resend_ms=2_000, resend_max_ms=8_000, backlog_packets_per_s=3
)


class WindowMachine(RuleBasedStateMachine):
    """Publishes, PUBACKs, acknowledgements, cuts and time in any order."""

    packets = Bundle("packets")

    def __init__(self) -> None:
        super().__init__()
        self.window = SendWindow(RULES)
        self.now_ms = 10_000
        self.next_id = 1
        self.in_flight: set[int] = set()
        self.outstanding: dict[int, tuple[Lane, int, int]] = {}
        self.unconfirmed_since_ask = 0
        self.last_ask_ms = 0

    @rule(target=packets, lane=st.sampled_from(Lane), wanted=st.integers(1, 4))
    def send_new(self, lane: Lane, wanted: int) -> object:
        sent = []
        for _ in range(min(wanted, self.window.room(lane, self.now_ms))):
            self.publish(self.next_id, lane, 0)
            sent.append(self.next_id)
            self.next_id += 1
        return multiple(*sent)

    @rule()
    def send_due(self) -> None:
        due = self.window.due(self.now_ms)
        assert due == sorted(due)
        for identity in due:
            lane, attempts, due_ms = self.outstanding[identity]
            assert identity not in self.in_flight
            assert due_ms <= self.now_ms, "nothing is resent before its time"
            self.publish(identity, lane, attempts)

    def publish(self, identity: int, lane: Lane, attempts: int) -> None:
        asks = self.window.asks(lane, self.now_ms)
        self.window.sent(identity, lane, self.now_ms)
        wait_ms = min(RULES.resend_ms * 2**attempts, RULES.resend_max_ms)
        self.outstanding[identity] = (lane, attempts + 1, self.now_ms + wait_ms)
        self.in_flight.add(identity)
        self.unconfirmed_since_ask = 0 if asks else self.unconfirmed_since_ask + 1
        self.last_ask_ms = self.now_ms if asks else self.last_ask_ms
        assert asks or lane != Lane.PRIORITY
        assert self.unconfirmed_since_ask < RULES.ack_packets
        assert self.now_ms - self.last_ask_ms < RULES.ack_ms

    @rule(identity=packets)
    def puback(self, identity: int) -> None:
        self.window.pubacked(identity)
        self.in_flight.discard(identity)

    @rule(first=packets, last=packets)
    def acknowledge(self, first: int, last: int) -> None:
        first, last = sorted((first, last))
        self.window.free(first, last)
        for identity in [one for one in self.outstanding if first <= one <= last]:
            del self.outstanding[identity]
            self.in_flight.discard(identity)

    @rule()
    def acknowledge_everything_ever(self) -> None:
        self.window.free(0, 2**62)
        self.outstanding.clear()
        self.in_flight.clear()

    @rule(wait_ms=st.integers(0, 3_000))
    def wait(self, wait_ms: int) -> None:
        self.now_ms += wait_ms

    @rule(present=st.booleans())
    def reconnect(self, present: bool) -> None:
        self.window.connected(65_535, present, self.now_ms)
        for identity, (lane, attempts, _) in list(self.outstanding.items()):
            if identity in self.in_flight or not present:
                self.outstanding[identity] = (lane, attempts, self.now_ms)
        self.in_flight.clear()

    @invariant()
    def agrees_with_the_model(self) -> None:
        assert len(self.window) == len(self.outstanding)
        assert self.window.in_flight == len(self.in_flight) <= RULES.in_flight
        assert all(identity in self.window for identity in self.outstanding)
        backlog = sum(lane == Lane.BACKLOG for lane, _, _ in self.outstanding.values())
        assert backlog <= RULES.window // 2

    @invariant()
    def nothing_due_is_forgotten(self) -> None:
        free = RULES.in_flight - len(self.in_flight)
        ready = sorted(
            identity for identity, (_, _, due_ms) in self.outstanding.items()
            if due_ms <= self.now_ms and identity not in self.in_flight
        )  # fmt: skip
        assert self.window.due(self.now_ms) == ready[: max(0, free)]

    @invariant()
    def living_data_finds_room(self) -> None:
        others = sum(lane != Lane.BACKLOG for lane, _, _ in self.outstanding.values())
        if others < RULES.window // 2 and len(self.in_flight) < RULES.in_flight:
            assert self.window.room(Lane.LIVE, self.now_ms) > 0 or others + RULES.window // 2 >= RULES.window


TestWindow = WindowMachine.TestCase
TestWindow.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_backlog_is_paced() -> None:
    window = SendWindow(UplinkSettings(backlog_packets_per_s=10, window=1_000, in_flight=1_000))
    sent = 0
    for now_ms in range(100_000, 110_000, 50):
        for _ in range(window.room(Lane.BACKLOG, now_ms)):
            sent += 1
            window.sent(sent, Lane.BACKLOG, now_ms)
            window.free(sent, sent)
    assert 100 <= sent <= 120


def test_a_small_receive_maximum_is_honoured() -> None:
    window = SendWindow(UplinkSettings())
    window.connected(3, True, 0)
    assert window.room(Lane.LIVE, 0) == window.room(Lane.PRIORITY, 0) == 3


def test_waiting_grows_and_is_spread_over_the_whole_interval() -> None:
    assert full_jitter_ms(1, 500, 60_000, lambda: 0.0) == 500
    assert full_jitter_ms(1, 500, 60_000, lambda: 0.999) < 1_000
    assert full_jitter_ms(50, 500, 60_000, lambda: 0.999) in range(59_000, 60_001)
    assert full_jitter_ms(50, 500, 60_000, lambda: 0.5) in range(30_000, 31_000)
