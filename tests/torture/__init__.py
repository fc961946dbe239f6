"""The fault harness: a real stack, a real fleet, faults drawn from a seed, and a judge who reads every history.

``python -m tests.torture --seconds 150 --kills 40 --seed 7`` (``make torture SECONDS= KILLS= SEED=``). The plan is a
pure function of its three numbers (``plan``), a fault is one small class on one menu (``menu``), the judge is pure
(``checker``). What was found by it stands in docs/reliability.md.
"""
