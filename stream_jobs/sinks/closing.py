"""SQL of the closer: close windows, say them, keep roll-ups and finality up to date. Each is one statement.

A publication is numbered, so what was said is never replaced: ``window_publications`` keeps every number, and the
outbox message carries it beside the revision. How often a window was said depends on when the closer looked; what it
said last depends on the log alone.

Locked rows are left for the next round, so the closer never waits for an ingest task.
"""

from __future__ import annotations

from typing import Final, LiteralString

from contracts.limits import ROLLUP_WIDTHS_S, WINDOW_WIDTHS_S

ROLLUP_SOURCES: Final = dict(zip(ROLLUP_WIDTHS_S, (WINDOW_WIDTHS_S[-1], *ROLLUP_WIDTHS_S), strict=False))
"""Width of a roll-up to the width of the windows it is made of."""

_SAY: LiteralString = """, said AS (
    INSERT INTO window_publications (device_key, signal, width_s, starts_at, publication, revision, tenant_id, n,
        sum_units, sumsq_units, min_units, max_units, last_units)
    SELECT device_key, signal, width_s, starts_at, publications, published_revision, tenant_id, n, sum_units,
        sumsq_units, min_units, max_units, last_units FROM closed
), next_due AS (
    INSERT INTO rollup_due (width_s, starts_at, device_key, signal, tenant_id)
    SELECT DISTINCT %(wider)s, date_bin(%(wider)s * interval '1 s', starts_at, 'epoch'::timestamptz), device_key,
        signal, tenant_id FROM closed WHERE %(wider)s > 0 ORDER BY 2, 3, 4 ON CONFLICT DO NOTHING
), told AS (
    INSERT INTO outbox (tenant_id, topic, kafka_key, kafka_value)
    SELECT c.tenant_id, 'windows', d.device, convert_to(json_build_object(
        'device', d.device, 'signal', s.path, 'width_s', c.width_s,
        'starts_at', to_char(c.starts_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
        'n', c.n, 'min', scaled(c.min_units, s.exponent), 'max', scaled(c.max_units, s.exponent),
        'mean', scaled(c.sum_units, s.exponent) / c.n, 'last', scaled(c.last_units, s.exponent),
        'revision', c.published_revision, 'publication', c.publications,
        'final', d.kind <> 'recording' AND coalesce(c.starts_at + (c.width_s + s.lateness_s) * interval '1 s'
            <= (SELECT final_before FROM finality), false))::text, 'UTF8')
    FROM closed c JOIN signals s ON s.signal = c.signal JOIN devices d ON d.device_key = c.device_key
    ORDER BY c.starts_at, c.device_key, c.signal
)"""

CLOSE: Final[LiteralString] = (
    """
WITH due AS (
    SELECT w.device_key, w.signal, w.width_s, w.starts_at
    FROM window_aggregates w JOIN signals s ON s.signal = w.signal
    WHERE w.state <> 1 AND w.width_s = %(width)s AND w.starts_at <= at_ms(%(latest_start)s)
        AND w.starts_at + (w.width_s + s.grace_s) * interval '1 s' <= at_ms(%(watermark)s)
    ORDER BY w.starts_at LIMIT %(rows)s FOR UPDATE OF w SKIP LOCKED
), closed AS (
    UPDATE window_aggregates w SET state = 1, published_revision = cardinality(w.late_minutes),
        publications = w.publications + 1
    FROM due
    WHERE (w.device_key, w.signal, w.width_s, w.starts_at)
        = (due.device_key, due.signal, due.width_s, due.starts_at)
    RETURNING w.*
)"""
    + _SAY
    + """
SELECT count(*) FROM closed"""
)
"""Close and publish windows that packets merge into. One that packets changed without being late (they came through
the backlog topic) is said again under the same revision and the next publication."""

