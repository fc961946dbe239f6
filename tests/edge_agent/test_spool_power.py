"""Hundreds of modelled power cuts: what was accepted is there afterwards, byte for byte, and no identity repeats.

Ten thousand and more: ``python -m tests.edge_agent.power_trials --trials 10000``.
"""

from __future__ import annotations

import pytest

from tests.edge_agent.power_trials import spool_trials

CUTS = 400


@pytest.mark.parametrize("seed", range(4))
def test_nothing_accepted_is_lost_by_power_cuts(seed: int) -> None:
    result = spool_trials(CUTS // 4, seed)
    assert result.clean and result.trials == CUTS // 4, result
    assert {"accept", "confirm"} <= set(result.cuts_in)


def test_the_model_can_find_a_loss() -> None:
    """The same run on a disk that lies about syncing loses packets or the file: the test above can fail."""
    result = spool_trials(40, 9, ignores_sync=True)
    assert result.lost + result.corrupt + result.altered + result.doubled > 10
