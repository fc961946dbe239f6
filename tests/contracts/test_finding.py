"""A finding travels unchanged, keeps its identity on replay, and nothing else is taken for one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import Rejected
from contracts.finding import Finding, Severity, decode_finding, encode_finding

EXAMPLE = Finding(
    device="car-001", deployment="car-coolant", deployment_version="1", detector="residual", cause="coolant",
    signals=(21, 20),
    started_at_ms=1_700_000_000_000, at_ms=1_700_000_060_000, severity=Severity.WARNING, score=4.5, threshold=3.0,
    observed=104.0, expected_low=85.0, expected_high=98.0, contributions=((21, 0.8),), advice="Check the pump.",
)  # fmt: skip


@given(score=st.floats(allow_nan=False, allow_infinity=False), at_ms=st.integers(0, 2**62))
def test_round_trip(score: float, at_ms: int) -> None:
    finding = replace(EXAMPLE, score=score, at_ms=at_ms)
    assert decode_finding(encode_finding(finding)) == finding
    assert finding.id == EXAMPLE.id


def test_identity_follows_cause_and_start() -> None:
    assert replace(EXAMPLE, cause="other").id != EXAMPLE.id
    assert replace(EXAMPLE, started_at_ms=1).id != EXAMPLE.id
    assert replace(EXAMPLE, deployment_version="2").id != EXAMPLE.id
    assert replace(EXAMPLE, revision=2, closed_at_ms=5, score=9.0).id == EXAMPLE.id


def test_what_is_not_finite_is_left_empty_where_it_may_be() -> None:
    assert decode_finding(encode_finding(replace(EXAMPLE, expected_high=float("inf")))).expected_high is None
    with pytest.raises(ValueError, match="JSON"):
        encode_finding(replace(EXAMPLE, score=float("nan")))


@given(data=st.binary(max_size=200))
def test_other_bytes_are_rejected(data: bytes) -> None:
    with pytest.raises(Rejected):
        decode_finding(data)


def test_a_changed_finding_is_rejected() -> None:
    with pytest.raises(Rejected):
        decode_finding(encode_finding(EXAMPLE).replace(b"car-001", b"car-002"))
