"""Fixtures that every room's tests share; see ``tests/fix_stack.py``."""

from __future__ import annotations

from tests.fix_stack import (
    kafka_bootstrap,
    mqtt_broker,
    postgres_dsn,
    role_dsn,
    schema,
    schema_dsn,
    spark,
    stack,
    topic_prefix,
)

__all__ = [
    "kafka_bootstrap", "mqtt_broker", "postgres_dsn", "role_dsn", "schema", "schema_dsn", "spark", "stack",
    "topic_prefix",
]  # fmt: skip
