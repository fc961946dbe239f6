"""The questions that can be asked; a new one is its class and one line here."""

from __future__ import annotations

from typing import Final

from api.fleet.base import Question
from api.fleet.days import AverageLoad, Breakdowns, DailyActivity, DailyDriving, DrivingSessions, FuelConsumption
from api.fleet.now import HighLoad, LastLocation, LastLocations, LowFuel
from api.fleet.spans import LongDailySessions, LongDrivingSessions, StationaryTrucks

QUESTIONS: Final[tuple[Question, ...]] = (
    LastLocations(),
    LastLocation(),
    LowFuel(),
    HighLoad(),
    StationaryTrucks(),
    LongDrivingSessions(),
    LongDailySessions(),
    FuelConsumption(),
    DailyDriving(),
    DrivingSessions(),
    AverageLoad(),
    DailyActivity(),
    Breakdowns(),
)
"""In the suite's order."""

MENU: Final = {one.name: one for one in QUESTIONS}
