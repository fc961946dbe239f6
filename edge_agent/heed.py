"""What an agent does when it hears that an epoch it used is another run's."""

from __future__ import annotations

import logging

from contracts.errors import Rejected
from contracts.identity import decode_notice
from edge_agent.commands import CommandDesk
from edge_agent.spool import Spool
from edge_agent.spool_move import disown
from edge_agent.uplink import Uplink

log = logging.getLogger(__name__)


def heed(payload: bytes, spool: Spool, uplink: Uplink, desk: CommandDesk, device: str, now_ms: int) -> None:
    """Go on under a new epoch, which is told upstream; a message that cannot be read is counted."""
    before = spool.epoch.boot_epoch
    try:
        notice = decode_notice(payload)
        if not disown(spool, notice):
            return
    except Rejected:
        uplink.strange_messages += 1
        return
    uplink.disown(notice.boot_epoch)
    now = spool.epoch.boot_epoch
    log.warning("event=identity_changed device=%s epoch=%d from=%d to=%d", device, notice.boot_epoch, before, now)
    desk.tell_identity(notice, now, now_ms)
