"""One promise of a service broken on purpose each, to see whether the judge notices.

Each module has ``mutate()``; ``python -m tests.torture.mutants NAMES ROOM ARGUMENTS`` breaks what NAMES (with commas)
say and then runs the room's real service. Product code has no switch for any of it.
"""
