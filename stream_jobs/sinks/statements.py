"""Every SQL statement of the ingest transaction, in the order in which it runs them.

Rows are locked in this order by every writer: ``ingest_offsets`` by (topic id, partition), ``seen_ranges`` by
(device, boot epoch), ``latest_values`` by (device, signal), ``window_aggregates`` by (device, signal, width, start).
The advisory lock of finality comes between the first two.
"""

from __future__ import annotations

from typing import Final, LiteralString

INSERT_OFFSETS: Final = """
INSERT INTO ingest_offsets (topic_id, kafka_partition, topic, next_offset)
SELECT i::uuid, p, t, 0 FROM unnest(%s, %s, %s) AS u (i, p, t) ORDER BY i, p ON CONFLICT DO NOTHING"""

LOCK_OFFSETS: Final = """
SELECT o.topic_id, o.kafka_partition, o.next_offset FROM ingest_offsets o
JOIN unnest(%s, %s) AS u (i, p) ON o.topic_id = u.i::uuid AND o.kafka_partition = u.p
ORDER BY o.topic_id, o.kafka_partition FOR UPDATE OF o"""

IDENTITIES: Final = """
SELECT d.device_key, d.device, d.tenant_id, t.name FROM devices d JOIN tenants t USING (tenant_id)
WHERE d.device_key = ANY(%s)"""

HOLD_FINALITY: Final = "SELECT pg_advisory_xact_lock_shared(%s, 'finality'::regclass::oid::integer)"
"""Until the end of the transaction nothing more becomes final. Read ``FINALITY`` in a statement of its own after it."""

FINALITY: Final = "SELECT (extract(epoch FROM final_before) * 1000)::bigint FROM finality"

INSERT_EPOCHS: Final = """
INSERT INTO seen_ranges (device_key, boot_epoch, nonce, tenant_id)
SELECT u.d, u.e, coalesce(o.nonce, u.n), u.t FROM unnest(%s, %s, %s, %s) AS u (d, e, n, t)
LEFT JOIN epoch_owners o ON o.device_key = u.d AND o.boot_epoch = u.e
ORDER BY u.d, u.e ON CONFLICT DO NOTHING"""

KEEP_OWNERS: Final = """
INSERT INTO epoch_owners (device_key, boot_epoch, nonce, tenant_id)
SELECT s.device_key, s.boot_epoch, s.nonce, s.tenant_id FROM unnest(%s, %s) AS u (d, e)
JOIN seen_ranges s ON s.device_key = u.d AND s.boot_epoch = u.e ORDER BY 1, 2 ON CONFLICT DO NOTHING"""

LOCK_EPOCHS: Final = """
SELECT s.device_key, s.boot_epoch, s.nonce FROM unnest(%s, %s) AS u (d, e)
JOIN seen_ranges s ON s.device_key = u.d AND s.boot_epoch = u.e
ORDER BY s.device_key, s.boot_epoch FOR UPDATE OF s"""

SEEN: Final = """
SELECT u.n - 1 FROM unnest(%s, %s, %s) WITH ORDINALITY AS u (d, e, q, n)
JOIN seen_ranges s ON s.device_key = u.d AND s.boot_epoch = u.e WHERE s.ranges @> u.q"""

UPDATE_EPOCHS: Final = """
UPDATE seen_ranges s SET ranges = s.ranges + u.r::int8multirange, packets = s.packets + u.p,
    samples = s.samples + u.m, duplicates = s.duplicates + u.k
FROM unnest(%s, %s, %s, %s, %s, %s) AS u (d, e, r, p, m, k) WHERE s.device_key = u.d AND s.boot_epoch = u.e"""

LATEST: Final = """
INSERT INTO latest_values AS l (device_key, signal, tenant_id, measured_ms, boot_epoch, seq, pos, val, quality,
    received_at)
SELECT * FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (device_key, signal) DO UPDATE SET measured_ms = excluded.measured_ms, boot_epoch = excluded.boot_epoch,
    seq = excluded.seq, pos = excluded.pos, val = excluded.val, quality = excluded.quality,
    received_at = excluded.received_at
WHERE (excluded.measured_ms, excluded.boot_epoch, excluded.seq, excluded.pos)
    > (l.measured_ms, l.boot_epoch, l.seq, l.pos)"""


def _edge(name: LiteralString, sign: LiteralString) -> LiteralString:
    """Take the other row's edge when it comes before (or after) ours."""
    key = "({0}.{1}_ms, {0}.{1}_epoch, {0}.{1}_seq, {0}.{1}_pos)"
    wins = key.format("excluded", name) + " " + sign + " " + key.format("w", name)
    return ", ".join(
        f"{name}_{column} = CASE WHEN {wins} THEN excluded.{name}_{column} ELSE w.{name}_{column} END"
        for column in ("units", "ms", "epoch", "seq", "pos")
    )


