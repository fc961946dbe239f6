"""Enrol and revoke devices: tenant, asset, device, dated binding and registry message in one transaction.

The gateway learns of it through the outbox, the relay and the compacted registry topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from contracts.errors import Rejected
from contracts.names import check_device, check_name
from contracts.registry import ASSET_KINDS, KINDS, Registration, encode_registration

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Enrolment:
    """One device and what it measures. ``since`` dates the binding; None means from the beginning of time. ``place``:
    WGS 84 (latitude, longitude) in degrees of an asset that stands still."""

    device: str
    tenant: str
    asset: str
    asset_kind: str = "other"
    kind: str = "device"
    since: datetime | None = None
    place: tuple[float, float] | None = None


def enrol(connection: Connection, enrolments: Sequence[Enrolment]) -> tuple[Registration, ...]:
    """Enrol all or none. Raises Rejected when a name is not allowed or a device belongs to another tenant."""
    for one in enrolments:
        _check(one)
    with connection.transaction():
        return tuple(_enrol_one(connection, one) for one in enrolments)


def revoke(connection: Connection, device: str) -> None:
    """Take a device out of the registry; its data stays. Raises Rejected('unknown_device')."""
    with connection.transaction():
        found = connection.execute(
            "UPDATE devices SET revoked_at = now() WHERE device = %s RETURNING tenant_id, device_key", (device,)
        ).fetchone()
        if found is None:
            raise Rejected("unknown_device", device)
        _tell(connection, found[0], device, None)
        _write_book(connection, *_device_pages(found[1]))


def _check(one: Enrolment) -> None:
    check_device(one.device)
    check_name("tenant", one.tenant)
    if one.kind not in KINDS:
        raise Rejected("bad_kind", f"{one.kind!r} is none of {', '.join(KINDS)}")
    if one.asset_kind not in ASSET_KINDS:
        raise Rejected("bad_asset_kind", f"{one.asset_kind!r} is none of {', '.join(ASSET_KINDS)}")
    if not 1 <= len(one.asset) <= 200:
        raise Rejected("bad_name", "an asset's name has 1 to 200 characters")
    if one.place is not None and not (abs(one.place[0]) <= 90 and abs(one.place[1]) <= 180):
        raise Rejected("bad_place", "a latitude lies within 90 degrees, a longitude within 180; nothing was changed")


def _enrol_one(connection: Connection, one: Enrolment) -> Registration:
    tenant_id = _tenant(connection, one.tenant)
    asset_id = _key(
        connection,
        "INSERT INTO assets (tenant_id, name, kind, latitude, longitude) VALUES (%s, %s, %s, %s, %s)"
        " ON CONFLICT (tenant_id, name) DO UPDATE SET kind = EXCLUDED.kind,"
        " latitude = coalesce(EXCLUDED.latitude, assets.latitude),"
        " longitude = coalesce(EXCLUDED.longitude, assets.longitude) RETURNING asset_id",
        (tenant_id, one.asset, one.asset_kind, *(one.place or (None, None))),
    )
    device_key = _device(connection, one, tenant_id)
    _bind(connection, one, device_key, asset_id, tenant_id)
    registration = Registration(one.device, device_key, one.tenant, tenant_id, one.kind)
    _tell(connection, tenant_id, one.device, encode_registration(registration))
    _write_book(connection, ("tenants", tenant_id), ("assets", asset_id), *_device_pages(device_key))
    return registration


def _tenant(connection: Connection, name: str) -> int:
    found = connection.execute("SELECT tenant_id FROM tenants WHERE name = %s", (name,)).fetchone()
    if found is not None:
        return int(found[0])
    statement = "INSERT INTO tenants (name) VALUES (%s) ON CONFLICT (name) DO UPDATE SET name = EXCLUDED.name"
    return _key(connection, f"{statement} RETURNING tenant_id", (name,))


def _device(connection: Connection, one: Enrolment, tenant_id: int) -> int:
    found = connection.execute(
        "SELECT device_key, tenant_id FROM devices WHERE device = %s FOR UPDATE", (one.device,)
    ).fetchone()
    if found is None:
        statement = "INSERT INTO devices (device, tenant_id, kind) VALUES (%s, %s, %s) RETURNING device_key"
        return _key(connection, statement, (one.device, tenant_id, one.kind))
    if found[1] != tenant_id:
        raise Rejected("other_tenant", f"device {one.device} is enrolled for another tenant; nothing was changed")
    connection.execute("UPDATE devices SET revoked_at = NULL, kind = %s WHERE device_key = %s", (one.kind, found[0]))
    return int(found[0])


def _bind(connection: Connection, one: Enrolment, device_key: int, asset_id: int, tenant_id: int) -> None:
    """End the binding that holds at ``since`` and begin the new one, unless it is the same asset."""
    current = connection.execute(
        "SELECT asset_id, lower(valid) FROM bindings WHERE device_key = %s AND upper_inf(valid) FOR UPDATE",
        (device_key,),
    ).fetchone()
    if current is not None and current[0] == asset_id:
        return
    since = one.since
    if current is not None:
        if since is None or (current[1] is not None and since <= current[1]):
            raise Rejected("bad_since", f"device {one.device} has a newer binding; say from when the new one holds")
        connection.execute(
            "UPDATE bindings SET valid = tstzrange(lower(valid), %s) WHERE device_key = %s AND upper_inf(valid)",
            (since, device_key),
        )
    connection.execute(
        "INSERT INTO bindings (device_key, asset_id, tenant_id, valid) VALUES (%s, %s, %s, tstzrange(%s, NULL))",
        (device_key, asset_id, tenant_id, since),
    )


def _tell(connection: Connection, tenant_id: int, device: str, value: bytes | None) -> None:
    connection.execute(
        "INSERT INTO outbox (tenant_id, topic, kafka_key, kafka_value) VALUES (%s, 'registry', %s, %s)",
        (tenant_id, device, value),
    )


def _device_pages(device_key: int) -> tuple[tuple[str, int], tuple[str, int]]:
    return ("devices", device_key), ("bindings", device_key)


def _write_book(connection: Connection, *pages: tuple[str, int]) -> None:
    """What the store must be restored with, should it be lost (``contracts.book``)."""
    statement = (
        "INSERT INTO outbox (tenant_id, topic, kafka_key, kafka_value)"
        " SELECT tenant_id, 'book', kafka_key, kafka_value FROM registry_book WHERE page = %s AND id = %s"
    )
    with connection.cursor() as cursor:
        cursor.executemany(statement, pages)


def _key(connection: Connection, statement: str, values: tuple[object, ...]) -> int:
    row = connection.execute(statement.encode(), values).fetchone()
    if row is None:
        raise Rejected("not_written", "the store answered without a key; nothing was changed")
    return int(row[0])
