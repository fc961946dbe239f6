"""The judge is judged: an honest case is innocent, and each invariant broken by hand is the one that is named."""

from __future__ import annotations

import hashlib
from collections import Counter
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.status import AgentStatus, encode_status
from contracts.topics import UP_STATUS
from edge_agent.settings import MqttSettings
from infra.guard import Guard
from tests.torture.checker import PARTLY, Case, Content, LedgerRow, LogRecord, SetAside, StoredRow, Verdict, judge
from tests.torture.device import DevicesFile, EarLink
from tests.torture.fleet import Fleet
from tests.torture.history import History, Identity, Numbered

LIVE = ("live", 0)
TENANTS = {"car": "acme", "van": "globex"}
SAYS = Content(2, 7.5)


def digest(identity: Identity, nonce: int = 1) -> str:
    return f"{identity[0]}/{identity[1]}/{identity[2]}/{nonce}"


def honest(numbers: int = 4) -> Case:
    """Two devices, everything accepted is logged, stored, acknowledged and promised; one bad input has its letter."""
    identities = [(device, 1, seq) for device in TENANTS for seq in range(1, numbers + 1)]
    numbered: list[Numbered] = [(device, epoch, 1, seq) for device, epoch, seq in identities]
    return Case(
        tenants=TENANTS,
        accepted={one: frozenset({digest(one)}) for one in identities},
        moved=frozenset(),
        acked=frozenset(numbered),
        rejected=frozenset(),
        poison={"bad": "noise"},
        promised=frozenset((one[0], digest(one)) for one in identities),
        out_of_order=(),
        log=tuple(
            LogRecord(LIVE, n, n[3] * 250, digest((n[0], n[1], n[3])), at, SAYS) for at, n in enumerate(numbered)
        ),
        letters=frozenset({"bad"}),
        stored=tuple(StoredRow(one, TENANTS[one[0]], digest(one), SAYS) for one in identities),
        ledger=tuple(LedgerRow(device, 1, numbers) for device in TENANTS if numbers),
        gaps=(),
        aside=(SetAside("car", "not_a_packet", "bad"),),
        taken={LIVE: len(numbered)},
    )


def but(case: Case | None = None, **changes: object) -> Case:
    """The honest case with changes, and a ledger that tells its rows unless that is what is changed."""
    changed: Case = replace(case or honest(), **changes)  # type: ignore[arg-type]
    if "ledger" in changes:
        return changed
    rows = Counter(row.identity[:2] for row in changed.stored)
    return replace(changed, ledger=tuple(LedgerRow(*key, n) for key, n in rows.items()))


def guilty_of(verdict: Verdict) -> set[str]:
    return {one.name for one in fields(verdict) if getattr(verdict, one.name)}


