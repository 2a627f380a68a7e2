"""Turn requests to a store server, and its refusals, into bytes and back."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secondsight.errors import Permanent, Rejected, Retryable, SecondsightError
from secondsight.store.failures import LIMITS, QueryLimited, StatementFailed, StoreBusy
from secondsight.store.params import ParameterText, parameter_texts

KILL = "kill"
"""Action that ends a question, whose marker is its body."""
END = "end"
"""Action that ends a read, likewise."""
DROP = "drop"
"""Action that deletes a part of a table whose old rows may go: its body is `table/part`."""
POSITION = "position"
"""Action that tells how many messages were published to followers."""
_MARKER = re.compile(r"[0-9a-f]{32}|")


@dataclass(frozen=True, slots=True)
class Request:
    """One statement to run; `marker` is what it can be ended by, "" for nothing."""

    sql: str
    params: Mapping[str, ParameterText]
    settings: Mapping[str, Any]
    marker: str = ""


def encode_request(
    sql: str, params: Mapping[str, Any] | None, settings: Mapping[str, Any] | None, marker: str = ""
) -> bytes:
    """Return the bytes of a request; parameters travel as the text that the engine parses."""
    fields = {"sql": sql, "params": parameter_texts(params), "settings": dict(settings or {}), "marker": marker}
    return json.dumps(fields).encode()


def encode_follow(wanted: Mapping[str, Sequence[str]]) -> bytes:
    """Return the bytes that ask to follow some columns of some tables."""
    return json.dumps({"follow": {table: list(columns) for table, columns in wanted.items()}}).encode()


def decode_follow(body: bytes) -> dict[str, list[str]] | None:
    """Read which columns of which tables are to be followed; None where the bytes are something else.

    Raises:
        Rejected(bad_request): It is a broken one.
    """
    if not body.startswith(b'{"follow"'):
        return None
    try:
        fields = json.loads(body)["follow"]
        return {str(table): [str(column) for column in columns] for table, columns in fields.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Rejected("bad_request", "not a request to follow a store") from None


def checked_marker(text: str) -> str:
    """Return a marker, which becomes a part of statements.

    Raises:
        Rejected(bad_request): It is none.
    """
    if not _MARKER.fullmatch(text):
        raise Rejected("bad_request", "not a marker of a statement")
    return text


def decode_request(body: bytes) -> Request:
    """Read a request.

    Raises:
        Rejected(bad_request): It is none.
    """
    try:
        fields = json.loads(body)
        params = {name: ParameterText(text) for name, text in fields["params"].items()}
        marker = checked_marker(str(fields.get("marker", "")))
        return Request(str(fields["sql"]), params, dict(fields["settings"]), marker)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Rejected("bad_request", "not a request to a store") from None


def encode_failure(error: SecondsightError) -> bytes:
    """Return the bytes that say what kind of failure it was."""
    fields: dict[str, Any] = {"message": str(error)}
    match error:
        case QueryLimited() | StatementFailed():
            fields |= {"kind": "permanent", "engine_code": error.engine_code}
            fields |= {"name": error.name} if isinstance(error, StatementFailed) else {}
        case Rejected():
            fields |= {"kind": "rejected", "code": error.code, "message": error.message, "hint": error.hint}
        case Permanent():
            fields |= {"kind": "permanent"}
        case _:
            fields |= {"kind": "retryable", "retry_after_seconds": getattr(error, "retry_after_seconds", None)}
    return json.dumps(fields).encode()


def decode_failure(body: bytes) -> SecondsightError:
    """Return the error that a server's bytes mean; what cannot be read may be tried again."""
    try:
        fields = json.loads(body)
    except ValueError:
        return Retryable("the store server failed without saying why")
    match fields:
        case {"kind": "rejected"}:
            return Rejected(fields["code"], fields["message"], fields["hint"])
        case {"kind": "permanent", "engine_code": int(engine_code)} if engine_code in LIMITS:
            return QueryLimited(engine_code)
        case {"kind": "permanent", "engine_code": int(engine_code), "name": str(name)}:
            return StatementFailed(engine_code, fields["message"], name)
        case {"kind": "permanent"}:
            return Permanent(fields["message"])
        case _:
            return StoreBusy(fields.get("message", ""), retry_after_seconds=fields.get("retry_after_seconds"))
