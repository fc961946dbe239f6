"""The only place that knows the concrete parts: settings in, a running server or relay out.

run_server(with_relay=True)      until SIGTERM or SIGINT
run_relay()
new_key()                        a key to be written to ``api_keys`` (``text`` is shown once)
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from types import FrameType
from typing import Protocol

import uvicorn
from fastapi import FastAPI

from api.answers import AnswerConsumer
from api.app import create_app
from api.auth import Doorman
from api.carriers import MailCarrier, MailServer, WebhookCarrier
from api.clerk import Clerk
from api.courier import Courier
from api.errors import SettingsError
from api.evidence_signer import read_signer
from api.kafka import KafkaPublisher
from api.keys import NewKey, new_key
from api.limits import Buckets, Seats
from api.live import Hub
from api.metrics import Metrics
from api.projection import LatestProjection
from api.queries.clerk import ClerkStore
from api.queries.courier import CourierStore
from api.queries.latest import LatestTable
from api.queries.outbox import Outbox
from api.queries.pool import Store
from api.queries.warden import WardenStore
from api.relay import Clock, Relay, RelayPace
from api.services import Services, StoreKeys, StoreWatcher
from api.settings import ApiSettings, load_settings
from api.warden import Warden
from contracts.topics import Topics

__all__ = ["NewKey", "build_app", "build_relay", "build_server", "new_key", "run_relay", "run_server"]

RELAY_SILENT_S = 30.0
"""Six beats: a relay silent for longer counts as not working."""
DRAIN_S = 5
log = logging.getLogger(__name__)
FAILURES_PER_S, FAILURES_BURST = 2.0, 20
"""Wrong keys per address: guessing 256 bits is hopeless, asking the store for each guess must be slow too."""


def build_services(settings: ApiSettings, metrics: Metrics, relay_works: Callable[[], bool]) -> Services:
    store = Store(
        settings.dsn.get_secret_value(), settings.pool_size, settings.pool_timeout_s, settings.statement_timeout_ms
    )
    doorman = Doorman(
        find=StoreKeys(store),
        requests=Buckets(settings.rate_per_s, settings.rate_burst, time.monotonic),
        failures=Buckets(FAILURES_PER_S, FAILURES_BURST, time.monotonic, what="failures"),
        clock_s=time.monotonic,
        now=_now,
        remember_s=settings.key_cache_s,
    )
    hub = Hub(StoreWatcher(store), metrics, settings.stream_poll_ms / 1000, settings.stream_pending, time.monotonic)
    return Services(
        settings,
        store,
        doorman,
        Seats(settings.streams_per_key),
        Seats(settings.exports_per_key, "exports"),
        hub,
        metrics,
        _now,
        time.monotonic,
        relay_works,
        read_signer(settings.edr_key, settings.edr_chain),
    )


def build_relay(settings: ApiSettings, metrics: Metrics) -> Relay:
    """Raises SettingsError when no ``relay_dsn`` is set."""
    if settings.relay_dsn is None:
        raise SettingsError("the relay needs a connection; set FLEETSTREAM__API__RELAY_DSN (role fleetstream_sink)")
    pace = RelayPace(settings.relay_poll_ms / 1000, settings.relay_batch, settings.relay_beat_s, settings.outbox_keep_h)
    clock = Clock(lambda: time.time_ns() // 1_000_000, time.monotonic)
    outbox = Outbox(settings.relay_dsn.get_secret_value())
    return Relay(outbox, KafkaPublisher(settings.kafka_bootstrap), Topics(settings.topic_prefix), clock, metrics, pace)


def build_clerk(settings: ApiSettings, metrics: Metrics) -> Clerk:
    """Raises SettingsError when no ``relay_dsn`` is set: the clerk works where the relay does."""
    if settings.relay_dsn is None:
        raise SettingsError("the clerk needs a connection; set FLEETSTREAM__API__RELAY_DSN (role fleetstream_sink)")
    topics, dsn = Topics(settings.topic_prefix), settings.relay_dsn.get_secret_value()
    answers = AnswerConsumer(settings.kafka_bootstrap, topics.answers.name, f"{settings.topic_prefix}.clerk")
    latest = LatestProjection(
        LatestTable(dsn), KafkaPublisher(settings.kafka_bootstrap), topics.latest.name, settings.latest_every_s,
        time.monotonic, metrics,
    )  # fmt: skip
    return Clerk(
        ClerkStore(dsn), answers, _now_ms, time.monotonic, metrics, (latest,), asks_for_gaps=settings.asks_for_gaps
    )


def build_warden(settings: ApiSettings, metrics: Metrics) -> Warden:
    """Raises SettingsError when no ``relay_dsn`` is set: the warden works where the relay does."""
    if settings.relay_dsn is None:
        raise SettingsError("the warden needs a connection; set FLEETSTREAM__API__RELAY_DSN (role fleetstream_sink)")
    return Warden(WardenStore(settings.relay_dsn.get_secret_value()), _now_ms, metrics)


def build_courier(settings: ApiSettings, metrics: Metrics) -> Courier:
    """Raises SettingsError when no ``relay_dsn`` is set: the courier works where the relay does."""
    if settings.relay_dsn is None:
        raise SettingsError("the courier needs a connection; set FLEETSTREAM__API__RELAY_DSN (role fleetstream_sink)")
    mails = None
    if settings.mail_host is not None:
        password = settings.mail_password.get_secret_value()
        mails = MailCarrier(
            MailServer(
                settings.mail_host, settings.mail_port, settings.mail_from, settings.mail_security, settings.mail_user,
                password,
            )
        )  # fmt: skip
    webhooks = WebhookCarrier(lambda: time.time_ns() // 1_000_000_000, settings.webhook_private)
    store = CourierStore(settings.relay_dsn.get_secret_value())
    return Courier(store, webhooks, mails, settings.mail_from, _now_ms, time.monotonic, metrics)


def _beside_the_relay(settings: ApiSettings, metrics: Metrics) -> tuple[Worker, ...]:
    return build_clerk(settings, metrics), build_warden(settings, metrics), build_courier(settings, metrics)


def build_app(settings: ApiSettings, with_relay: bool = False) -> FastAPI:
    """The application, with the relay beside it when asked for and configured."""
    metrics = Metrics()
    if not with_relay or settings.relay_dsn is None:
        return create_app(build_services(settings, metrics, lambda: True))
    relay = build_relay(settings, metrics)
    services = build_services(settings, metrics, lambda: relay.working(RELAY_SILENT_S))
    return create_app(services, _beside(relay, *_beside_the_relay(settings, metrics)))


class Worker(Protocol):
    """What runs beside the server until it is cancelled."""

    async def run(self) -> None: ...


class Server(uvicorn.Server):
    """Ends live streams when told to stop; uvicorn would wait for them until its deadline."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM is how we are told to stop: unlike uvicorn's own, the process then ends with 0, not by the signal."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._end_streams()
        super().handle_exit(sig, frame)

    def stop(self) -> None:
        """What a signal does, from any thread."""
        self._end_streams()
        self.should_exit = True

    def _end_streams(self) -> None:
        app = self.config.app
        if isinstance(app, FastAPI):
            app.state.services.hub.close()


