"""The table of places where two systems change together names tests that exist, one for every place."""

from __future__ import annotations

import re

from tests.house.test_policies import names_of_tests
from tests.house.tree import ROOT

PAGE = ROOT / "docs" / "operations" / "dual-writes.md"
PLACES = (
    "agent",
    "gateway",
    "ingest",
    "detection",
    "closer",
    "archiver",
    "evidence",
    "relay",
    "clerk",
    "latest values",
    "enrolment",
)


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def test_every_place_names_tests_that_exist() -> None:
    named = {row[0]: re.findall(r"`(tests/[^`]+)`", row[4]) for row in rows()}
    assert len(named) >= 20
    assert all(named.values()), [place for place, tests in named.items() if not tests]
    wanted = {test for tests in named.values() for test in tests}
    assert wanted <= names_of_tests(sorted({test.split("::")[0] for test in wanted}))


def test_no_room_is_left_out() -> None:
    places = [row[0] for row in rows()]
    assert all(any(place.startswith(room) for place in places) for room in PLACES)
