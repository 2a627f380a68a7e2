"""Read what a gateway says in its answers; whatever it says, reading does not fail."""

import json
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

from secondsight.agent.client.connection import Answer

CODE_CHARACTERS = 100
MESSAGE_CHARACTERS = 500


def json_of(answer: Answer) -> dict[str, Any]:
    """Return the JSON object of a body; an empty one where it is none."""
    try:
        told = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def code_and_message(answer: Answer) -> tuple[str, str]:
    """Return the code and the words of a refusal."""
    error = json_of(answer).get("error")
    if not isinstance(error, dict):
        return f"http_{answer.status}", "no reason was given"
    hint = error.get("hint")
    message = str(error.get("message", "")) + (f" ({hint})" if hint else "")
    return shown(error.get("code", f"http_{answer.status}"), CODE_CHARACTERS), shown(message)


def shown(said: object, characters: int = MESSAGE_CHARACTERS) -> str:
    """Return what a server said so that it is one line of a log, and not a long one."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(said)[:characters])


def sent_ms(answer: Answer) -> int | None:
    """Return when an answer was sent by its server's clock, to a second; None where it does not say."""
    try:
        return round(parsedate_to_datetime(answer.headers.get("date", "")).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def retry_after_seconds(answer: Answer) -> float | None:
    """Return how long a server asks to be left alone: seconds, or a date that counts from the answer's own Date."""
    told = answer.headers.get("retry-after", "")
    try:
        seconds = float(told)
    except ValueError:
        return _seconds_between(answer.headers.get("date", ""), told)
    return seconds if 0 <= seconds < float("inf") else None


def _seconds_between(first: str, last: str) -> float | None:
    try:
        times = [parsedate_to_datetime(text) for text in (first, last)]
    except (ValueError, OverflowError):
        return None
    begin, end = (time if time.tzinfo else time.replace(tzinfo=UTC) for time in times)
    return max((end - begin).total_seconds(), 0.0)
