"""Every advisory lock has a number of its own, and the only list of them is ``contracts.locks``."""

from __future__ import annotations

import re

from contracts import locks
from tests.house.tree import ROOMS, ROOT

NUMBERS = {name: number for name, number in vars(locks).items() if name.endswith("_LOCK")}
OURS = re.compile(r"\b7_?310_?\d{3}\b")
"""What a first half of a key of ours looks like, wherever it is written."""


def written(suffix: str) -> dict[str, set[int]]:
    """Files of all rooms that write such numbers, and which."""
    found = {}
    for room in ROOMS:
        for path in (ROOT / room).rglob(f"*{suffix}"):
            numbers = {int(one.replace("_", "")) for one in OURS.findall(path.read_text(encoding="utf-8"))}
            if numbers:
                found[str(path.relative_to(ROOT))] = numbers
    return found


def test_all_numbers_differ() -> None:
    assert len(NUMBERS) >= 8
    assert len(set(NUMBERS.values())) == len(NUMBERS)


def test_only_the_list_names_them() -> None:
    assert written(".py") == {"contracts/locks.py": set(NUMBERS.values())}


def test_a_number_of_the_migrations_is_used_by_nothing_else() -> None:
    code = "".join(
        path.read_text(encoding="utf-8")
        for room in ROOMS
        if room != "contracts"
        for path in (ROOT / room).rglob("*.py")
    )
    names = {number: name for name, number in NUMBERS.items()}
    taken = [number for numbers in written(".sql").values() for number in numbers]
    assert taken
    assert set(taken) <= set(names), "a number that the list does not know"
    assert len(taken) == len(set(taken)), "one number in two migrations"
    assert not [names[number] for number in taken if re.search(rf"\b{names[number]}\b", code)]
