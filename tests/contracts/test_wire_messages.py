"""Stamps, acknowledgements, status, registry and commands: round trips and refusals."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.acks import Ack, decode_ack, encode_ack
from contracts.commands import Command, decode_command, encode_command
from contracts.errors import Rejected
from contracts.names import check_device, check_name
from contracts.ranges import normalise
from contracts.registry import (
    Registration,
    decode_beat,
    decode_registration,
    encode_beat,
    encode_registration,
)
from contracts.stamp import DeadLetter, Stamp, decode_dead_letter, decode_stamp, encode_dead_letter, encode_stamp
from contracts.status import AgentStatus, decode_status, encode_status
from contracts.topics import LANE_CHANNELS, Topics, parse_up_topic, up_topic

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
range_lists = st.lists(st.tuples(st.integers(1, 99), st.integers(0, 9)).map(lambda r: (r[0], r[0] + r[1])), max_size=5)
STATUS = AgentStatus("car-1", 2, -3, 1_700_000_000_000, 10, 450, 5, 0, 1, 50, 4, 2_000, 1_500, 0, 9_000, "0.1.0")


@given(int64, int32, int32, st.integers(0, 255))
def test_stamp_round_trip(received_ms: int, device_key: int, tenant_id: int, flags: int) -> None:
    stamp = Stamp(received_ms, device_key, tenant_id, flags)
    assert decode_stamp(encode_stamp(stamp)) == stamp
    assert len(encode_stamp(stamp)) == 18


@given(st.integers(1, 2**40), int64, range_lists, range_lists)
def test_ack_round_trip(epoch: int, nonce: int, ok: list[tuple[int, int]], no: list[tuple[int, int]]) -> None:
    ack = Ack(epoch, nonce, normalise(ok), normalise(no))
    assert decode_ack(encode_ack(ack)) == ack


def test_other_round_trips() -> None:
    letter = DeadLetter("bad_crc", "", "v1/car-1/up/live", "car-1", 5)
    registration = Registration("car-1", 7, "acme", 1, "recording")
    command = Command("c1", "car-1", "ping", 9, 1_700_000_000_000, {"n": 1})
    assert decode_dead_letter(encode_dead_letter(letter)) == letter
    assert decode_registration(encode_registration(registration)) == registration
    assert decode_beat(encode_beat(123)) == 123
    assert decode_status(encode_status(STATUS)) == STATUS
    for one in (command, replace(command, issued_ms=1_699_999_999_000)):
        assert decode_command(encode_command(one)) == one


@given(st.binary(max_size=60).filter(lambda data: len(data) != 18))
def test_garbage_is_rejected_never_raised_otherwise(data: bytes) -> None:
    for decode in (decode_ack, decode_status, decode_registration, decode_beat, decode_command, decode_stamp):
        with pytest.raises(Rejected):
            decode(data)


def test_a_status_with_text_for_a_number_is_rejected() -> None:
    with pytest.raises(Rejected, match="not an integer"):
        decode_status(encode_status(replace(STATUS, next_seq="10")))  # type: ignore[arg-type]


@pytest.mark.parametrize("field", [name for name in asdict(STATUS) if name not in ("device", "agent_version", "held")])
@pytest.mark.parametrize("value", [True, 1.0, "1", None, 2**63])
def test_a_status_is_rejected_for_any_number_that_is_none(field: str, value: object) -> None:
    with pytest.raises(Rejected, match="bad_status"):
        decode_status(encode_status(replace(STATUS, **{field: value})))  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99), st.integers(0, 99)), max_size=64))
def test_a_status_tells_what_is_held(drawn: list[tuple[int, int, int]]) -> None:
    told = replace(STATUS, held=tuple((epoch, first, first + more) for epoch, first, more in drawn))
    assert decode_status(encode_status(told)) == told


@pytest.mark.parametrize(
    "held", [[[1, 2]], [[0, 1, 1]], [[1, 2, 1]], [[1, 0, 1]], [[1, 1, True]], [[1, 1, 2]] * 65, [5]]
)
def test_a_status_with_nonsense_ranges_is_rejected(held: object) -> None:
    with pytest.raises(Rejected, match="bad_status"):
        decode_status(encode_status(replace(STATUS, held=held)))  # type: ignore[arg-type]


def test_a_device_cannot_take_a_gateway_workers_name() -> None:
    assert check_device("car-1") == "car-1"
    with pytest.raises(Rejected, match="gateway workers"):
        check_device("gateway-0")


@pytest.mark.parametrize("name", ["", "a/b", "car+", "#", "ä", "x" * 65, "car\n", "$beat"])
def test_names_that_could_escape_a_topic_are_refused(name: str) -> None:
    with pytest.raises(Rejected):
        check_name("device", name)
    with pytest.raises(Rejected):
        parse_up_topic(f"v1/{name}/up/live")


def test_topics_parse_back_and_are_distinct() -> None:
    for channel in (*LANE_CHANNELS.values(), "status"):
        assert parse_up_topic(up_topic("car-1", channel)) == ("car-1", channel)
    for topic in ("v1/car-1/up/other", "v2/car-1/up/live", "v1/car-1/down/ack", "v1/car-1/up/live/more"):
        with pytest.raises(Rejected):
            parse_up_topic(topic)
    every = [topic.name for topic in Topics("t1").all()]
    assert len(set(every)) == len(every)
    assert all(name.startswith("t1.") for name in every)
