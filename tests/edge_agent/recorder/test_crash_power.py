"""Power cuts around a real crash, over the recorder's files and the spool together.

Two thousand and more: ``python -m tests.edge_agent.power_trials --what crash --trials 2000``.
"""

from __future__ import annotations

from tests.edge_agent.recorder.crash_power import CAPSULES, LINKAGES, RAWS, crash_trials, recorded

CUTS = 200


def test_a_cut_at_any_instant_keeps_every_promise() -> None:
    result = crash_trials(CUTS, 1)
    assert result.clean and result.trials == CUTS, result
    assert {CAPSULES, LINKAGES, "spool.db-wal"} <= set(result.cuts_in)


def test_the_run_has_what_the_cuts_are_about() -> None:
    run = recorded()
    held = {name: max(len(state) for state in promises.states) for name, promises in run.promises.items()}
    assert held == {CAPSULES: 2, LINKAGES: 2, RAWS: 2}
    assert len(run.promises[CAPSULES].states) == 7, "two events, each told twice, then two receipts"
    assert run.promises[RAWS].states[-1] == {}, "receipts release raw motion"


def test_the_trial_can_fail() -> None:
    result = crash_trials(40, 2, ignores_sync=True)
    assert result.lost + result.corrupt + result.altered + result.doubled > 10
