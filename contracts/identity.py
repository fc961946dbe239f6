"""Who a device has been: the boot epochs that the store knows, and the word to a device that took one of them again.

A device that lost its spool and its identity file begins at epoch 1 again; a restored image takes an epoch that its
original has used since. The store tells each device's epochs with their nonces on a compacted topic (key: device). A
gateway that sees the same epoch with another nonce accepts nothing of it and tells the device, on
``v1/{device}/down/identity``, which epoch is the highest known; the device moves what it holds to one above that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from contracts.errors import Rejected

IDENTITY_FORMAT = 1
LOWEST_TOLD, HIGHEST_TOLD = 8, 24
"""How many of a device's lowest and highest epochs are told: who lost everything begins at 1."""


@dataclass(frozen=True, slots=True)
class KnownEpochs:
    """Epoch to nonce, for those that are told; ``highest`` is the highest of all."""

    highest: int
    nonces: dict[int, int]

    def contradicts(self, boot_epoch: int, nonce: int) -> bool:
        """Whether this epoch belongs to another run of the device, as far as is told."""
        return self.nonces.get(boot_epoch, nonce) != nonce


@dataclass(frozen=True, slots=True)
class IdentityNotice:
    """To a device: what you send under ``boot_epoch`` and ``nonce`` is not accepted; ``highest`` is taken."""

    boot_epoch: int
    nonce: int
    highest: int


def encode_known(known: KnownEpochs) -> bytes:
    pairs = sorted(known.nonces.items())
    return json.dumps({"v": IDENTITY_FORMAT, "highest": known.highest, "known": pairs}, separators=(",", ":")).encode()


def decode_known(data: bytes) -> KnownEpochs:
    """Raises Rejected('bad_epochs')."""
    try:
        body = json.loads(data)
        if body["v"] != IDENTITY_FORMAT:
            raise Rejected("bad_epochs", f"format {body['v']}")
        return KnownEpochs(int(body["highest"]), {int(epoch): int(nonce) for epoch, nonce in body["known"]})
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise Rejected("bad_epochs", str(error)) from error


def encode_notice(notice: IdentityNotice) -> bytes:
    body = {"v": IDENTITY_FORMAT, "epoch": notice.boot_epoch, "nonce": notice.nonce, "highest": notice.highest}
    return json.dumps(body, separators=(",", ":")).encode()


def decode_notice(data: bytes) -> IdentityNotice:
    """Raises Rejected('bad_notice')."""
    try:
        body = json.loads(data)
        if body["v"] != IDENTITY_FORMAT:
            raise Rejected("bad_notice", f"format {body['v']}")
        notice = IdentityNotice(int(body["epoch"]), int(body["nonce"]), int(body["highest"]))
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise Rejected("bad_notice", str(error)) from error
    if not 1 <= notice.boot_epoch <= notice.highest < 2**22:
        raise Rejected("bad_notice", "epochs are out of bounds")
    return notice