def _windows(late: bool) -> LiteralString:
    late_column: LiteralString = ", late_minutes" if late else ""
    late_value: LiteralString = ", late::integer[]" if late else ""
    late_parameter: LiteralString = ", %s" if late else ""
    late_alias: LiteralString = ", late" if late else ""
    late_update: LiteralString = (
        ", late_minutes = CASE WHEN excluded.late_minutes = '{}' THEN w.late_minutes ELSE "
        "(SELECT array_agg(DISTINCT m ORDER BY m) FROM unnest(w.late_minutes || excluded.late_minutes) AS m) END"
        if late
        else ""
    )
    return f"""
INSERT INTO window_aggregates AS w (device_key, signal, width_s, starts_at, tenant_id, n, sum_units, sumsq_units,
    min_units, max_units, first_units, first_ms, first_epoch, first_seq, first_pos,
    last_units, last_ms, last_epoch, last_seq, last_pos{late_column})
SELECT d, s, w, t, o, n, CASE th WHEN 0 THEN tl::numeric ELSE th::numeric * 4611686018427387904 + tl END,
    CASE qh WHEN 0 THEN ql::numeric ELSE qh::numeric * 4611686018427387904 + ql END,
    lo, hi, f1, f2, f3, f4, f5, l1, l2, l3, l4, l5{late_value}
FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s{late_parameter})
    AS u (d, s, w, t, o, n, th, tl, qh, ql, lo, hi, f1, f2, f3, f4, f5, l1, l2, l3, l4, l5{late_alias})
ON CONFLICT (device_key, signal, width_s, starts_at) DO UPDATE SET n = w.n + excluded.n,
    sum_units = w.sum_units + excluded.sum_units, sumsq_units = w.sumsq_units + excluded.sumsq_units,
    min_units = least(w.min_units, excluded.min_units), max_units = greatest(w.max_units, excluded.max_units),
    {_edge("first", "<")}, {_edge("last", ">")},
    state = CASE w.state WHEN 1 THEN 2 ELSE w.state END{late_update}"""


WINDOWS: Final = _windows(late=False)
WINDOWS_LATE: Final = _windows(late=True)

GAPS: Final = """
INSERT INTO agent_gaps AS g (device_key, boot_epoch, first_seq, last_seq, tenant_id, reason, retention, packets,
    samples, reported_seq, received_at)
SELECT DISTINCT ON (d, e, f, l) * FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
    AS u (d, e, f, l, t, r, c, p, m, q, a) ORDER BY d, e, f, l, q
ON CONFLICT (device_key, boot_epoch, first_seq, last_seq) DO UPDATE SET tenant_id = excluded.tenant_id,
    reason = excluded.reason, retention = excluded.retention, packets = excluded.packets,
    samples = excluded.samples, reported_seq = excluded.reported_seq, received_at = excluded.received_at
WHERE excluded.reported_seq < g.reported_seq"""

TOO_LATE: Final = """
WITH said AS (
    INSERT INTO too_late_readings AS r (device_key, signal, received_hour, tenant_id, samples, oldest_ms, newest_ms)
    SELECT * FROM unnest(%s, %s, %s, %s, %s, %s, %s) AS u (d, s, h, t, n, o, w) ORDER BY d, s, h
    ON CONFLICT (device_key, signal, received_hour) DO UPDATE SET samples = r.samples + excluded.samples,
        oldest_ms = least(r.oldest_ms, excluded.oldest_ms), newest_ms = greatest(r.newest_ms, excluded.newest_ms)
    RETURNING r.device_key, r.received_hour, r.tenant_id, r.samples, r.oldest_ms, xmax = 0 AS first
)
INSERT INTO outbox (tenant_id, topic, kafka_key, kafka_value)
SELECT min(said.tenant_id), 'events', d.device, convert_to(json_build_object('event', 'readings_too_late',
    'device', d.device, 'received_hour', to_char(said.received_hour AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
    'samples', sum(said.samples), 'oldest_ms', min(said.oldest_ms), 'set_aside_as', 'too_late')::text, 'UTF8')
FROM said JOIN devices d ON d.device_key = said.device_key
GROUP BY d.device, said.received_hour HAVING bool_or(said.first) ORDER BY d.device, said.received_hour"""
"""Counts by receive hour, the same on every replay; the first of an hour is told on the events topic."""

QUARANTINE: Final = """
INSERT INTO quarantined (topic_id, kafka_partition, kafka_offset, topic, tenant_id, device_key, boot_epoch, seq,
    reason, samples, detail, received_at, bytes)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"""

REFUSED: Final = """
INSERT INTO refused (topic_id, kafka_partition, kafka_offset, tenant_id, device, boot_epoch, seq, reason, detail,
    mqtt_topic, received_at, bytes)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"""

ACCOUNT: Final = """
INSERT INTO agent_status AS a (device_key, boot_epoch, nonce, tenant_id, next_seq, at_ms, received_at, account)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (device_key, boot_epoch) DO UPDATE SET nonce = excluded.nonce, tenant_id = excluded.tenant_id,
    next_seq = excluded.next_seq, at_ms = excluded.at_ms, received_at = excluded.received_at,
    account = excluded.account
WHERE (excluded.next_seq, excluded.received_at, excluded.at_ms) > (a.next_seq, a.received_at, a.at_ms)"""
"""The newest is who gave out the highest number, then who was received last: a device's clock may stand anywhere."""

ADVANCE: Final = """
UPDATE ingest_offsets o SET next_offset = greatest(o.next_offset, u.n),
    max_received_ms = greatest(o.max_received_ms, u.r), packets = o.packets + u.k,
    samples = o.samples + u.m, updated_at = now()
FROM unnest(%s, %s, %s, %s, %s, %s) AS u (i, p, n, r, k, m)
WHERE o.topic_id = u.i::uuid AND o.kafka_partition = u.p"""
