"""How a webhook proves that it comes from here, now: HMAC-SHA256 over the time of sending and the body.

Header ``Fleetstream-Signature: t=<Unix seconds>,v1=<64 hexadecimal digits>``, computed over ``<t>.<body>`` with the
channel's secret. The time is part of what is signed, so an old message cannot be sent again as a new one. A receiver
uses ``check_signature``, and knows a repeat by the header ``Fleetstream-Delivery``.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from contracts.errors import Rejected

SIGNATURE_HEADER: Final = "Fleetstream-Signature"
DELIVERY_HEADER: Final = "Fleetstream-Delivery"
TOLERANCE_S: Final = 300
"""Two clocks may differ, a message may wait on its way; what is older is refused."""


def sign(secret: str, body: bytes, at_s: int) -> str:
    """Value of ``Fleetstream-Signature``; ``at_s``: Unix seconds of sending."""
    digest = hmac.new(secret.encode(), b"%d." % at_s + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={digest}"


def check_signature(secret: str, body: bytes, header: str, now_s: int, tolerance_s: int = TOLERANCE_S) -> None:
    """Raises Rejected('bad_signature') or Rejected('too_old')."""
    parts = dict(part.split("=", 1) for part in header.split(",") if "=" in part)
    at = parts.get("t", "")
    if not at.isascii() or not at.isdigit() or len(at) > 12:
        raise Rejected("bad_signature", "no time in the header")
    if not hmac.compare_digest(sign(secret, body, int(at)).encode(), header.encode()):
        raise Rejected("bad_signature", "it was not made with this secret over this body")
    if abs(now_s - int(at)) > tolerance_s:
        raise Rejected("too_old", f"signed {now_s - int(at)} s ago")
