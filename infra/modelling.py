"""Models of a running stack: where its registry, archive and folder of models are, and Spark when it is needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from infra.refilling import refill_settings, stdout_as_stderr
from infra.rooms import Stack
from infra.spark import spark_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stream_jobs.models.registry import Registry


def registry_of(stack: Stack) -> Registry:
    """The registry of this stack's store."""
    from stream_jobs.models.registry import Registry  # not before a command needs it

    return Registry(refill_settings(stack, stack.settings.schema_name))


@contextmanager
def spark_of(stack: Stack, registry: Registry) -> Iterator[SparkSession]:
    """Spark beside the stack; its JVM's words go to stderr."""
    from stream_jobs.models.registry import open_spark

    os.environ.update(spark_environment(stack.settings.cache))
    with ExitStack() as exits:
        with stdout_as_stderr():
            session = exits.enter_context(open_spark(registry.settings))
        yield session
