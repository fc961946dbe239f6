"""Hash-chained logs: whatever is changed, removed, repeated, moved or added is found, and so is a day's root."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.edr.ledger import (
    CUSTODY,
    EVIDENCE,
    NOTHING_BEFORE,
    DayRoot,
    Entry,
    chain_breaks,
    content_digest,
    day_of,
    day_root,
    merkle_root,
    netstrings,
    next_entry,
    root_breaks,
)

DAY_MS = 86_400_000
START_MS = 1_790_000_000_000
fields = st.lists(st.text(max_size=6), min_size=1, max_size=3)


def made(contents: list[list[str]], step_ms: int = DAY_MS // 3) -> list[Entry]:
    entries: list[Entry] = []
    for number, content in enumerate(contents):
        last = entries[-1] if entries else None
        entries.append(next_entry(EVIDENCE, 1, last, START_MS + number * step_ms, content))
    return entries


def roots_of(entries: list[Entry]) -> list[DayRoot]:
    roots: list[DayRoot] = []
    for day in sorted({day_of(entry.at_ms) for entry in entries}):
        mine = [entry for entry in entries if day_of(entry.at_ms) == day]
        roots.append(day_root(EVIDENCE, 1, day, mine, roots[-1].sha256 if roots else NOTHING_BEFORE))
    return roots


@given(st.lists(fields, max_size=12))
def test_what_was_written_holds(contents: list[list[str]]) -> None:
    entries = made(contents)
    assert chain_breaks(EVIDENCE, 1, entries, entries[-1] if entries else None) == []
    assert root_breaks(EVIDENCE, 1, entries, roots_of(entries)) == []


@given(st.lists(fields, min_size=2, max_size=12), st.data())
def test_tampering_with_any_row_is_found_and_named(contents: list[list[str]], data: st.DataObject) -> None:
    entries = made(contents)
    roots = roots_of(entries)
    at = data.draw(st.integers(0, len(entries) - 1))
    victim = entries[at]
    changed = {
        "fields": replace(victim, fields=(victim.fields[0] + "x", *victim.fields[1:])),
        "time": replace(victim, at_ms=victim.at_ms + 1),
        "number": replace(victim, entry_no=victim.entry_no + 100),
        "previous": replace(victim, previous_sha256=bytes([1] * 32)),
        "hash": replace(victim, sha256=bytes([2] * 32)),
    }
    how = data.draw(st.sampled_from([*changed, "removed", "repeated", "moved"]))
    forged = list(entries)
    if how == "removed":
        del forged[at]
    elif how == "repeated":
        forged.insert(at, victim)
    elif how == "moved":
        other = (at + 1) % len(entries)
        forged[at], forged[other] = forged[other], forged[at]
    else:
        forged[at] = changed[how]
    breaks = chain_breaks(EVIDENCE, 1, forged, entries[-1])
    assert breaks
    if how in changed:
        assert any(f"entry {forged[at].entry_no}" in one.place for one in breaks)
    if how in ("hash", "removed"):
        assert root_breaks(EVIDENCE, 1, forged, roots)


@given(st.lists(fields, min_size=4, max_size=12), st.data())
def test_a_log_rewritten_with_new_hashes_no_longer_fits_its_roots(
    contents: list[list[str]], data: st.DataObject
) -> None:
    entries = made(contents)
    roots = roots_of(entries)
    at = data.draw(st.integers(0, len(entries) - 1))
    contents[at] = [*contents[at], "and more"]
    forged = made(contents)
    assert chain_breaks(EVIDENCE, 1, forged, forged[-1]) == []
    assert root_breaks(EVIDENCE, 1, forged, roots)
    cut = entries[:-1]
    assert chain_breaks(EVIDENCE, 1, cut, cut[-1]) == []
    assert root_breaks(EVIDENCE, 1, cut, roots)


def test_a_day_without_its_root_and_a_root_without_its_predecessor_are_named() -> None:
    entries = made([["a"]] * 9)
    roots = roots_of(entries)
    assert len(roots) >= 3
    assert any("no root" in one.what for one in root_breaks(EVIDENCE, 1, entries, [roots[0], *roots[2:]]))
    lost = root_breaks(EVIDENCE, 1, entries, roots[1:])
    assert any("root before it" in one.what for one in lost)


def test_one_log_s_entry_is_not_another_s() -> None:
    entries = made([["a"], ["b"]])
    assert chain_breaks(CUSTODY, 1, entries, entries[-1])
    assert chain_breaks(EVIDENCE, 2, entries, entries[-1])


def test_time_never_runs_backwards() -> None:
    first = next_entry(EVIDENCE, 1, None, START_MS, ("a",))
    assert next_entry(EVIDENCE, 1, first, START_MS - 5, ("b",)).at_ms == START_MS


@given(fields, fields)
def test_no_two_lists_share_their_bytes(one: list[str], other: list[str]) -> None:
    assert (netstrings(one) == netstrings(other)) == (one == other)


def test_known_values() -> None:
    assert netstrings(("a", "", "ä")) == b"1:a,0:,2:\xc3\xa4,"
    assert day_of(0) == date(1970, 1, 1)
    leaves = [hashlib.sha256(b"\x00" + one).digest() for one in (b"x", b"y", b"z")]
    assert merkle_root([b"x"]) == leaves[0]
    pair = hashlib.sha256(b"\x01" + leaves[0] + leaves[1]).digest()
    assert merkle_root([b"x", b"y", b"z"]) == hashlib.sha256(b"\x01" + pair + leaves[2]).digest()
    assert content_digest("k", {"b": b"\x01", "a": [1, None]}) == content_digest("k", {"a": [1, None], "b": "01"})
    with pytest.raises(TypeError):
        content_digest("k", {"a": {1}})
    with pytest.raises(ValueError):
        merkle_root([])


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=20), st.data())
def test_the_root_depends_on_every_hash_and_their_order(hashes: list[bytes], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(hashes) - 1))
    other = [*hashes[:at], bytes(one ^ 1 for one in hashes[at]), *hashes[at + 1 :]]
    assert merkle_root(other) != merkle_root(hashes)
    if hashes != hashes[::-1]:
        assert merkle_root(hashes[::-1]) != merkle_root(hashes)
