"""What an answer depends on, as one short text: equal texts, equal answers. Cheaper than the answer, never laxer.

Packets and blocks never change once they are stored, so the set of those that touch a range decides the answer. What
compaction moves from rows to blocks changes the text and not the answer: that costs a caller one more download.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from api.queries.pool import Connection

READINGS = """
WITH bound AS MATERIALIZED (SELECT device_key, valid FROM bindings WHERE asset_id = %(asset)s)
SELECT concat_ws('|',
    (SELECT string_agg(device_key || ' ' || valid::text, ',' ORDER BY device_key, valid) FROM bound),
    (SELECT concat_ws(',', count(*), sum(hash_record_extended((p.device_key, p.boot_epoch, p.seq), 0)::numeric))
     FROM packet_rows p WHERE p.device_key IN (SELECT device_key FROM bound)
        AND p.last_at >= at_ms(%(from_ms)s) AND p.first_at < at_ms(%(to_ms)s)),
    (SELECT concat_ws(',', count(*), sum(k.n), sum(hash_record_extended(
            (k.device_key, k.signal, k.boot_epoch, k.run_seq, k.base_ms, k.base_seq, k.n), 0)::numeric))
     FROM reading_blocks k WHERE k.device_key IN (SELECT device_key FROM bound) AND k.signal = ANY(%(signals)s)
        AND k.last_at >= at_ms(%(from_ms)s) AND k.first_at < at_ms(%(to_ms)s)),
    (SELECT concat_ws(',', count(*), sum(last_offset), max(written_at)) FROM archive_files
     WHERE received_day <= (at_ms(%(to_ms)s) AT TIME ZONE 'UTC')::date + 31)) AS text
"""
"""The archive's files join in as far as they may hold packets of the range: a packet comes at most 30 days late."""

WINDOWS = """
SELECT concat_ws('|', count(*), sum(hash_record_extended(
           (w.device_key, w.starts_at, w.n, w.sum_units, w.sumsq_units, w.min_units, w.max_units, w.last_units,
            w.state <> 0, cardinality(w.late_minutes)), 0)::numeric),
       count(*) FILTER (WHERE w.starts_at + (w.width_s + s.lateness_s) * interval '1 s'
            <= (SELECT f.final_before FROM finality f))) AS text
FROM bindings b
JOIN window_aggregates w ON w.device_key = b.device_key AND b.valid @> w.starts_at
JOIN signals s ON s.signal = w.signal
WHERE b.asset_id = %(asset)s AND w.signal = %(signal)s AND w.width_s = %(width_s)s
  AND w.starts_at >= %(from)s AND w.starts_at < %(to)s
"""


async def of_readings(connection: Connection, asset_id: int, signals: Sequence[int], from_ms: int, to_ms: int) -> str:
    """Of readings in [from, to)."""
    values = {"asset": asset_id, "signals": list(signals), "from_ms": from_ms, "to_ms": to_ms}
    row = await (await connection.execute(READINGS, values)).fetchone()
    return str(row["text"]) if row else ""


async def of_windows(
    connection: Connection, asset_id: int, signal: int, width_s: int, start: datetime, end: datetime
) -> str:
    """Of windows that start in [start, end)."""
    values = {"asset": asset_id, "signal": signal, "width_s": width_s, "from": start, "to": end}
    row = await (await connection.execute(WINDOWS, values)).fetchone()
    return str(row["text"]) if row else ""
