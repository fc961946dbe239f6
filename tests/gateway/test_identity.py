"""A device under an epoch that is another run's: nothing accepted, nothing confirmed, bytes kept, and it is told."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from contracts.commands import Answer, Outcome, encode_answer
from contracts.identity import IdentityNotice, KnownEpochs, decode_known, decode_notice, encode_known, encode_notice
from contracts.limits import MAX_FUTURE_MS, MAX_PAST_MS
from contracts.stamp import decode_dead_letter
from contracts.status import encode_status
from contracts.topics import Topics, up_topic
from gateway.admission import Accepted, Admission, Inbound, Refused, Verdict
from gateway.claims import Claims
from gateway.registry import EpochView, joined
from tests.gateway.samples import NONCE, NOW_MS, frame, registration, status
from tests.gateway.test_relay import Rig

TOPICS = Topics("t")
KNOWN = {"car-1": KnownEpochs(9, {1: 111, 2: 222, 9: NONCE})}


def judge(payload: bytes, channel: str = "live") -> Verdict:
    admission = Admission(TOPICS, {"car-1": registration()}, epochs=KNOWN)
    return admission.admit(Inbound(up_topic("car-1", channel), payload, False, NOW_MS))


def test_an_epoch_of_another_run_is_refused_kept_and_told() -> None:
    payload = frame(epoch=1, seq=5)
    for verdict in (judge(payload), judge(encode_status(status()), "status")):
        assert isinstance(verdict, Refused)
        assert (verdict.reason, verdict.identity) == ("identity_conflict", None), "its spool must keep it"
        assert verdict.notice == IdentityNotice(1, NONCE, 9)
        letter = decode_dead_letter(verdict.record.header[1])
        assert (letter.boot_epoch, letter.seq) == (0, 0), "the number is another packet's: it must explain no loss"
    assert judge(payload).record.value == payload


def test_until_the_store_speaks_an_epoch_is_his_who_came_first() -> None:
    """Ingest, database or relay are away: nothing of a clone is confirmed, and nobody is sent to another epoch: another
    worker may have heard the clone first, and what moves although it is stored would be stored twice."""
    told: dict[str, KnownEpochs] = {}
    admission = Admission(TOPICS, {"car-1": registration()}, epochs=told)

    def hear(nonce: int, seq: int, epoch: int = 7) -> Verdict:
        return admission.admit(
            Inbound(up_topic("car-1", "live"), frame(epoch=epoch, nonce=nonce, seq=seq), False, NOW_MS)
        )

    assert isinstance(hear(111, 1), Accepted) and isinstance(hear(111, 1, epoch=8), Accepted)
    clone = hear(222, 2)
    assert isinstance(clone, Refused)
    assert (clone.reason, clone.identity, clone.notice) == ("identity_conflict", None, None)
    beat = admission.admit(
        Inbound(up_topic("car-1", "status"), encode_status(replace(status(), boot_epoch=7, nonce=222)), False, NOW_MS)
    )
    assert isinstance(beat, Refused) and isinstance(hear(222, 2, epoch=9), Accepted)
    told["car-1"] = KnownEpochs(7, {7: 222})
    assert isinstance(hear(222, 3), Accepted), "the store's word is above it"
    original = hear(111, 3)
    assert isinstance(original, Refused) and original.notice == IdentityNotice(7, 111, 9)


def test_a_clones_refused_packet_explains_no_loss_of_the_original() -> None:
    """Whatever else is wrong with it: no number in the letter, no confirmation."""
    wrong_clock, long_ago = NOW_MS + MAX_FUTURE_MS + 1, NOW_MS - MAX_PAST_MS - 1
    for verdict in (
        judge(frame(epoch=1, seq=5, base_ms=wrong_clock)),
        judge(frame(epoch=1, seq=5, base_ms=long_ago)),
        judge(frame(epoch=1, seq=5), "backlog"),
        judge(frame(epoch=1, seq=5, tenant="rival")),
    ):
        assert isinstance(verdict, Refused) and verdict.identity is None
        letter = decode_dead_letter(verdict.record.header[1])
        assert (letter.boot_epoch, letter.seq) == (0, 0)
    own = judge(frame(epoch=9, seq=5, base_ms=wrong_clock))
    assert isinstance(own, Refused) and own.identity is not None, "its own refused packet does explain it"
    admission = Admission(TOPICS, {"car-1": registration()})
    for nonce in (111, 222):
        payload = frame(epoch=1, seq=5, nonce=nonce, base_ms=wrong_clock)
        verdict = admission.admit(Inbound(up_topic("car-1", "live"), payload, False, NOW_MS))
        assert isinstance(verdict, Refused) and (verdict.identity is not None) == (nonce == 111)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5), st.integers(1, 3)), max_size=60))
def test_claims_are_bounded_and_never_change_hands(heard: list[tuple[str, int, int]]) -> None:
    claims = Claims(max_devices=2, max_epochs=3)
    for device, epoch, nonce in heard:
        before = claims.owner(device, epoch)
        claims.claim(device, epoch, nonce)
        assert claims.owner(device, epoch) == (nonce if before is None else before)
        assert claims.highest(device) >= epoch
        assert len(claims) <= 6


def test_own_old_and_unknown_epochs_pass() -> None:
    for epoch, nonce in ((9, NONCE), (1, 111), (5, 7), (10, 7)):
        assert isinstance(judge(frame(epoch=epoch, nonce=nonce)), Accepted)


def test_an_answer_goes_to_its_topic() -> None:
    answer = Answer("c1", "car-1", 7, Outcome.DONE, "", NOW_MS)
    verdict = judge(encode_answer(answer), "answer")
    assert isinstance(verdict, Accepted)
    assert verdict.record.topic == TOPICS.answers.name
    assert isinstance(judge(encode_answer(replace(answer, device="car-2")), "answer"), Refused)
    for detail in ({"x": "\x00"}, {"x": float("nan")}, {"x": "\ud800"}):
        assert isinstance(judge(encode_answer(replace(answer, detail=detail)), "answer"), Refused)


def test_the_device_is_told_now_and_then() -> None:
    rig = Rig()
    rig.relay._admission = Admission(TOPICS, {"car-1": registration()}, epochs=KNOWN)
    for _ in range(5):
        rig.link.incoming.append((up_topic("car-1", "live"), frame(epoch=1), 1, False, False))
        rig.relay.step()
        rig.now_s += 0.9
    told = [decode_notice(payload) for topic, payload, _ in rig.link.published if topic == "v1/car-1/down/identity"]
    assert told == [IdentityNotice(1, NONCE, 9)] * 2


@given(st.dictionaries(st.integers(1, 200), st.integers(1, 2**62), min_size=1, max_size=60), st.integers(0, 60))
def test_records_of_one_device_add_up(nonces: dict[int, int], cut: int) -> None:
    """Two transactions may each tell less than both know: the view forgets nothing that it would tell itself."""
    view = EpochView()
    pairs = sorted(nonces.items())
    for part in (dict(pairs[:cut]), dict(pairs[cut:])):
        if part:
            view.apply(b"car", encode_known(KnownEpochs(max(part), part)))
    whole = joined(KnownEpochs(max(nonces), nonces), KnownEpochs(1, {}))
    assert view.devices["car"] == whole
    assert decode_known(encode_known(whole)) == whole
    view.apply(b"car", None)
    assert view.devices == {}


@given(st.binary(max_size=60))
def test_nonsense_changes_nothing(value: bytes) -> None:
    view = EpochView()
    view.apply(b"car", encode_known(KNOWN["car-1"]))
    view.apply(b"car", b"x" + value)
    assert (view.devices, view.refused) == ({"car": KNOWN["car-1"]}, 1)


def test_a_notice_survives_the_wire() -> None:
    notice = IdentityNotice(3, -5, 12)
    assert decode_notice(encode_notice(notice)) == notice
