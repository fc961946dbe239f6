"""Detectors, remaining life, alert policy and their published scores; pure.

Comes in: arrays of readings with their event times, frozen parameters, state. Goes out: new state, verdicts,
``contracts.finding.Finding``. No Spark, no database, no files, no clock: the same input gives the same findings in
the stream, in batch and on replay.

The walk: ``base.Detector`` (judge, then learn), one file per detector in ``detectors/`` with one line in its menu,
``accumulate`` decides when a person is called, ``life`` estimates remaining life, ``benchmarks`` holds the
published scoring rules.
"""
