"""Registry and commands as they are followed: what cannot be read changes nothing, offsets wait for the broker."""

from __future__ import annotations

from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from contracts.commands import Command, encode_command
from contracts.registry import BEAT_KEY, encode_beat, encode_registration
from gateway.commands import MAX_WAITING, CommandFeed
from gateway.counts import Counts
from gateway.registry import RegistryFeed, RegistryView
from tests.gateway.fakes import FakeConsumer, FakeLink, FakeMessage
from tests.gateway.samples import registration

END = FakeMessage(None, None, problem=KafkaError(KafkaError._PARTITION_EOF))
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)


def test_the_view_is_what_the_topic_says() -> None:
    view = RegistryView()
    assert view.age_ms(1_000) is None
    view.apply(b"car-1", encode_registration(registration()))
    view.apply(b"car-2", encode_registration(registration("car-2")))
    view.apply(b"car-1", None)
    view.apply(BEAT_KEY.encode(), encode_beat(700))
    assert view.devices == {"car-2": registration("car-2")}
    assert view.age_ms(1_000) == 300


@given(key=st.none() | st.binary(max_size=20) | st.just(BEAT_KEY.encode()), value=st.binary(min_size=1, max_size=60))
def test_nonsense_is_counted_and_changes_nothing(key: bytes | None, value: bytes) -> None:
    view = RegistryView()
    view.apply(b"car-1", encode_registration(registration()))
    view.apply(key, value)
    assert (view.devices, view.refused) == ({"car-1": registration()}, 1)


def test_a_registration_under_anothers_key_is_refused() -> None:
    view = RegistryView()
    view.apply(b"car-9", encode_registration(registration("car-1")))
    assert (view.devices, view.refused) == ({}, 1)


def test_complete_only_after_the_end_was_seen() -> None:
    view = RegistryView()
    batch = [FakeMessage(b"car-1", encode_registration(registration()))]
    consumer = FakeConsumer(DOWN, batch, [FakeMessage(None, None, problem=DOWN)], [END])
    feed = RegistryFeed(consumer, "registry", view)  # type: ignore[arg-type]
    seen = []
    for _ in range(4):
        feed.step()
        seen.append((feed.complete, len(view.devices)))
    assert seen == [(False, 0), (False, 1), (False, 1), (True, 1)]


def command(number: int, expires_ms: int = 10_000) -> FakeMessage:
    return FakeMessage(b"car-1", encode_command(Command(f"c{number}", "car-1", "ping", number, expires_ms)), number)


def test_offsets_are_committed_when_the_broker_has_the_prefix() -> None:
    consumer, link, counts = FakeConsumer([command(0), command(1), command(2)]), FakeLink(), Counts()
    feed = CommandFeed(consumer, link, counts)  # type: ignore[arg-type]
    feed.step(1_000, set())
    assert [(topic, expiry) for topic, _, expiry in link.published] == [("v1/car-1/down/cmd", 9)] * 3
    feed.step(1_000, {2})
    assert consumer.commits == []
    feed.step(1_000, {1})
    assert consumer.commits == [2]
    feed.step(1_000, {3})
    assert consumer.commits == [2, 3]
    assert counts.commands == {"sent": 3}


def test_expired_and_unreadable_commands_are_counted_and_passed_over() -> None:
    consumer, link, counts = FakeConsumer([command(0, 999), FakeMessage(b"x", b"{}", 1)]), FakeLink(), Counts()
    feed = CommandFeed(consumer, link, counts)  # type: ignore[arg-type]
    feed.step(1_000, set())
    feed.step(1_000, set())
    assert (link.published, consumer.commits) == ([], [2])
    assert counts.commands == {"expired": 1, "refused": 1}


def test_nothing_is_taken_while_it_cannot_be_sent() -> None:
    consumer, link = FakeConsumer([command(0)]), FakeLink(can_publish=False)
    feed = CommandFeed(consumer, link, Counts())  # type: ignore[arg-type]
    feed.step(1_000, set())
    assert len(consumer.batches) == 1
    link.can_publish = True
    feed.step(1_000, set())
    assert len(link.published) == 1


def test_what_waits_for_the_broker_is_bounded() -> None:
    consumer, link = FakeConsumer(*([[command(n) for n in range(50)]] * 10)), FakeLink()
    feed = CommandFeed(consumer, link, Counts())  # type: ignore[arg-type]
    for _ in range(10):
        feed.step(1_000, set())
    assert len(link.published) == MAX_WAITING
