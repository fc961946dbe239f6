"""The stack's own figures go the way of every reading, and are found under the tenant ``platform``."""

from __future__ import annotations

import psycopg

from infra.rooms import reader_dsn
from infra.selfwatch import TENANT, self_watched
from infra.session import Session
from tests.walk.history import wait_for

WITH_BACKLOG = {"gateway", "ingest", "api"}
STORED = """
SELECT asset, signal, count(*), max(value) FROM readings WHERE tenant = %s GROUP BY 1, 2
"""


def test_every_process_is_an_asset_with_its_costs(line: Session) -> None:
    names = set(line.supervisor.state().services)

    def stored() -> dict[tuple[str, str], float]:
        with psycopg.connect(reader_dsn(line.stack)) as connection:
            return {(row[0], row[1]): row[3] for row in connection.execute(STORED.encode(), (TENANT,)).fetchall()}

    def told(signal: str) -> set[str]:
        return {asset for asset, name in stored() if name == signal}

    whole = {"Process.CpuSeconds": names, "Process.ResidentBytes": names, "Process.Backlog": WITH_BACKLOG}
    with self_watched(line):
        wait_for("every process has its costs", lambda: all(told(one) == of for one, of in whole.items()), 300.0)
    found = stored()
    assert all(found[name, "Process.ResidentBytes"] > 1_000_000 for name in names)
