"""Crash records pass the gateway as packets do: by header, on the priority topic, with their own identity."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.edr.wire import CapsuleParcel, encode_body, open_parcel
from contracts.packet import Header, Parcel, encode_parcel
from contracts.topics import Topics
from gateway.admission import Accepted, Admission, Identity, Inbound, Refused
from tests.gateway.samples import NOW_MS, registration

TOPICS = Topics("t")
MESSAGE = CapsuleParcel("00ff-1-5", 3, bytes(9_000))
HEADER = Header("north", "car-1", 2, 77, 5, 2, NOW_MS, 1, True, 0)


def parcel(**changes: object) -> bytes:
    kind, body = encode_body(MESSAGE)
    return encode_parcel(Parcel(replace(HEADER, **changes), kind, body))  # type: ignore[arg-type]


@pytest.mark.parametrize("whole", [False, True])
def test_a_parcel_goes_to_the_priority_topic_untouched_and_at_once(whole: bool) -> None:
    own = registration()
    admission = Admission(TOPICS, {"car-1": own}, verify_whole=whole)
    for seq in (5, 6):  # the second one is read the short way
        payload = parcel(tenant=own.tenant, seq=seq)
        verdict = admission.admit(Inbound("v1/car-1/up/priority", payload, False, NOW_MS))
        assert isinstance(verdict, Accepted) and verdict.urgent
        assert verdict.record.topic == TOPICS.priority.name and verdict.record.value == payload
        assert verdict.identity == Identity(2, 77, seq)
        assert open_parcel(verdict.record.value)[1] == MESSAGE


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"lane": 0}, "lane_mismatch"),
        ({"device": "car-2"}, "device_mismatch"),
        ({"tenant": "rival"}, "tenant_mismatch"),
    ],
)
def test_a_parcel_is_judged_like_a_packet(change: dict[str, object], reason: str) -> None:
    own = registration()
    payload = parcel(**{"tenant": own.tenant, **change})
    verdict = Admission(TOPICS, {"car-1": own}).admit(Inbound("v1/car-1/up/priority", payload, False, NOW_MS))
    assert isinstance(verdict, Refused) and verdict.reason == reason


@pytest.mark.parametrize("base_ms", [0, 86_400_000, NOW_MS + 10 * 86_400_000, 2**62])
@pytest.mark.parametrize("trusted", [False, True])
def test_no_clock_refuses_a_parcel(base_ms: int, trusted: bool) -> None:
    """A clock that a crash put back to 1970 must not cost the notice, which is sent once, nor bare the linkage."""
    own = registration()
    payload = parcel(tenant=own.tenant, base_ms=base_ms, clock_trusted=trusted)
    verdict = Admission(TOPICS, {"car-1": own}).admit(Inbound("v1/car-1/up/priority", payload, False, NOW_MS))
    assert isinstance(verdict, Accepted) and verdict.urgent
    assert verdict.record.topic == TOPICS.priority.name and verdict.record.value == payload


def test_a_parcel_on_another_lane_is_still_judged_by_the_clock() -> None:
    own = registration()
    payload = parcel(tenant=own.tenant, lane=0, base_ms=NOW_MS + 10 * 86_400_000)
    verdict = Admission(TOPICS, {"car-1": own}).admit(Inbound("v1/car-1/up/live", payload, False, NOW_MS))
    assert isinstance(verdict, Refused) and verdict.reason == "future"