FIRST: Identity = ("car", 1, 1)
OTHER = next(one for one in honest().stored if one.identity == ("van", 1, 1))
ROW = next(one for one in honest().stored if one.identity == FIRST)
REST = tuple(one for one in honest().stored if one.identity != FIRST)
LOG = honest().log
BROKEN: dict[str, tuple[Case, set[str]]] = {
    "a stored row is gone": (but(stored=REST), {"lost", "skipped", "acked_not_stored"}),
    "a row is not stored yet": (but(stored=REST, taken={LIVE: 0}), {"lost", "acked_not_stored"}),
    "a record of nobody's was passed over": (
        but(log=(*LOG, LogRecord(LIVE, ("car", 1, 1, 99), 10**9, "x", 7))),
        {"skipped"},
    ),
    "a row stands twice": (but(stored=(*REST, ROW, ROW)), {"doubled"}),
    "a row has other bytes": (
        but(stored=(*REST, replace(ROW, sha256="x"))),
        {"altered", "lost", "skipped", "acked_not_stored"},
    ),
    "a row that nobody accepted": (
        but(stored=(*honest().stored, StoredRow(("car", 1, 99), "acme", "x"))),
        {"foreign"},
    ),
    "a device's bytes under another": (
        but(stored=(*honest().stored, StoredRow(("car", 1, 1), "acme", OTHER.sha256, SAYS))),
        {"doubled", "altered", "wrong_device"},
    ),
    "a row under another tenant": (
        but(stored=(*REST, replace(ROW, tenant="globex"))),
        {"wrong_device"},
    ),
    "an acknowledgement without a record": (
        but(acked=frozenset({*honest().acked, ("car", 1, 1, 99)})),
        {"acked_not_in_log", "acked_not_stored"},
    ),
    "an acknowledgement of another nonce": (
        but(acked=frozenset({*honest().acked, ("car", 1, 2, 1)})),
        {"acked_not_in_log", "acked_not_stored"},
    ),
    "a rejection without a letter": (
        but(rejected=frozenset({("car", 1, 1, 1)})),
        {"acked_not_stored"},
    ),
    "a PUBACK of what the log never got": (
        but(promised=frozenset({*honest().promised, ("car", "x")})),
        {"promised_not_in_log"},
    ),
    "PUBACKs out of order": (but(out_of_order=("PUBACK 7 before 6",)), {"puback_order"}),
    "numbers against the device's clock": (
        but(log=(replace(LOG[0], mono_ms=10**6), *LOG[1:])),
        {"order"},
    ),
    "copies in two partitions": (but(log=(*LOG, replace(LOG[0], place=("live", 1)))), {"order"}),
    "poison without a trace": (but(aside=()), {"poison"}),
    "poison without a reason": (but(aside=(SetAside("car", "", "bad"),)), {"poison"}),
    "something set aside that nobody sent": (
        but(aside=(*honest().aside, SetAside("car", "bad_crc", "x"))),
        {"aside_unknown"},
    ),
    "an honest packet set aside without cause": (
        but(aside=(*honest().aside, SetAside("car", "bad_crc", ROW.sha256))),
        {"aside_unknown"},
    ),
    "a value that is not in the bytes": (
        but(stored=(*REST, replace(ROW, content=Content(2, 7.6)))),
        {"values"},
    ),
    "a sample too many": (but(stored=(*REST, replace(ROW, content=Content(3, 7.5)))), {"values"}),
    "a sample less, and none set aside": (
        but(stored=(*REST, replace(ROW, content=Content(1, 7.5)))),
        {"values"},
    ),
    "a ledger that counts what is not there": (
        but(ledger=(LedgerRow("car", 1, 5), LedgerRow("van", 1, 4))),
        {"ledger"},
    ),
    "a ledger that misses what is there": (
        but(ledger=(LedgerRow("car", 1, 4, ((2, 3),)), LedgerRow("van", 1, 4))),
        {"ledger"},
    ),
    "a device without a row in the ledger": (but(ledger=(LedgerRow("van", 1, 4),)), {"ledger"}),
    "an old latest value": (but(latest_wrong=("l",)), {"latest"}),
    "a window that does not add up": (but(windows_wrong=("w",)), {"windows"}),
}


@pytest.mark.parametrize("numbers", [0, 1, 40])
def test_an_honest_case_is_innocent(numbers: int) -> None:
    verdict = judge(honest(numbers))
    assert verdict.innocent and verdict.unexplained == 0 and guilty_of(verdict) == set()


@pytest.mark.parametrize("what", sorted(BROKEN))
def test_each_broken_promise_is_named(what: str) -> None:
    case, guilt = BROKEN[what]
    verdict = judge(case)
    assert guilty_of(verdict) == guilt and not verdict.innocent


def test_every_field_of_a_verdict_is_broken_by_some_case() -> None:
    assert set().union(*(guilt for _, guilt in BROKEN.values())) == {one.name for one in fields(Verdict)}


@given(st.sets(st.integers(1, 30)))
def test_a_reported_drop_explains_exactly_its_range(dropped: set[int]) -> None:
    case = honest(30)
    rows = tuple(row for row in case.stored if row.identity[0] == "van" or row.identity[2] not in dropped)
    gaps = tuple(("car", 1, seq, seq) for seq in dropped)
    acked = frozenset(one for one in case.acked if one[0] == "van" or one[3] not in dropped)
    log = tuple(one for one in case.log if one.numbered[0] == "van" or one.numbered[3] not in dropped)
    promised = frozenset((one.numbered[0], one.sha256) for one in log)
    case = replace(case, log=log, promised=promised)
    assert judge(but(case, stored=rows, gaps=gaps, acked=acked)).innocent
    for missing in dropped:
        told = tuple(gap for gap in gaps if gap[2] != missing)
        assert len(judge(but(case, stored=rows, gaps=told, acked=acked)).lost) == 1


def test_samples_that_are_set_aside_one_by_one_are_not_shown() -> None:
    aside = (*honest().aside, SetAside("car", PARTLY, ROW.sha256, 1))
    case = but(stored=(*REST, replace(ROW, content=Content(1, 3.0))), aside=aside)
    assert judge(case).innocent
    assert guilty_of(judge(but(case, stored=honest().stored))) == {"values"}


@pytest.mark.parametrize(("reason", "guilt"), [("future", {"ledger"}), ("identity_conflict", set())])
def test_the_ledger_may_miss_what_only_a_clone_said(reason: str, guilt: set[str]) -> None:
    aside = (*honest().aside, SetAside("car", reason, ROW.sha256))
    ledger = (LedgerRow("car", 1, 3, ((1, 1),)), LedgerRow("van", 1, 4))
    assert guilty_of(judge(but(stored=REST, aside=aside, ledger=ledger))) == guilt


