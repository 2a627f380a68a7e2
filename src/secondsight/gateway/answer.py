"""Turn results and errors into HTTP answers."""

from dataclasses import dataclass
from math import ceil

import orjson

from secondsight.errors import Rejected, Retryable
from secondsight.gateway.pressure import Overloaded

JSON = b"application/json"
NO_CONTENT = 204

STATUS: dict[str, int] = {
    "token_missing": 401,
    "token_invalid": 401,
    "token_expired": 401,
    "role_cannot_write": 403,
    "role_cannot_operate": 403,
    "role_cannot_read": 403,
    "no_grant": 403,
    "collector_not_allowed": 403,
    "host_not_allowed": 403,
    "collector_revoked": 403,
    "certificate_mismatch": 403,
    "join_used_up": 403,
    "collector_taken": 409,
    "id_conflict": 409,
    "not_found": 404,
    "method_not_allowed": 405,
    "body_timeout": 408,
    "body_too_large": 413,
    "too_many_samples": 413,
    "too_many_events": 413,
    "too_many_letters": 413,
    "event_too_large": 413,
    "frame_too_large": 413,
    "content_type": 415,
    "content_encoding": 415,
    "schema_unknown": 424,
}
"""Status of a refusal by its code; 400 for the others."""


class WrongMethod(Rejected):
    """A path has no such method; `allowed` names those that it has."""

    def __init__(self, method: str, path: str, allowed: str) -> None:
        super().__init__("method_not_allowed", f"{path} has no {method}", f"use {allowed}")
        self.allowed = allowed


class OtherEncoding(Rejected):
    """A body is encoded in a way that is not taken; `taken` names those that are."""

    def __init__(self, message: str, taken: str) -> None:
        super().__init__("content_encoding", message, f"use one of: {taken}")
        self.taken = taken


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer.

    Attributes:
        refused_caller: Code of the refusal where it was the caller who was refused, 401 or 403, not what it sent.
    """

    status: int
    body: bytes = b""
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    refused_caller: str = ""


def refusal_answer(error: Rejected, **facts: object) -> Answer:
    """Return the answer to a request that will never succeed as it is; `facts` go beside code, message and hint."""
    status = STATUS.get(error.code, 400)
    headers = ((b"www-authenticate", b"Bearer"),) if status == 401 else ()
    if isinstance(error, WrongMethod):
        headers = ((b"allow", error.allowed.encode()),)
    if isinstance(error, OtherEncoding):
        headers = ((b"accept-encoding", error.taken.encode()),)
    body = _error_body(error.code, error.message, error.hint, **facts)
    return Answer(status, body, headers=headers, refused_caller=error.code if status in {401, 403} else "")


def retry_answer(error: Retryable) -> Answer:
    """Return the answer to a request that may succeed later: 429 when the sender is too fast, else 503."""
    headers = ((b"retry-after", str(max(1, ceil(error.retry_after_seconds or 0))).encode()),)
    if isinstance(error, Overloaded):
        body = _error_body(error.code, str(error), "send again later", reason=error.reason)
        return Answer(429, body, headers=headers)
    return Answer(503, _error_body("unavailable", "nothing could be stored", "send again later"), headers=headers)


def fault_answer() -> Answer:
    """Return the answer to a request that met a fault of this program."""
    return Answer(
        500, _error_body("internal", "the gateway failed on this request; its log says why", "send again later")
    )


def _error_body(code: str, message: str, hint: str, **facts: object) -> bytes:
    return orjson.dumps({"error": {"code": code, "message": message, "hint": hint, **facts}})
