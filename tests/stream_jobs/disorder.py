"""Disorder like that of the TSBS data generator: batches that are missing until later, batches out of order, entries
held back and put in again.

https://github.com/timescale/tsbs, pkg/data/usecases/iot: its simulator draws for every batch of entries whether the
batch is left out, comes out of order, or loses entries that a later batch brings back.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class Disorder:
    """Chances; the defaults are TSBS's."""

    batch_entries: int = 10
    missing_batch: float = 0.01
    out_of_order_batch: float = 0.05
    held_back_entry: float = 0.30
    holding_batch: float = 0.10
    """How many batches hold entries back at all."""


def disordered(entries: Sequence[Entry], dice: random.Random, how: Disorder | None = None) -> list[Entry]:
    """The same entries in the order in which they come; nothing is lost or doubled. An entry is only ever delayed."""
    how = how or Disorder()
    size = how.batch_entries
    waiting = [list(entries[at : at + size]) for at in range(0, len(entries), size)]
    missing: list[list[Entry]] = []
    held: list[Entry] = []
    result: list[Entry] = []
    while waiting:
        batch = waiting.pop(0)
        if waiting and dice.random() < how.out_of_order_batch:
            waiting.insert(dice.randint(1, len(waiting)), batch)
            continue
        if dice.random() < how.missing_batch:
            missing.append(batch)
            continue
        if dice.random() < how.holding_batch:
            back = [entry for entry in batch if dice.random() < how.held_back_entry]
            batch = [entry for entry in batch if entry not in back]
            held += back
        elif held:
            for _ in range(dice.randint(0, len(held))):
                batch.insert(dice.randint(0, len(batch)), held.pop(dice.randrange(len(held))))
        result += batch
    for batch in missing:
        result += batch
    return result + held
