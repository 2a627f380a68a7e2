"""Say what a gateway's answer means: durable, refused for good, busy, or to be tried again."""

from typing import TypeGuard

from secondsight.agent.client.answers import code_and_message, json_of, retry_after_seconds
from secondsight.agent.client.connection import Answer
from secondsight.errors import Rejected, Retryable

TOO_MANY = 429
REFUSED_FOR_GOOD = frozenset({400, 413, 415, 422})
TIME_MAXIMUM_MS = 253_402_300_799_999


class Busy(Retryable):
    """A gateway asks to wait, by a code; what is urgent it may take none the less."""

    def __init__(self, code: str, message: str, retry_after_seconds: float | None) -> None:
        super().__init__(f"{TOO_MANY} {code}: {message}", retry_after_seconds=retry_after_seconds)
        self.code = code


def is_time(told: object) -> TypeGuard[int]:
    """Tell whether a gateway's word is a time: one beyond all clocks would put every tick there."""
    return isinstance(told, int) and 0 < told <= TIME_MAXIMUM_MS


def require_accepted(answer: Answer) -> None:
    """Return if a gateway made a body durable.

    Raises:
        Busy: It has no room, or the tenant has used up its quota.
        Retryable: It may do so later, or the answer is no gateway's.
        Rejected: It never will.
    """
    if answer.status == 200 and "accepted" in json_of(answer):
        return
    code, message = code_and_message(answer)
    if answer.status in REFUSED_FOR_GOOD:
        raise Rejected(code, message)
    later_seconds = retry_after_seconds(answer)
    if answer.status == TOO_MANY:
        raise Busy(code, message, later_seconds)
    raise Retryable(f"{answer.status} {code}: {message}", retry_after_seconds=later_seconds)
