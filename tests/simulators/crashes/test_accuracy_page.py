"""The published accuracy page covers every profile, and no element on it is outside; making it is done by hand."""

from __future__ import annotations

from contracts.edr.profiles import PROFILE_NAMES, load_profile
from tests.simulators.crashes.accuracy import HEAD, PAGE, Worst, outside


def test_the_page_is_of_today_and_within_the_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.startswith(HEAD) and outside(text) == []
    for name in PROFILE_NAMES:
        section = text.split(f"## {name}\n", 1)[1].split("\n## ", 1)[0]
        titles = {element.title for element in load_profile(name).elements if element.feed.startswith("delta_v:")}
        assert all(f"| {title} |" in section for title in titles), name


def test_a_row_outside_is_noticed() -> None:
    worst = Worst(load_profile("part563-2012").element("speed"))
    worst.add(0.5, 1.5, "here")
    worst.add(3.0, 1.5, "there")
    worst.add(0.1, 1.5, "elsewhere")
    assert (worst.values, worst.share, worst.where) == (3, 2.0, "there")
    assert outside("| a | b | c | 3 | 3 | 1.5 | 200% | there |") and not outside(
        "| a | b | c | 3 | 1 | 1.5 | 67% | x |"
    )
