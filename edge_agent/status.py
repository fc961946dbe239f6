"""The heartbeat's content, put together from the spool's counters."""

from __future__ import annotations

from contracts.status import MAX_HELD, AgentStatus
from edge_agent import AGENT_VERSION
from edge_agent.spool import Spool
from edge_agent.uplink import Uplink
from edge_agent.waiting import Waiting


def agent_status(
    device: str, now_ms: int, spool: Spool, uplink: Uplink, waiting: Waiting, refused_readings: int
) -> AgentStatus:
    """``spooled`` counts all epochs, ``accepted`` this one, frees and drops what this run did."""
    counters, total, oldest_ms = spool.counters, spool.index.total, spool.oldest_accepted_ms()
    return AgentStatus(
        device=device,
        boot_epoch=spool.epoch.boot_epoch,
        nonce=spool.epoch.nonce,
        at_ms=now_ms,
        next_seq=spool.next_seq,
        accepted_samples=counters.accepted_samples,
        acked_packets=counters.acked_packets,
        rejected_packets=counters.rejected_packets,
        dropped_packets=counters.dropped_packets,
        dropped_samples=counters.dropped_samples,
        spooled_packets=total.packets,
        spooled_bytes=total.size_bytes,
        oldest_unacked_ms=max(0, now_ms - oldest_ms) if oldest_ms else 0,
        refused_publishes=uplink.refused_publishes,
        written_bytes=spool.written_bytes,
        agent_version=AGENT_VERSION,
        not_accepted_samples=spool.not_accepted_samples + waiting.lost_samples,
        refused_readings=refused_readings,
        strange_messages=uplink.strange_messages,
        held=spool.held(MAX_HELD),
    )
