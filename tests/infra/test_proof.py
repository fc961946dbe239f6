"""The demo's judge is judged: loss, doubles, changed bytes and strangers are found, older histories are left alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge_agent.journal import AcceptedPacket
from infra.proof import compare
from infra.watch_store import Latencies


def packet(device: str, epoch: int, seq: int) -> AcceptedPacket:
    return AcceptedPacket(device, epoch, seq, f"hash of {device} {epoch} {seq}", 10 + seq, 0)


def row(one: AcceptedPacket) -> tuple[str, int, int, int, str]:
    return one.device, one.boot_epoch, one.seq, one.samples, one.sha256


identities = st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 3), st.integers(1, 9))


@given(st.sets(identities), st.data())
def test_every_kind_of_harm_is_named(accepted: set[tuple[str, int, int]], data: st.DataObject) -> None:
    history = {identity: packet(*identity) for identity in accepted}
    some = st.sets(st.sampled_from(sorted(accepted))) if accepted else st.just(set())
    lost, doubled, altered = data.draw(some), data.draw(some), data.draw(some)
    stored = [row(one) for identity, one in history.items() if identity not in lost]
    stored += [row(history[identity]) for identity in doubled - lost]
    stored = [(*one[:4], "other") if one[:3] in altered else one for one in stored]
    proof = compare(history, stored)
    assert proof.lost == lost and proof.doubled == doubled - lost and proof.altered == altered - lost
    assert proof.complete == (not lost and not doubled and not altered)
    assert proof.accepted_packets == len(accepted) and proof.stored_packets == len(accepted - lost)
    assert proof.accepted_samples == proof.stored_samples + proof.lost_samples
    assert proof.doubled_samples == sum(history[identity].samples for identity in doubled - lost)


def test_rows_of_epochs_that_began_before_the_history_are_not_foreign() -> None:
    history = {("a", 2, 7): packet("a", 2, 7), ("a", 3, 1): packet("a", 3, 1)}
    older, stranger = row(packet("a", 2, 1)), row(packet("a", 3, 2))
    proof = compare(history, [*map(row, history.values()), older, stranger])
    assert proof.foreign == {("a", 3, 2)} and not proof.complete and not proof.lost


@given(st.lists(st.integers(0, 5_000), min_size=1), st.floats(0.01, 1))
def test_percentiles_are_those_of_the_sorted_list(values: list[int], share: float) -> None:
    latencies = Latencies()
    for value in values:
        latencies.add(value)
    got = latencies.percentile(share)
    assert got in values
    assert sum(value <= got for value in values) >= share * len(values) - 1e-6
    assert sum(value < got for value in values) < share * len(values) + 1e-6
