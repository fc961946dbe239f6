"""TCP proxies of our own between two parts, on one asyncio loop in a thread: the network that can be broken.

A proxy passes bytes until told otherwise: one direction or both fall silent, the far side goes away without the near
one hearing of it, connections are cut in the middle of a packet, bytes come slowly, nobody is let in. With TLS
contexts it speaks TLS on both sides and an ear hears the plain bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CHUNK_BYTES = 64 * 1024
SLICE_BYTES = 512
LINGER_RESET = struct.pack("ii", 1, 0)
UP, DOWN = "up", "down"
"""Up: from who connected to whom he wanted; down: back."""
Ear = Callable[[int, str, bytes], None]
"""(number of the connection, direction, plain bytes passed on)"""

PATIENCE_S = 120.0


@dataclass(slots=True)
class Weather:
    """How a proxy behaves now."""

    silent: frozenset[str] = frozenset()
    """Directions that take bytes and deliver nothing for now."""
    closed: bool = False
    """New connections are reset."""
    tear: bool = False
    """The next bytes are cut in half, then the connection is reset."""
    bytes_per_s: float = 0.0
    """0: as fast as it goes."""


@dataclass(slots=True, eq=False)
class _Connection:
    near: asyncio.StreamWriter
    far: asyncio.StreamWriter
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class Proxy:
    """One listening port. Its methods may be called from any thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, far_port: int, near_tls: ssl.SSLContext | None = None,
        far_tls: ssl.SSLContext | None = None, ear: Ear | None = None,
    ) -> None:  # fmt: skip
        self._loop = loop
        self._far_port = far_port
        self._tls = near_tls, far_tls
        self._ear = ear
        self._weather = Weather()
        self._changed = asyncio.Event()
        self._connections: dict[int, _Connection] = {}
        self._accepted = 0
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def connections(self) -> int:
        """Open now."""
        return len(self._connections)

    def set(self, weather: Weather) -> None:
        """From now on."""
        self._loop.call_soon_threadsafe(self._set, weather)

    def cut(self) -> None:
        """Reset every connection on both sides."""
        self._loop.call_soon_threadsafe(self._cut)

    def lose_far_side(self) -> None:
        """Half-open: the far side is reset, the near side is told nothing and what it says goes nowhere."""
        self._loop.call_soon_threadsafe(self._lose_far_side)

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls[0])
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._set(Weather(closed=True))
        self._cut()
        if self._server is not None:
            self._server.close()

    def _set(self, weather: Weather) -> None:
        self._weather = weather
        self._changed.set()
        self._changed = asyncio.Event()

    def _cut(self) -> None:
        for connection in list(self._connections.values()):
            _reset(connection.near)
            _reset(connection.far)

    def _lose_far_side(self) -> None:
        for connection in self._connections.values():
            for task in connection.tasks:
                task.cancel()
            _reset(connection.far)

    async def _serve(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        if self._weather.closed:
            _reset(near)
            return
        try:
            host = "localhost" if self._tls[1] else None
            back, far = await asyncio.open_connection(
                "127.0.0.1", self._far_port, ssl=self._tls[1], server_hostname=host
            )
        except OSError:
            _reset(near)
            return
        number = self._accepted = self._accepted + 1
        connection = self._connections[number] = _Connection(near, far)
        connection.tasks = [
            asyncio.ensure_future(self._pump(number, UP, reader, far, connection)),
            asyncio.ensure_future(self._pump(number, DOWN, back, near, connection)),
        ]
        await asyncio.wait(connection.tasks)
        if any(task.cancelled() for task in connection.tasks):
            await self._hear_nothing(reader)
        del self._connections[number]
        _reset(near)
        _reset(far)

    async def _hear_nothing(self, reader: asyncio.StreamReader) -> None:
        """The near side of a half-open connection talks on until it gives up or is cut."""
        with contextlib.suppress(OSError):
            while await reader.read(CHUNK_BYTES):
                continue

    async def _pump(
        self, number: int, direction: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
        connection: _Connection,
    ) -> None:  # fmt: skip
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if self._ear is not None:
                    self._ear(number, direction, data)
                while direction in self._weather.silent:
                    await self._changed.wait()
                if self._weather.tear:
                    self._weather.tear = False
                    writer.write(data[: len(data) // 2])
                    await writer.drain()
                    break
                await self._pass_on(writer, data)
        _reset(connection.near)
        _reset(connection.far)

    async def _pass_on(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if not self._weather.bytes_per_s:
            writer.write(data)
            await writer.drain()
            return
        for at in range(0, len(data), SLICE_BYTES):
            piece = data[at : at + SLICE_BYTES]
            writer.write(piece)
            await writer.drain()
            if self._weather.bytes_per_s:
                await asyncio.sleep(len(piece) / self._weather.bytes_per_s)


class ProxyThread:
    """The loop of all proxies."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_quiet)
        self._proxies: list[Proxy] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()

    def proxy(self, far_port: int, **more: Any) -> Proxy:
        """An open proxy to a loopback port; more as ``Proxy`` takes it."""
        made = Proxy(self._loop, far_port, **more)
        asyncio.run_coroutine_threadsafe(made.open(), self._loop).result(PATIENCE_S)
        self._proxies.append(made)
        return made

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close_all(), self._loop).result(PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    async def _close_all(self) -> None:
        for proxy in self._proxies:
            await proxy.close()
        mine = asyncio.current_task()
        rest = [task for task in asyncio.all_tasks() if task is not mine]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)


def _reset(writer: asyncio.StreamWriter) -> None:
    """RST, not FIN: the other side learns of it as of a broken network."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
    writer.transport.abort()


def _quiet(_loop: asyncio.AbstractEventLoop, _context: dict[str, Any]) -> None:
    """A refused TLS handshake or a torn connection is this module's trade, not news."""
