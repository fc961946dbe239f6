"""A change of who judges, as a message on the ``events`` topic: a trained model was promoted, or taken back.

Key = name of the model's deployment. Repeats are possible (the outbox delivers at least once): ``change_id`` names an
event.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from contracts.errors import Rejected

KIND: Final = "model_change"
EVENT_FORMAT: Final = 1
PROMOTED, ROLLED_BACK = "promoted", "rolled_back"
ACTIONS: Final = (PROMOTED, ROLLED_BACK)


@dataclass(frozen=True, slots=True)
class ModelEvent:
    """``model`` (SHA-256 of its file, None: nothing) judges event times from ``effective_ms`` on; ``replaced`` did
    until then. ``anyway`` is the reason given for promoting what the comparison called worse."""

    change_id: int
    action: str
    name: str
    asset_kind: str
    model: str | None
    replaced: str | None
    effective_ms: int
    at_ms: int
    asked_by: str
    anyway: str | None = None


def encode_model_event(event: ModelEvent) -> bytes:
    return json.dumps({"v": EVENT_FORMAT, "kind": KIND, **asdict(event)}, separators=(",", ":")).encode()


def decode_model_event(data: bytes) -> ModelEvent:
    """Raises Rejected('bad_event'), also for an event of another kind."""
    try:
        body = json.loads(data)
        if body.pop("v") != EVENT_FORMAT or body.pop("kind") != KIND or body["action"] not in ACTIONS:
            raise Rejected("bad_event", "not a model event of this format")
        return ModelEvent(**body)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise Rejected("bad_event", str(error)) from error
