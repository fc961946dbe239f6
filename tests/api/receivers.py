"""Two real receivers of messages in threads of their own: an HTTP server and a small mail server (RFC 5321)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer

PATIENCE_S = 120.0


@dataclass
class Hook:
    """An HTTP receiver; ``status`` is what it answers next."""

    status: int = 200
    port: int = 0
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?a=1"


@contextmanager
def http_receiver() -> Iterator[Hook]:
    hook = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hook.requests.append(({**self.headers, "path": self.path}, body))
            self.send_response(hook.status)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Tests need no access log."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    hook.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hook
    finally:
        server.shutdown()
        thread.join(PATIENCE_S)
        server.server_close()


@dataclass
class Mailbox:
    """What came, and whom the server refuses."""

    port: int = 0
    mails: list[tuple[str, list[str], str]] = field(default_factory=list)
    refuses: bool = False


@contextmanager
def mail_receiver() -> Iterator[Mailbox]:
    """Understands EHLO, MAIL, RCPT, DATA, RSET and QUIT."""
    box, up = Mailbox(), threading.Event()
    stops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 box\r\n")
        sender, recipients = "", list[str]()
        while line := (await reader.readline()).decode().strip():
            word = line.upper()
            answer = "250 fine"
            if word.startswith("MAIL FROM:"):
                sender = line[10:].split()[0].strip("<>")
            elif word.startswith("RCPT TO:"):
                recipients.append(line[8:].strip("<>"))
                answer = "550 nobody here" if box.refuses else answer
            elif word == "DATA":
                writer.write(b"354 go on\r\n")
                data = (await reader.readuntil(b"\r\n.\r\n")).decode()
                box.mails.append((sender, recipients, data))
            elif word == "QUIT":
                answer = "221 bye"
            writer.write(f"{answer}\r\n".encode())
            await writer.drain()
            if word == "QUIT":
                break
        writer.close()
        await writer.wait_closed()

    async def serve() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        box.port = server.sockets[0].getsockname()[1]
        stop = asyncio.Event()
        stops.append((asyncio.get_running_loop(), stop))
        up.set()
        async with server:
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert up.wait(PATIENCE_S)
    try:
        yield box
    finally:
        loop, stop = stops[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE_S)
