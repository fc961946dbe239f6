"""Trained models: their files, training and comparison in batch on Spark, and what the stream is given.

In: the archive's files and manifest, the registry's rows (``sinks/models.py``). Out: a file named by its hash, then its
row. What is computed is pure and in ``anomaly.models``. Read ``shelf.py`` (files), ``reading.py`` (archive to readings
by device and day), ``workshop.py`` (train, compare), ``serving.py`` (which models the stream judges with).
"""
