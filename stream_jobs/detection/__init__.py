"""Detection in the stream: a Spark query of its own that judges readings and says what its detectors found.

In: the packet topics (live, backlog), read as ingest reads them. Out: findings and their outbox rows, by
``sinks/findings.py``. The judging itself is ``anomaly.shard``: pure, and the same offline.

Read ``samples.py`` (packets to readings by shard), ``query.py`` (the Spark query), ``runs.py`` (when detection begins
anew), ``service.py``.
"""
