"""Fixtures that every room's tests share (``tests/fix_stack.py``), and how properties are searched.

`make test` tries the same examples each time, or a change would be judged by chance; ``HYPOTHESIS_PROFILE=search``
tries others. No example has a deadline: the machines are busy at times, and what is slow is measured elsewhere.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.fix_stack import (
    kafka_bootstrap,
    mqtt_broker,
    postgres_dsn,
    prefixes,
    role_dsn,
    schema,
    schema_dsn,
    schemas,
    spark,
    stack,
    topic_prefix,
)

__all__ = [
    "kafka_bootstrap", "mqtt_broker", "postgres_dsn", "prefixes", "role_dsn", "schema", "schema_dsn", "schemas",
    "spark", "stack", "topic_prefix",
]  # fmt: skip

settings.register_profile("search", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("search"), derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
