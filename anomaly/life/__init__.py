"""Remaining useful life: a few dozen floats of EWMA state a unit, boosted trees on them, conformal intervals."""
