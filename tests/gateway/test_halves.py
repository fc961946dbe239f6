"""Killed between Kafka and the broker, either way: nothing is lost, and what is repeated is known for what it is."""

from __future__ import annotations

from pathlib import Path

from contracts.commands import Command, Outcome, encode_command
from edge_agent.command_memory import read_memory
from edge_agent.commands import CommandDesk
from gateway.commands import CommandFeed
from gateway.counts import Counts
from tests.gateway.fakes import FakeConsumer, FakeLink, FakeMessage
from tests.gateway.samples import frame
from tests.gateway.test_relay import Rig

PUBLISH = ("v1/car-1/up/live", frame(seq=1), 7, False, True)


def test_killed_between_kafka_and_puback() -> None:
    """Kafka has the record, the worker dies before it answers: the broker delivers again, to whoever comes next."""
    first = Rig()
    first.link.incoming.append(PUBLISH)
    first.relay.step()
    produced = [sent for sent, _ in first.producers[0].open]
    first.producers[0].end_all()
    assert (first.link.pubacks, first.link.published) == ([], []), "killed here: nobody heard anything"

    second = Rig()
    second.link.incoming.append(PUBLISH)
    second.relay.step()
    assert second.link.pubacks == [], "not before Kafka has it"
    repeat = [sent for sent, _ in second.producers[0].open]
    assert [sent[:3] for sent in repeat] == [sent[:3] for sent in produced]
    second.producers[0].end_all()
    second.relay.step()
    assert second.link.pubacks == [(1, 7)]
    assert second.heard() == [1]


def test_killed_between_the_brokers_puback_and_the_offset(tmp_path: Path) -> None:
    """The broker has the command, the offset was not committed: the device gets it twice and carries it out once."""
    command = encode_command(Command("c1", "car-1", "ping", 7, 60_000))
    carried: list[str] = []
    desk = CommandDesk("car-1", {"ping": lambda one: carried.append(one.command_id)}, read_memory(tmp_path / "memory"))
    for killed in (True, False):
        consumer, link = FakeConsumer([FakeMessage(b"car-1", command, 0)]), FakeLink()
        feed = CommandFeed(consumer, link, Counts())  # type: ignore[arg-type]
        feed.step(1_000, set())
        for _, payload, _ in link.published:
            desk.take(payload, 1_000, True)
        assert consumer.commits == []
        if not killed:
            feed.step(1_000, {1})
            assert consumer.commits == [1]
    assert carried == ["c1"]
    assert [answer.outcome for answer in desk.unsent] == [Outcome.DONE] * 2
