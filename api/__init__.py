"""What people and programs ask the store, and the relay that carries results from the store to Kafka.

Comes in: HTTP requests with an API key; rows of the outbox. Goes out: JSON under ``/api/v1`` (assets, latest values,
readings, windows, the ledger, what was set aside, a live stream), the console's static page, health and metrics;
records in the Kafka topics that the outbox names.

The room reads the store as a role that row-level security binds to the tenant of each transaction. It computes nothing
that other rooms know better, writes no telemetry, and never shows missing data as zero.
"""
