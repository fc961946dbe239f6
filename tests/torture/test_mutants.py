"""Does the harness notice? Four promises broken at once, each caught by a rule of its own, in one run.

``puback_order`` runs in one gateway worker, ``ack_early`` in the other, ``torn_transaction`` and ``blind_ranges`` in
the ingest job. The faults are chosen so that each shows: a frozen log with the worker that promised too early killed
meanwhile; devices that hear no acknowledgement for so long that what they send again meets another batch than its first
copy (within one batch repeats are found without the ranges); connections to the store cut while it stores. That such
faults find nothing in the real services is what ``test_short`` is for.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torture.__main__ import settings_in
from tests.torture.arena import arena
from tests.torture.checker import Verdict
from tests.torture.plan import KILL, Step
from tests.torture.run import Outcome, Run

PATIENCE_S = 900.0
"""How soon lag is 0 again is not asked here."""

MUTANTS = "tests.torture.mutants"
REPLACEMENTS = {
    "gateway": [MUTANTS, "puback_order", "gateway"],
    "gateway-1": [MUTANTS, "ack_early", "gateway"],
    "ingest": [MUTANTS, "torn_transaction,blind_ranges", "stream_jobs", "ingest"],
}
PLAN = (
    Step("freeze", False, 0.0, ("kafka",), 6.0, 0.0),
    Step(KILL, False, 4.0, ("gateway-1",), 0.0, 0.0),
    Step("silence", False, 8.0, ("fleet-0",), 14.0, 1.0),
    Step("silence", False, 8.0, ("fleet-2",), 14.0, 1.0),
    Step("flapping", False, 21.0, ("fleet-0",), 1.0, 1.0),
    Step("flapping", False, 21.0, ("fleet-2",), 1.0, 1.0),
    *(Step("half_open", False, 24.0 + 4.0 * number, ("store",), 1.5, 0.0) for number in range(4)),
)


@pytest.fixture(scope="module")
def outcome() -> Iterator[Outcome]:
    home = Path(tempfile.mkdtemp(prefix="fleetstream-mutants-"))
    home.chmod(0o711)
    try:
        with arena(settings_in(home), REPLACEMENTS) as place:
            yield Run(place, print, PATIENCE_S, losing=True)(PLAN)
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def verdict(outcome: Outcome) -> Verdict:
    assert outcome.verdict is not None and outcome.faults.total() == len(PLAN)
    return outcome.verdict


def test_pubacks_out_of_order_are_heard_on_the_wire(verdict: Verdict) -> None:
    assert verdict.puback_order


def test_a_promise_before_kafka_answered_is_found(verdict: Verdict) -> None:
    """Acknowledged to the device, forgotten by the broker, and never in the log."""
    assert verdict.acked_not_in_log and verdict.promised_not_in_log and verdict.lost


def test_offsets_committed_apart_from_rows_are_found(verdict: Verdict) -> None:
    """The store's own offset has passed records that it does not have."""
    assert verdict.skipped and verdict.acked_not_stored


def test_forgotten_ranges_are_found(verdict: Verdict) -> None:
    assert verdict.doubled


def test_what_was_not_broken_is_not_blamed(verdict: Verdict) -> None:
    assert not (verdict.altered or verdict.foreign or verdict.wrong_device or verdict.order)
