"""What a process that runs Spark needs from the machine: Java, the connector jars and its own Python."""

from __future__ import annotations

import sys
from pathlib import Path

from infra.jars import resolve
from infra.java import find_java


def spark_jars(cache: Path) -> tuple[Path, ...]:
    """Verified connector jars for ``spark.jars``. Raises SetupError."""
    return resolve("spark", cache)


def spark_environment(cache: Path) -> dict[str, str]:
    """Environment for a process that starts a Spark driver. Raises SetupError."""
    return {
        "JAVA_HOME": str(find_java(cache).home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
