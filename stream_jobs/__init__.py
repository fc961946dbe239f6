"""The cloud's heart: packets come in from Kafka, rows leave in PostgreSQL, exactly once.

In: the topics of ``contracts.topics`` (live and backlog packets, agents' accounts, dead letters). Out: readings,
windows, latest values, the ledger, quarantine; closed windows through the outbox; the raw log as Parquet.

Read in this order: ``jobs/ingest.py`` (the Spark query), ``decode.py`` (bytes to samples), ``heart.py`` (what is
new), ``merge.py`` (windows that merge), ``sinks/transaction.py`` (one transaction), ``jobs/closer.py``.
"""
