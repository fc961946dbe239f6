"""The ordered acknowledgement window as a state machine: it releases prefixes, in order, once, and counts its bytes."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.admission import Record
from gateway.window import AckWindow, Entry

MAX_MESSAGES, MAX_BYTES = 20, 500


class OrderedWindow(RuleBasedStateMachine):
    """The model is a plain list of what came and what of it is finished."""

    def __init__(self) -> None:
        super().__init__()
        self.window = AckWindow(MAX_MESSAGES, MAX_BYTES)
        self.held: list[Entry] = []
        self.released = 0
        self.came = 0

    @rule(size=st.integers(0, 100), shed=st.booleans())
    def add(self, size: int, shed: bool) -> None:
        self.came += 1
        entry = Entry(self.came, 1, None if shed else Record("t", b"k", bytes(size), ("h", b"")), float(self.came))
        self.held.append(entry)
        self.window.add(entry)

    @precondition(lambda self: any(not entry.finished for entry in self.held))
    @rule(data=st.data())
    def finish_any(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from([entry for entry in self.held if not entry.finished])).finished = True

    @rule()
    def release(self) -> None:
        released = self.window.release()
        assert [entry.mid for entry in released] == [self.released + 1 + at for at in range(len(released))]
        assert all(entry.finished for entry in released)
        self.released += len(released)
        self.held = self.held[len(released) :]
        assert not self.held or not self.held[0].finished

    @invariant()
    def counts_what_it_holds(self) -> None:
        size = sum(entry.size_bytes for entry in self.held)
        assert (len(self.window), self.window.size_bytes) == (len(self.held), size)
        assert self.window.room == (0 if size >= MAX_BYTES else max(0, MAX_MESSAGES - len(self.held)))
        assert self.window.oldest_s == (self.held[0].received_s if self.held else None)
        assert list(self.window.unfinished()) == [entry for entry in self.held if not entry.finished]


TestOrderedWindow = OrderedWindow.TestCase
