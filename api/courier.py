"""The courier sends messages about alerts: by webhook, by mail, and as commands down to the machine.

What is to be sent are rows, written in the transaction of the step that they tell of. A row is marked after its
message was taken, so a kill in between repeats it and never loses it: receivers know a repeat by its delivery number.
What fails is tried again with growing pauses and is dead after ``ATTEMPTS``, which an alarm counter shows.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from anomaly.alerts.waiting import ATTEMPTS, QuietHours, may_disturb_at, pause_ms
from api.carriers import NotDelivered
from api.metrics import Metrics
from api.notices import Notice, as_arguments, as_json, as_mail
from api.queries import courier as sql
from api.queries.courier import CourierStore, DueDelivery, command_request
from api.rounds import work_alone
from contracts.finding import Severity

EACH: Final = 4
"""Messages of one channel in one round."""

LIMIT: Final = 64
AT_ONCE: Final = 8
"""Channels that are served at once."""

LONGEST_REST_MS: Final = 60_000
"""How long at most a channel rests after a failure: one message that is refused holds up no other for long."""

CARE_EVERY_S: Final = 30.0
KEEP_MS: Final = 90 * 86_400_000
"""How long deliveries that ended are kept; the alert's own history stays."""

ALARM_MS: Final = 86_400_000
COMMAND_LIFE: Final = timedelta(hours=24)
log = logging.getLogger(__name__)


class Webhooks(Protocol):
    """Posts a signed body (``carriers.WebhookCarrier``)."""

    async def send(self, address: str, secret: str, body: bytes, delivery_id: int) -> None: ...
    async def close(self) -> None: ...


class Mails(Protocol):
    """Hands in a mail (``carriers.MailCarrier``)."""

    async def send(self, mail: EmailMessage) -> None: ...


@dataclass
class Courier:
    """Runs until cancelled; every fault is retried, since every message is a row."""

    store: CourierStore
    webhooks: Webhooks
    mails: Mails | None
    sender: str
    now_ms: Callable[[], int]
    elapsed_s: Callable[[], float]
    metrics: Metrics
    poll_s: float = 0.5
    _next_care_s: float = 0.0

    async def run(self) -> None:
        try:
            await work_alone(self.store, self.round, self.poll_s)
        finally:
            await self.webhooks.close()

    async def round(self) -> bool:
        """Send what is due, each channel in its order; True when more may wait."""
        due = await self.store.due(self.now_ms(), EACH, LIMIT)
        channels: dict[str, list[DueDelivery]] = defaultdict(list)
        for one in due:
            channels[one.channel_id].append(one)
        gate = asyncio.Semaphore(AT_ONCE)
        results = await asyncio.gather(
            *(self._serve(channel, gate) for channel in channels.values()), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        if self.elapsed_s() >= self._next_care_s:
            self._next_care_s = self.elapsed_s() + CARE_EVERY_S
            await self._care()
        return any(results)

    async def _serve(self, channel: Sequence[DueDelivery], gate: asyncio.Semaphore) -> bool:
        """One channel's messages in order; the first that fails ends its turn. True when any was settled."""
        settled = False
        async with gate:
            for due in sorted(channel, key=lambda one: one.delivery_id):
                now_ms = self.now_ms()
                again_ms = may_disturb_at(now_ms, Severity(due.severity), quiet_hours(due))
                if again_ms > now_ms:
                    await self.store.write(sql.POSTPONED, {"id": due.delivery_id, "again": again_ms})
                    continue
                if not await self._attempt(due, now_ms):
                    break
                settled = True
        return settled

    async def _attempt(self, due: DueDelivery, now_ms: int) -> bool:
        try:
            await self._send(due, now_ms)
        except NotDelivered as error:
            attempts, dead = due.attempts + 1, due.attempts + 1 >= ATTEMPTS
            values = {
                "id": due.delivery_id, "now": now_ms, "again": now_ms + pause_ms(attempts), "dead": dead,
                "error": str(error)[:200],
            }  # fmt: skip
            await self.store.write(sql.FAILED, values)
            rest_ms = now_ms + min(pause_ms(attempts), LONGEST_REST_MS)
            await self.store.write(sql.REST, {"channel": due.channel_id, "rest": rest_ms})
            self.metrics.deliveries.labels(due.channel_kind, "dead" if dead else "failed").inc()
            log.log(
                logging.ERROR if dead else logging.WARNING,
                "event=alert_not_delivered delivery=%d kind=%s attempts=%d dead=%s reason=%s",
                due.delivery_id, due.channel_kind, attempts, dead, str(error).replace(" ", "_"),
            )  # fmt: skip
            return False
        self.metrics.deliveries.labels(due.channel_kind, "sent").inc()
        return True

    async def _send(self, due: DueDelivery, now_ms: int) -> None:
        """Send and mark. Raises NotDelivered."""
        notice, sent = notice_of(due), {"id": due.delivery_id, "now": now_ms}
        if due.channel_kind == "device":
            expires_at = datetime.fromtimestamp(now_ms / 1000, UTC) + COMMAND_LIFE
            request = command_request(due, as_arguments(notice), secrets.randbits(62) + 1, expires_at)
            said = await self.store.hand_over(request, sent)
            if said not in ("created", "repeated"):
                raise NotDelivered(f"the command was refused: {said}")
            return
        if due.channel_kind == "email":
            if self.mails is None:
                raise NotDelivered("no mail server is set")
            await self.mails.send(as_mail(notice, self.sender, due.target))
        else:
            await self.webhooks.send(due.target, due.secret or "", as_json(notice), due.delivery_id)
        await self.store.write(sql.SENT, sent)

    async def _care(self) -> None:
        now_ms = self.now_ms()
        await self.store.write(sql.PRUNE, {"before": now_ms - KEEP_MS})
        waiting, dead = await self.store.backlog(now_ms - ALARM_MS)
        self.metrics.deliveries_waiting.set(waiting)
        self.metrics.deliveries_dead.set(dead)


def quiet_hours(due: DueDelivery) -> QuietHours | None:
    """None: this channel has none."""
    if due.quiet_begin is None or due.quiet_end is None:
        return None
    try:
        zone = ZoneInfo(due.zone)
    except (KeyError, ValueError, OSError):  # this machine does not know it (any more): better at odd hours than never
        zone = ZoneInfo("UTC")
    return QuietHours(due.quiet_begin, due.quiet_end, zone, Severity(due.quiet_through))


def notice_of(due: DueDelivery) -> Notice:
    """What may be told of it: neither secret nor target."""
    return Notice(**{field.name: getattr(due, field.name) for field in fields(Notice)})