ROLL_UP: Final[LiteralString] = (
    """
WITH due AS (
    SELECT r.width_s, r.starts_at, r.device_key, r.signal, (s.grace_s / 60 + 1) * 60 AS wait_s
    FROM rollup_due r JOIN signals s ON s.signal = r.signal
    WHERE r.width_s = %(width)s AND r.starts_at <= at_ms(%(latest_start)s)
        AND r.starts_at + (r.width_s + (s.grace_s / 60 + 1) * 60) * interval '1 s' <= at_ms(%(watermark)s)
    ORDER BY r.starts_at, r.device_key, r.signal LIMIT %(rows)s FOR UPDATE OF r SKIP LOCKED
), taken AS (
    DELETE FROM rollup_due r USING due
    WHERE (r.width_s, r.starts_at, r.device_key, r.signal)
        = (due.width_s, due.starts_at, due.device_key, due.signal)
    RETURNING 1
), made AS (
    SELECT due.*, m.*, (
        SELECT coalesce(array_agg(DISTINCT late.m ORDER BY late.m), '{}')
        FROM window_aggregates w CROSS JOIN LATERAL unnest(w.late_minutes) AS late (m)
        WHERE w.device_key = due.device_key AND w.signal = due.signal AND w.width_s = %(source)s
            AND w.starts_at >= due.starts_at AND w.starts_at < due.starts_at + due.width_s * interval '1 s'
            AND late.m * 60::bigint >= extract(epoch FROM due.starts_at) + due.width_s + due.wait_s) AS late
    FROM due CROSS JOIN LATERAL (
        SELECT min(w.tenant_id) AS tenant_id, sum(w.n)::bigint AS n, sum(w.sum_units) AS sum_units,
            sum(w.sumsq_units) AS sumsq_units, min(w.min_units) AS min_units, max(w.max_units) AS max_units,
            min(ARRAY[w.first_ms, w.first_epoch, w.first_seq, w.first_pos, w.first_units]) AS f,
            max(ARRAY[w.last_ms, w.last_epoch, w.last_seq, w.last_pos, w.last_units]) AS l
        FROM window_aggregates w
        WHERE w.device_key = due.device_key AND w.signal = due.signal AND w.width_s = %(source)s
            AND w.starts_at >= due.starts_at AND w.starts_at < due.starts_at + due.width_s * interval '1 s'
    ) AS m WHERE m.n > 0
), closed AS (
    INSERT INTO window_aggregates AS w (device_key, signal, width_s, starts_at, tenant_id, state, n, sum_units,
        sumsq_units, min_units, max_units, first_ms, first_epoch, first_seq, first_pos, first_units, last_ms,
        last_epoch, last_seq, last_pos, last_units, late_minutes, published_revision, publications)
    SELECT device_key, signal, width_s, starts_at, tenant_id, 1, n, sum_units, sumsq_units, min_units, max_units,
        f[1], f[2], f[3], f[4], f[5], l[1], l[2], l[3], l[4], l[5], late, cardinality(late), 1
    FROM made ORDER BY device_key, signal, width_s, starts_at
    ON CONFLICT (device_key, signal, width_s, starts_at) DO UPDATE SET n = excluded.n,
        sum_units = excluded.sum_units, sumsq_units = excluded.sumsq_units, min_units = excluded.min_units,
        max_units = excluded.max_units, first_ms = excluded.first_ms, first_epoch = excluded.first_epoch,
        first_seq = excluded.first_seq, first_pos = excluded.first_pos, first_units = excluded.first_units,
        last_ms = excluded.last_ms, last_epoch = excluded.last_epoch, last_seq = excluded.last_seq,
        last_pos = excluded.last_pos, last_units = excluded.last_units, late_minutes = excluded.late_minutes,
        published_revision = excluded.published_revision, publications = w.publications + 1
    WHERE (w.n, w.sum_units, w.sumsq_units, w.min_units, w.max_units, w.first_units, w.last_units, w.late_minutes)
        IS DISTINCT FROM (excluded.n, excluded.sum_units, excluded.sumsq_units, excluded.min_units, excluded.max_units,
            excluded.first_units, excluded.last_units, excluded.late_minutes)
    RETURNING w.*
)"""
    + _SAY
    + """
SELECT count(*) FROM taken"""
)
"""Make roll-ups whose parts were published since, from those parts, and publish the ones that changed.

A roll-up waits to the full minute after its grace, because its parts know receive times by the minute: a part's late
minute is late for the roll-up when it lies wholly after that moment. So ``revision`` follows from the log here too."""

HOLD: Final = "SELECT pg_advisory_xact_lock(%s, 'finality'::regclass::oid::integer)"

MOVE_FINALITY: Final = """
INSERT INTO finality AS f (final_before) SELECT at_ms(%(before)s)
WHERE NOT EXISTS (SELECT FROM window_aggregates w WHERE w.state <> 1
        AND w.starts_at < at_ms(%(before)s) AND w.starts_at + w.width_s * interval '1 s' <= at_ms(%(before)s))
    AND NOT EXISTS (SELECT FROM rollup_due r WHERE r.starts_at < at_ms(%(before)s)
        AND r.starts_at + r.width_s * interval '1 s' <= at_ms(%(before)s))
ON CONFLICT (one) DO UPDATE SET final_before = excluded.final_before WHERE f.final_before < excluded.final_before"""
"""Only when nothing older waits to be published: a final row has been said as it stays."""
