"""What goes wrong between a sensor and the cloud, by named probabilities and a seed. Pure.

The defaults follow the Time Series Benchmark Suite's IoT data: one batch in a hundred is missing until later, one in
twenty out of order; of the entries of a batch that is played out of order, three in ten are held back and put in again
later. Nothing here invents a value: every item that is not in ``Played.lost`` comes out at least once, unchanged.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from edge_agent.clock import Clock
from edge_agent.sources.base import Reading, Source

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Odds:
    """Probabilities per batch (``late``, ``shuffled``, ``gap``) and per entry (``held_back``, ``repeated``)."""

    late: float = 0.01
    """The whole batch is missing until up to ``late_batches`` later."""
    shuffled: float = 0.05
    """The batch's entries come out of order and some are held back."""
    held_back: float = 0.30
    """Of a shuffled batch: the entry comes with a later batch."""
    repeated: float = 0.0
    """The entry comes twice."""
    gap: float = 0.0
    """The batch is lost for ever."""
    late_batches: int = 20


CALM = Odds(late=0, shuffled=0, held_back=0)
ROUGH = Odds(repeated=0.02, gap=0.005)


@dataclass(slots=True)
class Played(Generic[Item]):
    """What happened so far, for those who check."""

    lost: list[Item] = field(default_factory=list)
    late: int = 0
    shuffled: int = 0
    held_back: int = 0
    repeated: int = 0


class Mischief(Generic[Item]):
    """Plays tricks on a stream of batches; the same seed plays the same tricks."""

    def __init__(self, odds: Odds, seed: int | str) -> None:
        self._odds = odds
        self._chance = random.Random(f"mischief {seed}")
        self._held: list[tuple[int, list[Item]]] = []
        self._round = 0
        self.played: Played[Item] = Played()

    @property
    def holding(self) -> int:
        """Entries that are still to come."""
        return sum(len(items) for _, items in self._held)

    def pass_on(self, batch: Sequence[Item]) -> list[Item]:
        """One batch in, what comes out now: this batch as the dice leave it, then whatever was due to return."""
        self._round += 1
        out = self._play(list(batch)) if batch else []
        due = [items for when, items in self._held if when <= self._round]
        self._held = [(when, items) for when, items in self._held if when > self._round]
        for items in due:
            out += items
        return self._repeat(out)

    def finish(self) -> list[Item]:
        """Everything that is still held back."""
        rest = [item for _, items in self._held for item in items]
        self._held = []
        return rest

    def _play(self, batch: list[Item]) -> list[Item]:
        odds, roll = self._odds, self._chance.random()
        if roll < odds.gap:
            self.played.lost += batch
            return []
        if roll < odds.gap + odds.late:
            self.played.late += 1
            self._hold(batch)
            return []
        if roll < odds.gap + odds.late + odds.shuffled:
            return self._shuffle(batch)
        return batch

    def _shuffle(self, batch: list[Item]) -> list[Item]:
        self.played.shuffled += 1
        now: list[Item] = []
        for item in batch:
            if self._chance.random() < self._odds.held_back:
                self.played.held_back += 1
                self._hold([item])
            else:
                now.append(item)
        self._chance.shuffle(now)
        return now

    def _hold(self, items: list[Item]) -> None:
        self._held.append((self._round + self._chance.randint(1, self._odds.late_batches), items))

    def _repeat(self, items: list[Item]) -> list[Item]:
        if not self._odds.repeated:
            return items
        again = [item for item in items if self._chance.random() < self._odds.repeated]
        self.played.repeated += len(again)
        return items + again


def play(items: Iterable[Item], odds: Odds, seed: int | str, batch: int = 10) -> Iterator[Item]:
    """A whole stream in, the played one out; held entries come at the end at the latest.

    >>> sorted(play(range(100), Odds(late=0.5, shuffled=0.5), seed=1)) == list(range(100))
    True
    """
    mischief: Mischief[Item] = Mischief(odds, seed)
    waiting: list[Item] = []
    for item in items:
        waiting.append(item)
        if len(waiting) == batch:
            yield from mischief.pass_on(waiting)
            waiting = []
    yield from mischief.pass_on(waiting)
    yield from mischief.finish()


class MischievousSource:
    """Another source's readings with mischief; one ``read`` is one batch."""

    def __init__(self, source: Source, odds: Odds, seed: int | str) -> None:
        self._source = source
        self._mischief: Mischief[Reading] = Mischief(odds, seed)

    @property
    def can_wait(self) -> bool:
        return self._source.can_wait

    @property
    def cursor(self) -> str | None:
        """None while entries are held back: a restart must not skip them."""
        return None if self._mischief.holding else self._source.cursor

    @property
    def finished(self) -> bool:
        return self._source.finished and not self._mischief.holding

    @property
    def played(self) -> Played[Reading]:
        """What happened so far."""
        return self._mischief.played

    def seek(self, cursor: str) -> None:
        self._source.seek(cursor)

    def read(self, now_ms: int, limit: int) -> Sequence[Reading]:
        if self._source.finished:
            return self._mischief.finish()
        readings = self._source.read(now_ms, limit)
        return self._mischief.pass_on(readings) if readings else ()

    def close(self) -> None:
        self._source.close()


class DriftingClock:
    """A device's wall clock that runs fast or slow and once was set wrong; waiting is not affected.

    ``drift_ppm`` 20 is a cheap crystal (1.7 s a day), ``offset_ms`` an error that nobody corrected.
    """

    def __init__(self, clock: Clock, drift_ppm: float = 0.0, offset_ms: int = 0) -> None:
        self._clock = clock
        self._drift_ppm = drift_ppm
        self._offset_ms = offset_ms
        self._zero_ms = clock.mono_ms()

    def now_ms(self) -> int:
        drift_ms = (self._clock.mono_ms() - self._zero_ms) * self._drift_ppm / 1e6
        return self._clock.now_ms() + self._offset_ms + round(drift_ms)

    def mono_ms(self) -> int:
        return self._clock.mono_ms()

    def trusted(self) -> bool:
        return self._clock.trusted()
