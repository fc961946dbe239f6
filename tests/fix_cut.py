"""A transaction whose process dies at the last moment: all its statements were accepted, its commit was not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

BEGIN = """
CREATE FUNCTION {schema}.cut_here() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_terminate_backend(pg_backend_pid());
    PERFORM pg_sleep(60);  -- notices that it was terminated
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER cut_here AFTER INSERT ON {schema}.{table} DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION {schema}.cut_here()
"""


@contextmanager
def cut_at_commit(owner_dsn: str, schema: str, table: str = "outbox") -> Iterator[None]:
    """Within it every transaction that added a row to the table loses its connection when it commits."""
    names = {"schema": sql.Identifier(schema), "table": sql.Identifier(table)}
    with psycopg.connect(owner_dsn, autocommit=True) as owner:
        owner.execute(sql.SQL(BEGIN).format(**names))
        try:
            yield
        finally:
            owner.execute(sql.SQL("DROP FUNCTION {schema}.cut_here CASCADE").format(**names))
