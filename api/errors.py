"""This room's errors: which problem document an HTTP caller gets, and what ends the process."""

from __future__ import annotations

from contracts.errors import Fatal, FleetstreamError, Rejected, TryLater


class SettingsError(Fatal):
    """The configuration is not sound; the message names each bad key."""


class StoreUnavailable(TryLater):
    """PostgreSQL cannot be asked just now; nothing was lost."""


class QueryTooLong(TryLater):
    """The statement timeout ended a query; a narrower question will be answered."""


class KafkaUnavailable(TryLater):
    """Kafka took none of these records; they stay in the outbox."""


class Unauthorised(Rejected):
    """No key, or one that is not valid (any more)."""


class Forbidden(Rejected):
    """The key's role may not ask this."""


class NotFound(Rejected):
    """Nothing of that name belongs to the caller's tenant."""


class NotReady(Rejected):
    """This service is not set up for what was asked; the detail names the setting."""


class NotAcceptable(Rejected):
    """None of the forms that the caller accepts can be had; the detail lists those that can."""


class Gone(Rejected):
    """It was there and is not any more; the detail says how to begin anew."""


class BadQuestion(Rejected):
    """The parameters contradict each other or exceed a limit; ``parameter`` names the first to change."""

    def __init__(self, reason: str, detail: str, parameter: str) -> None:
        super().__init__(reason, detail)
        self.parameter = parameter


class TooMany(FleetstreamError):
    """The caller asks faster, or holds more streams, than its share."""

    def __init__(self, detail: str, retry_after_s: int, limit: str = "requests") -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.limit = limit
        """Which share is used up; a label of the counter, so one of a few words."""


class Conflict(Rejected):
    """It does not stand as the caller believes; the detail says how it stands now."""
