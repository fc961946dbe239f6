"""Enrolment that was cut before the certificate: the same request again gives the same device its certificate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from contracts.tables import ROLE_SINK
from infra.ca import DevelopmentCa
from infra.enrol import Enrolment, enrol
from tests.fix_cut import cut_at_commit


def test_enrolment_cut_at_its_commit_leaves_nothing(
    role_dsn: Callable[[str], str], schema: str, schema_dsn: str
) -> None:
    asked = [Enrolment("van-8", "north", "Van 8", "car")]
    cut = cut_at_commit(schema_dsn, schema)
    with cut, pytest.raises(psycopg.OperationalError), psycopg.connect(role_dsn(ROLE_SINK)) as connection:
        enrol(connection, asked)
    counts = "SELECT count(*), (SELECT count(*) FROM bindings), (SELECT count(*) FROM outbox) FROM devices"
    with psycopg.connect(role_dsn(ROLE_SINK)) as connection:
        assert connection.execute(counts).fetchone() == (0, 0, 0)
        enrol(connection, asked)
        row = connection.execute(counts).fetchone()
        assert row is not None and row[:2] == (1, 1) and row[2] > 0


def test_enrolment_cut_before_the_certificate_is_repeated(role_dsn: Callable[[str], str], tmp_path: Path) -> None:
    asked = [Enrolment("van-7", "north", "Van 7", "car")]
    with psycopg.connect(role_dsn(ROLE_SINK)) as connection:
        first = enrol(connection, asked)
    # cut here: the device is in the registry, nobody has its key; its packets cannot come yet, so none is lost
    with psycopg.connect(role_dsn(ROLE_SINK)) as connection:
        assert enrol(connection, asked) == first
        counts = connection.execute("SELECT count(*), (SELECT count(*) FROM bindings) FROM devices").fetchone()
        told = connection.execute("SELECT count(DISTINCT kafka_value) FROM outbox WHERE topic = 'registry'").fetchone()
    assert (counts, told) == ((1, 1), (1,))
    authority = DevelopmentCa(tmp_path)
    made = authority.client("van-7")
    assert made.certificate.read_bytes() == authority.client("van-7").certificate.read_bytes()
