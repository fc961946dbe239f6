"""The run loop of workers that work alone on the store (``queries.alone``): open, round after round, start again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import ClassVar, Final, Protocol

from api.errors import KafkaUnavailable, StoreUnavailable

STAND_BY_S: Final = 2.0
"""How soon a worker that stands by looks whether the other one is gone."""

MAX_BACKOFF_S: Final = 10.0
log = logging.getLogger(__name__)


class Opened(Protocol):
    """A store with one holder at a time."""

    name: ClassVar[str]

    async def open(self) -> bool: ...
    async def close(self) -> None: ...


async def work_alone(store: Opened, work: Callable[[], Awaitable[bool]], pause_s: float) -> None:
    """Work for ever; ends by cancellation only. ``work`` does one round and says whether more may wait."""
    backoff_s = pause_s
    try:
        while True:
            wait_s = STAND_BY_S
            try:
                if await store.open():
                    log.info("event=%s_works", store.name)
                    while True:
                        if not await work():
                            await asyncio.sleep(pause_s)
                        backoff_s = pause_s
            except (StoreUnavailable, KafkaUnavailable) as error:
                wait_s, backoff_s = backoff_s, min(backoff_s * 2, MAX_BACKOFF_S)
                log.warning("event=%s_waits reason=%s retry_s=%.1f", store.name, error, wait_s)
            await asyncio.sleep(wait_s)
    finally:
        await store.close()