def build_server(settings: ApiSettings, app: FastAPI) -> Server:
    config = uvicorn.Config(
        app, settings.host, settings.port, log_config=None, access_log=False, server_header=False, date_header=True,
        timeout_graceful_shutdown=DRAIN_S, limit_concurrency=1_000, proxy_headers=False,
    )  # fmt: skip
    return Server(config)


def run_server(with_relay: bool) -> None:
    """Serve until SIGTERM or SIGINT."""
    settings = load_settings()
    build_server(settings, build_app(settings, with_relay)).run()


def run_relay() -> None:
    """Relay, send commands, make alerts and tell of them, until SIGTERM or SIGINT."""
    settings, metrics = load_settings(), Metrics()
    asyncio.run(_until_told(build_relay(settings, metrics), *_beside_the_relay(settings, metrics)))


async def _until_told(*workers: Worker) -> None:
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: [task.cancel() for task in tasks])
    await asyncio.gather(*tasks, return_exceptions=True)


def _beside(*workers: Worker) -> Callable[[], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        tasks = [asyncio.create_task(worker.run(), name=type(worker).__name__.lower()) for worker in workers]
        for task in tasks:
            task.add_done_callback(_tell_end)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return running


def _tell_end(task: asyncio.Task[None]) -> None:
    """Relay, clerk, warden and courier retry every fault they know; another one is a defect (readiness
    tells the relay's too)."""
    if not task.cancelled():
        log.critical("event=%s_ended fix=restart_this_process", task.get_name(), exc_info=task.exception())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _now() -> datetime:
    return datetime.now(UTC)
