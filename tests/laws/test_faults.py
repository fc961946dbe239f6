"""What every fault on the torture menu must obey: a name, a pure draw, known targets, a bounded hold, its own end."""

from __future__ import annotations

import random

import pytest

from tests.torture.faults_network import LINKS
from tests.torture.menu import MENU
from tests.torture.plan import FLEETS, SERVICES, Step

menu = pytest.mark.parametrize("name", sorted(MENU))
LONGEST_HOLD_S = 45.0
KNOWN = {*FLEETS, *SERVICES, *LINKS, "jvm", "poison"}


@menu
def test_the_same_dice_draw_the_same(name: str) -> None:
    fault = MENU[name]
    assert fault.name == name
    drawn = [[fault.draw(random.Random(seed)) for seed in range(30)] for _ in range(2)]
    assert drawn[0] == drawn[1]


@menu
def test_targets_are_known_and_holds_bounded(name: str) -> None:
    for seed in range(200):
        shape = MENU[name].draw(random.Random(seed))
        assert shape.targets and set(shape.targets) <= KNOWN
        assert 0 <= shape.hold_s <= LONGEST_HOLD_S


@menu
def test_a_step_can_be_read(name: str) -> None:
    shape = MENU[name].draw(random.Random(1))
    told = Step(name, False, 1.0, shape.targets, shape.hold_s, shape.value).line()
    assert name in told and shape.targets[0] in told
