"""One value, one byte string; everything else is refused with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.edr.cbor import MAX_DEPTH, Value, decode, encode
from contracts.edr.errors import MalformedEvidence

leaves = (
    st.none() | st.booleans() | st.integers(-(1 << 64), (1 << 64) - 1) | st.binary(max_size=40) | st.text(max_size=20)
)


def nested(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5)


values = st.recursive(leaves, nested, max_leaves=30)


@given(values)
def test_what_is_encoded_comes_back(value: Value) -> None:
    assert decode(encode(value)) == value


@given(st.dictionaries(st.text(max_size=8), leaves, max_size=8))
def test_the_order_of_insertion_does_not_show(value: dict[str, Value]) -> None:
    assert encode(value) == encode(dict(reversed(value.items())))


@given(st.binary(max_size=60))
def test_whatever_decodes_was_the_only_spelling(data: bytes) -> None:
    try:
        value = decode(data)
    except MalformedEvidence as bad:
        assert 0 <= bad.offset <= len(data)
        return
    assert encode(value) == data


@pytest.mark.parametrize(
    ("spelling", "why"),
    [
        ("1800", "shortest"),  # 0 in two bytes
        ("1900ff", "shortest"),
        ("5f4161ff", "indefinite"),
        ("f93c00", "not allowed"),  # a half float
        ("c000", "not allowed"),  # a tag
        ("a2616200616100", "out of order"),
        ("a2616100616100", "repeated"),
        ("a10000", "not text"),
        ("61ff", "UTF-8"),
        ("43", "too early"),
        ("9bffffffffffffffff", "too early"),  # claims 2**64 items
        ("0000", "after the end"),
        ("", "too early"),
    ],
)
def test_other_spellings_are_refused(spelling: str, why: str) -> None:
    with pytest.raises(MalformedEvidence, match=why):
        decode(bytes.fromhex(spelling))


def test_depth_is_bounded_both_ways() -> None:
    deep: Value = 0
    for _ in range(MAX_DEPTH + 2):
        deep = [deep]
    with pytest.raises(ValueError, match="deep"):
        encode(deep)
    with pytest.raises(MalformedEvidence, match="deep"):
        decode(b"\x81" * 5_000 + b"\x00")


def test_floats_have_no_place() -> None:
    with pytest.raises(TypeError):
        encode(1.5)  # type: ignore[arg-type]