def test_a_packet_of_a_wrong_clock_lies_among_the_letters() -> None:
    case = but(
        stored=REST, acked=frozenset(one for one in honest().acked if one[3] > 1 or one[0] == "van"),
        rejected=frozenset({("car", 1, 1, 1)}), aside=(*honest().aside, SetAside("car", "future", ROW.sha256)),
    )  # fmt: skip
    assert judge(case).innocent


def test_a_clones_packets_are_set_aside_one_by_one() -> None:
    """Same numbers, another nonce and other bytes: the second one is a conflict, neither a duplicate nor stored."""
    twin: Identity = ("car", 1, 1)
    bytes_ = digest(twin, nonce=2)
    both = {**honest().accepted, twin: frozenset({digest(twin), bytes_})}
    conflict = (*honest().aside, SetAside("car", "identity_conflict", bytes_))
    record = LogRecord(LIVE, ("car", 1, 2, 1), 250, bytes_, 50)
    case = but(accepted=both, aside=conflict, log=(*LOG, record))
    assert judge(case).innocent
    assert guilty_of(judge(replace(case, aside=honest().aside))) == {"lost"}
    known = replace(case, taken={LIVE: 99})
    assert judge(known).innocent
    assert guilty_of(judge(replace(known, aside=honest().aside))) == {"lost", "skipped"}
    acked = replace(case, acked=frozenset({*case.acked, record.numbered}))
    assert judge(acked).innocent
    assert guilty_of(judge(replace(acked, aside=honest().aside))) == {"lost", "acked_not_stored"}


def test_a_clones_heartbeat_is_set_aside_and_no_packet_is_missed() -> None:
    """It belongs to no journal. It may be refused where two runs use one epoch, and only as a conflict."""
    clone, beat = ("car", 1, 2), SetAside("car", "identity_conflict", "beat")
    case = but(aside=(*honest().aside, beat), heartbeats={"beat": clone})
    assert judge(case).innocent
    owner = SetAside("car", "identity_conflict", "owner's")
    both = replace(case, aside=(*case.aside, owner), heartbeats={"beat": clone, "owner's": ("car", 1, 1)})
    assert judge(both).innocent, "a worker that heard the clone first"
    wrong = {
        "nobody sent it": replace(case, heartbeats={}),
        "it is the owner's": replace(case, heartbeats={"beat": ("car", 1, 1)}),
        "nobody owns the epoch": replace(case, heartbeats={"beat": ("car", 2, 2)}),
        "it is another device's": replace(case, heartbeats={"beat": ("van", 1, 2)}),
        "another reason": replace(case, aside=(*honest().aside, replace(beat, reason="future"))),
    }
    for what, one in wrong.items():
        assert guilty_of(judge(one)) == {"aside_unknown"}, what


def test_a_heartbeat_is_told_before_it_leaves(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status = AgentStatus("car", 3, 77, *(0,) * 12, "1.0")
    EarLink("car", MqttSettings(), lambda: None).publish(UP_STATUS, encode_status(status), ask_ack=False)
    pipe, history = capfd.readouterr().out.encode(), History()
    told: DevicesFile = {"port": 0, "ca": "", "spool_bytes": 0, "devices": []}
    with closing(Guard()) as guard:
        Fleet("twin", told, tmp_path, history, guard)._read(SimpleNamespace(stdout=[pipe]))  # type: ignore[arg-type]
    assert history.heartbeats == {hashlib.sha256(encode_status(status)).hexdigest(): ("car", 3, 77)}
    assert not history.accepted


def test_a_packet_that_moved_is_asked_for_under_its_new_name_only() -> None:
    """A device that learnt of its clone: what was set aside under the old number is explained, a row there is not."""
    moved = replace(
        honest(), moved=frozenset({"old"}), aside=(*honest().aside, SetAside("car", "identity_conflict", "old"))
    )
    assert judge(moved).innocent
    row = StoredRow(("car", 9, 1), "acme", "old")
    assert guilty_of(judge(but(moved, stored=(*moved.stored, row)))) == {"foreign"}


def test_old_packets_among_new_ones_keep_their_order_and_nothing_else_is_forgiven() -> None:
    """A device that moved packets to a new epoch sends them between new ones; each kind for itself is in order."""

    def with_times(*times: int) -> Case:
        logged = (LogRecord(LIVE, ("car", 1, 1, n), at, digest(("car", 1, n)), n - 1) for n, at in enumerate(times, 1))
        return but(log=(*logged, *(one for one in honest().log if one.numbered[0] == "van")))

    mixed = with_times(900, 100, 950, 200)
    assert "order" in guilty_of(judge(mixed))
    assert "order" not in guilty_of(judge(replace(mixed, movers=frozenset({"car"}))))
    assert "order" in guilty_of(judge(replace(with_times(900, 200, 950, 100), movers=frozenset({"car"}))))
