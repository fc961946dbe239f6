"""Confirmations owed to devices: each number is told once, rejected stays rejected, memory is bounded."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.acker import MAX_NUMBERS, MOST_NUMBERS, Acker
from gateway.admission import Identity

Note = tuple[str, int, int, bool, bool]
notes = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, 2), st.integers(1, 40), st.booleans(), st.booleans()), max_size=80
)


def told(acker: Acker, now_s: float, *, everything: bool = False) -> list[tuple[str, int, int, bool]]:
    """(device, epoch, number, rejected) of all that is due."""
    return [
        (due.device, due.ack.boot_epoch, number, rejected)
        for due in acker.take(now_s, 1_000, everything=everything)
        for ranges, rejected in ((due.ack.confirmed, False), (due.ack.rejected, True))
        for first, last in ranges
        for number in range(first, last + 1)
    ]


@given(given_notes=notes, split=st.integers(0, 80))
def test_exactly_what_was_noted_is_told(given_notes: list[Note], split: int) -> None:
    acker, heard = Acker(5.0), []
    for at, (device, epoch, seq, rejected, at_once) in enumerate(given_notes):
        acker.note(device, Identity(epoch, 9, seq), 0.0, rejected=rejected, at_once=at_once)
        if at == split:
            heard += told(acker, 1.0)
    heard += told(acker, 2.0, everything=True)
    assert set(heard) == {(device, epoch, seq, rejected) for device, epoch, seq, rejected, _ in given_notes}
    assert max(Counter(heard).values(), default=0) <= 2
    assert len(acker) == 0


def test_nothing_is_told_before_its_time() -> None:
    acker = Acker(5.0)
    acker.note("a", Identity(1, 9, 1), 0.0, rejected=False, at_once=False)
    acker.note("a", Identity(1, 9, 2), 4.0, rejected=False, at_once=False)
    assert told(acker, 4.9) == []
    assert told(acker, 5.0) == [("a", 1, 1, False), ("a", 1, 2, False)]
    assert told(acker, 60.0) == []


def test_who_asks_is_told_at_once_with_all_that_waits() -> None:
    acker = Acker(5.0)
    acker.note("b", Identity(1, 9, 7), 0.0, rejected=False, at_once=False)
    acker.note("a", Identity(1, 9, 1), 0.0, rejected=False, at_once=False)
    acker.note("a", Identity(1, 9, 2), 0.0, rejected=False, at_once=True)
    assert told(acker, 0.0) == [("a", 1, 1, False), ("a", 1, 2, False)]


def test_another_nonce_is_another_account() -> None:
    acker = Acker(0.0)
    for nonce in (1, 2):
        acker.note("a", Identity(1, nonce, 5), 0.0, rejected=False, at_once=False)
    assert sorted(due.ack.nonce for due in acker.take(1.0, 10)) == [1, 2]


def test_the_limit_of_a_round_leaves_the_rest_for_the_next() -> None:
    acker = Acker(0.0)
    for number in range(10):
        acker.note(f"d{number}", Identity(1, 9, 1), 0.0, rejected=False, at_once=number % 2 == 0)
    sizes = [len(acker.take(1.0, 4)) for _ in range(4)]
    assert sizes == [4, 4, 2, 0]


def test_many_numbers_leave_without_being_asked_for() -> None:
    acker = Acker(1_000.0)
    for seq in range(1, MAX_NUMBERS):
        acker.note("a", Identity(1, 9, 2 * seq), 0.0, rejected=False, at_once=False)
    assert told(acker, 0.0) == []
    acker.note("a", Identity(1, 9, 2 * MAX_NUMBERS), 0.0, rejected=False, at_once=False)
    assert len(told(acker, 0.0)) == MAX_NUMBERS


def test_memory_is_bounded_in_devices_and_in_numbers() -> None:
    acker = Acker(1_000.0, max_devices=3)
    for number in range(5):
        acker.note(f"d{number}", Identity(1, 9, 1), 0.0, rejected=False, at_once=True)
    assert (len(acker), acker.forgotten) == (3, 2)
    assert {device for device, *_ in told(acker, 0.0)} == {"d2", "d3", "d4"}
    for seq in range(MOST_NUMBERS + 10):
        acker.note("a", Identity(1, 9, seq + 1), 0.0, rejected=False, at_once=False)
    assert len(told(acker, 0.0)) == MOST_NUMBERS
    assert acker.forgotten == 12
