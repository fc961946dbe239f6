"""The proxies break what they are told to break, and the taps read PUBACKs off the wire."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from contracts.topics import up_topic
from tests.torture.fleet import wait_until
from tests.torture.proxy import DOWN, UP, Proxy, ProxyThread, Weather
from tests.torture.tap import Tap

WAIT_S = 10.0


class Echo:
    """A server that says everything back."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()
        self.open: list[socket.socket] = []

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.open.append(connection)
            threading.Thread(target=self._say_back, args=(connection,), daemon=True).start()

    @staticmethod
    def _say_back(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(4096):
                    connection.sendall(data)
            except OSError:
                return

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxies() -> Iterator[ProxyThread]:
    thread = ProxyThread()
    yield thread
    thread.close()


def connect(proxy: Proxy, timeout_s: float = WAIT_S) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=timeout_s)


def exactly(near: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size and (piece := near.recv(size - len(got))):
        got += piece
    return got


def test_calm_weather_passes_every_byte(echo: Echo, proxies: ProxyThread) -> None:
    proxy = proxies.proxy(echo.port)
    with connect(proxy) as near:
        for size in (1, 70_000):
            near.sendall(bytes(size))
            assert exactly(near, size) == bytes(size)
    assert wait_until(lambda: proxy.connections == 0, WAIT_S)


@pytest.mark.parametrize("direction", [UP, DOWN])
def test_a_silent_direction_keeps_bytes_until_it_speaks_again(echo: Echo, proxies: ProxyThread, direction: str) -> None:
    proxy = proxies.proxy(echo.port)
    with connect(proxy) as near:
        near.sendall(b"first")
        assert near.recv(5) == b"first"
        proxy.set(Weather(silent=frozenset({direction})))
        near.sendall(b"later")
        near.settimeout(0.3)
        with pytest.raises(TimeoutError):
            near.recv(5)
        proxy.set(Weather())
        near.settimeout(WAIT_S)
        assert near.recv(5) == b"later"


def test_a_cut_resets_and_a_closed_proxy_lets_nobody_in(echo: Echo, proxies: ProxyThread) -> None:
    proxy = proxies.proxy(echo.port)
    with connect(proxy) as near:
        near.sendall(b"x")
        assert near.recv(1) == b"x"
        proxy.set(Weather(closed=True))
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            near.recv(1)
    with connect(proxy) as late, pytest.raises(ConnectionResetError):
        late.sendall(b"x")
        late.recv(1)


def test_half_open_tells_the_near_side_nothing(echo: Echo, proxies: ProxyThread) -> None:
    proxy = proxies.proxy(echo.port)
    with connect(proxy) as near:
        near.sendall(b"x")
        assert near.recv(1) == b"x"
        proxy.lose_far_side()
        near.settimeout(0.3)
        near.sendall(b"is anybody there")
        with pytest.raises(TimeoutError):
            near.recv(1)
        proxy.cut()
        near.settimeout(WAIT_S)
        with pytest.raises(ConnectionResetError):
            near.recv(1)


def test_a_tear_delivers_half(echo: Echo, proxies: ProxyThread) -> None:
    proxy = proxies.proxy(echo.port)
    with connect(proxy) as near:
        near.sendall(b"x")
        assert near.recv(1) == b"x"
        proxy.set(Weather(tear=True))
        near.sendall(b"y" * 1_000)
        got = b""
        with pytest.raises(ConnectionResetError):
            while piece := near.recv(4_096):
                got += piece
            raise ConnectionResetError
        assert len(got) <= 500


def publish(packet_id: int, device: str, channel: str, payload: bytes) -> bytes:
    topic = up_topic(device, channel).encode()
    body = len(topic).to_bytes(2, "big") + topic + packet_id.to_bytes(2, "big") + b"\0" + payload
    return bytes([0x32, len(body)]) + body


def puback(packet_id: int) -> bytes:
    return b"\x40\x02" + packet_id.to_bytes(2, "big")


def test_a_tap_reads_order_across_pieces_and_connections() -> None:
    tap = Tap()
    stream = publish(1, "car", "live", b"one") + publish(2, "car", "status", b"{}") + publish(3, "van", "live", b"two")
    for at in range(len(stream)):
        tap(1, DOWN, stream[at : at + 1])
    tap(2, DOWN, publish(1, "van", "live", b"other connection"))
    tap(1, UP, puback(1) + puback(2)[:2])
    tap(1, UP, puback(2)[2:] + puback(3))
    assert tap.out_of_order == [] and tap.pubacks == 3
    assert {device for device, _ in tap.promised} == {"car", "van"} and len(tap.promised) == 2


def test_a_tap_hears_pubacks_out_of_order_and_from_nowhere() -> None:
    tap = Tap()
    tap(1, DOWN, publish(1, "car", "live", b"one") + publish(2, "car", "live", b"two"))
    tap(1, UP, puback(2))
    assert len(tap.out_of_order) == 1
    tap(1, UP, puback(1))
    assert len(tap.out_of_order) == 1
    tap(1, UP, puback(9))
    assert len(tap.out_of_order) == 2
