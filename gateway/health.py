"""``/livez``, ``/readyz`` and ``/metrics`` on a loopback port, served by a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

Reasons = Callable[[], list[str]]
"""What is wrong now; empty when all is well."""


class HealthServer:
    """Answers 200, or 503 with one reason per line."""

    def __init__(self, host: str, port: int, alive: Reasons, ready: Reasons, metrics: CollectorRegistry) -> None:
        pages: dict[str, Callable[[], tuple[int, str, bytes]]] = {
            "/livez": lambda: _verdict(alive()),
            "/readyz": lambda: _verdict(ready()),
            "/metrics": lambda: (200, CONTENT_TYPE_LATEST, generate_latest(metrics)),
        }
        self._server = ThreadingHTTPServer((host, port), _handler(pages))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _verdict(reasons: list[str]) -> tuple[int, str, bytes]:
    return (503 if reasons else 200), "text/plain; charset=utf-8", ("\n".join(reasons) or "ok").encode() + b"\n"


def _handler(pages: dict[str, Callable[[], tuple[int, str, bytes]]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Three pages, nothing else."""

        timeout = 5.0

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            status, kind, body = page() if page else (404, "text/plain; charset=utf-8", b"no such page\n")
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Probes are not worth a log line each."""

    return Handler
