"""How messages about alerts leave the house: a signed HTTP request, or a mail. Thin shells around ``notices``.

What goes wrong is told without addresses, secrets and other people's words, since it ends in the store and in logs.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import smtplib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Final
from urllib.parse import urlsplit

import httpx

from contracts.webhook import DELIVERY_HEADER, SIGNATURE_HEADER, sign

TIMEOUT_S: Final = 10.0
USER_AGENT: Final = "fleetstream-courier"


class NotDelivered(Exception):
    """This attempt failed; the text is short and holds no secret."""


@dataclass(frozen=True, slots=True)
class Target:
    """A webhook's address, looked up: ``host`` is asked for and checked, ``address`` is connected to."""

    scheme: str
    host: str
    port: int
    path: str
    address: str

    @property
    def url(self) -> str:
        where = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.scheme}://{where}:{self.port}{self.path}"

    @property
    def host_header(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.scheme == "https" else 80) else f"{name}:{self.port}"


def read_address(text: str, private: bool) -> tuple[str, str, int, str]:
    """(scheme, host, port, path) of a webhook. Raises NotDelivered; plain HTTP only where ``private`` is allowed."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise NotDelivered("the address cannot be read") from error
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.username or parts.password:
        raise NotDelivered("the address is no plain https address")
    if parts.scheme == "http" and not private:
        raise NotDelivered("the address is not https")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), path


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the world: not ours, not this machine's, not a cloud's own services."""
    found = ipaddress.ip_address(address)
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_global and not found.is_multicast


async def look_up(text: str, private: bool) -> Target:
    """Raises NotDelivered. The address that was checked is the one that is connected to: a name that changes its
    mind in between changes nothing."""
    scheme, host, port, path = read_address(text, private)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotDelivered("the host's name is not known") from error
    addresses = [str(one[4][0]) for one in found]
    if not addresses or not (private or all(map(is_public, addresses))):
        raise NotDelivered("the address lies in a private network; allow it with the setting webhook_private")
    return Target(scheme, host, port, path, addresses[0])


@dataclass
class WebhookCarrier:
    """Posts signed JSON; follows no redirect, reads no answer beyond its status."""

    now_s: Callable[[], int]
    private: bool = False
    timeout_s: float = TIMEOUT_S
    _client: httpx.AsyncClient | None = None

    async def send(self, address: str, secret: str, body: bytes, delivery_id: int) -> None:
        """Raises NotDelivered."""
        target = await look_up(address, self.private)
        headers = {
            "Host": target.host_header, "Content-Type": "application/json", "User-Agent": USER_AGENT,
            SIGNATURE_HEADER: sign(secret, body, self.now_s()), DELIVERY_HEADER: str(delivery_id),
        }  # fmt: skip
        client = self._client = self._client or self._open()
        try:
            request = client.build_request(
                "POST", target.url, headers=headers, content=body, extensions={"sni_hostname": target.host}
            )
            async with asyncio.timeout(self.timeout_s):
                answer = await client.send(request, stream=True, follow_redirects=False)
                await answer.aclose()
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise NotDelivered(type(error).__name__) from error
        if not 200 <= answer.status_code < 300:
            raise NotDelivered(f"HTTP status {answer.status_code}")

    def _open(self) -> httpx.AsyncClient:
        logging.getLogger("httpx").setLevel(logging.WARNING)  # it tells whole addresses, which may hold tokens
        return httpx.AsyncClient(timeout=self.timeout_s, trust_env=False)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


@dataclass(frozen=True, slots=True)
class MailServer:
    """Where mails are handed in. ``security``: none, starttls or tls."""

    host: str
    port: int
    sender: str
    security: str = "starttls"
    user: str = ""
    password: str = ""
    timeout_s: float = TIMEOUT_S


@dataclass(frozen=True, slots=True)
class MailCarrier:
    """Hands mails to a server, in a thread of its own, one connection per mail."""

    server: MailServer

    async def send(self, mail: EmailMessage) -> None:
        """Raises NotDelivered."""
        await asyncio.to_thread(self._send, mail)

    def _send(self, mail: EmailMessage) -> None:
        server = self.server
        try:
            with self._connect() as connection:
                if server.security == "starttls":
                    connection.starttls(context=ssl.create_default_context())
                if server.user:
                    connection.login(server.user, server.password)
                refused = connection.send_message(mail)
        except smtplib.SMTPResponseException as error:
            raise NotDelivered(f"SMTP code {error.smtp_code}") from error
        except (smtplib.SMTPException, OSError, ValueError) as error:
            raise NotDelivered(type(error).__name__) from error
        if refused:
            raise NotDelivered("the mail server refused the recipient")

    def _connect(self) -> smtplib.SMTP:
        server = self.server
        if server.security == "tls":
            context = ssl.create_default_context()
            return smtplib.SMTP_SSL(server.host, server.port, timeout=server.timeout_s, context=context)
        return smtplib.SMTP(server.host, server.port, timeout=server.timeout_s)
