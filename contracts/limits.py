"""Bounds that more than one room applies to time."""

from __future__ import annotations

MAX_FUTURE_MS = 10 * 60 * 1000
"""A stamp further ahead of the receive time than this is not believed (phones and ECUs drift by seconds)."""

MAX_PAST_MS = 400 * 24 * 3600 * 1000
"""A header older than this before receipt is a clock fault (1970 at boot), not lateness."""

MAX_LATENESS_MS = 30 * 24 * 3600 * 1000
"""A reading later than this can no longer change a window: it is quarantined with its bytes."""

WINDOW_WIDTHS_S = (10, 60)
"""Fixed windows that every aggregated signal has."""
