"""Enrolment that was cut before the certificate: the same request again gives the same device its certificate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg

from contracts.tables import ROLE_SINK
from infra.ca import DevelopmentCa
from infra.enrol import Enrolment, enrol


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
