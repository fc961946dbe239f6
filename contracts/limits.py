"""Bounds that more than one room applies to time."""

from __future__ import annotations

MAX_FUTURE_MS = 10 * 60 * 1000
"""A stamp further ahead of the receive time than this is not believed (phones and ECUs drift by seconds)."""

MAX_PAST_MS = 400 * 24 * 3600 * 1000
"""A header older than this before receipt is a clock fault (1970 at boot), not lateness."""

LATENESS_CLASSES_S = {"seconds": 60, "minutes": 3600, "hours": 24 * 3600, "days": 30 * 24 * 3600}
"""How late a signal's reading may be and still change windows; each class ends where the next begins."""

DEFAULT_LATENESS = "days"
MAX_LATENESS_MS = LATENESS_CLASSES_S["days"] * 1000
"""A reading later than this, or than its signal's class, changes no window: it is quarantined with its bytes."""

FINAL_MARGIN_MS = 3600 * 1000
"""How far finality stays behind what is stored: longer than a gateway may hold a packet after it stamped it."""

WINDOW_WIDTHS_S = (10, 60)
"""Fixed windows that every aggregated signal has, merged with every packet."""

ROLLUP_WIDTHS_S = (3600, 86_400)
"""Wider windows, made from the next narrower ones when those are closed or corrected."""

ALL_WIDTHS_S = WINDOW_WIDTHS_S + ROLLUP_WIDTHS_S
