"""Turn the body of a request into the events that it holds, as objects that nobody has looked into yet."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from secondsight.errors import Rejected

JSON_TYPES = frozenset({"application/json", "application/cloudevents+json", "application/cloudevents-batch+json"})
LINES_TYPES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/json-lines"})
EVENTS_MAXIMUM = 10_000
"""Of one request."""
EVENT_BYTES_MAXIMUM = 64 << 10
CLOUD_HEADER = b"ce-"


class Piece(NamedTuple):
    """One event as it came: its bytes, and its fields or why there are none."""

    raw: bytes
    fields: Mapping[str, Any] | Rejected


class Pieces(NamedTuple):
    """The events of a body; `alone` where the body is one event and no list."""

    items: Sequence[Piece]
    alone: bool


def read_body(body: bytes, content_type: str, headers: Mapping[bytes, bytes]) -> Pieces:
    """Return the events of a body.

    Raises:
        Rejected(content_type, bad_json, bad_event, too_many_events): Nothing of it can be taken.
    """
    if content_type in LINES_TYPES:
        lines = [line for line in body.split(b"\n") if line.strip()]
        _require_few(len(lines))
        return Pieces([_line(line) for line in lines], alone=False)
    if b"ce-specversion" not in headers and content_type not in JSON_TYPES:
        raise Rejected(
            "content_type",
            f"the body is {content_type or 'of no type'}, not JSON",
            "send application/json, application/x-ndjson or application/cloudevents+json",
        )
    said = _loaded(body)
    if b"ce-specversion" in headers:
        context = {
            name.removeprefix(CLOUD_HEADER).decode("latin-1"): value.decode("latin-1")
            for name, value in headers.items()
            if name.startswith(CLOUD_HEADER)
        }
        return Pieces([_piece({**context, "data": said})], alone=True)
    if isinstance(said, dict) and set(said) == {"events"}:
        said = said["events"]
    if isinstance(said, dict):
        return Pieces([_piece(said)], alone=True)
    if not isinstance(said, list):
        raise Rejected("bad_event", "the body is neither an event nor a list of them", "send an object or a list")
    _require_few(len(said))
    return Pieces([_piece(one) for one in said], alone=False)


def _require_few(count: int) -> None:
    if count > EVENTS_MAXIMUM:
        raise Rejected(
            "too_many_events", f"the body has {count} events, and the limit is {EVENTS_MAXIMUM}", "send fewer at once"
        )


def _loaded(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Rejected("bad_json", f"the body is not JSON: {error}", "send UTF-8 JSON") from error


def _line(line: bytes) -> Piece:
    if len(line) > EVENT_BYTES_MAXIMUM:
        return Piece(line[:EVENT_BYTES_MAXIMUM], _too_large(len(line)))
    try:
        return _piece(_loaded(line))
    except Rejected as error:
        return Piece(line, error)


def _piece(said: Any) -> Piece:
    raw = orjson.dumps(said, option=orjson.OPT_NON_STR_KEYS)
    if len(raw) > EVENT_BYTES_MAXIMUM:
        return Piece(raw[:EVENT_BYTES_MAXIMUM], _too_large(len(raw)))
    if not isinstance(said, dict):
        return Piece(raw, Rejected("bad_event", "an event is a JSON object", "see docs/guides/events.md"))
    return Piece(raw, said)


def _too_large(size: int) -> Rejected:
    return Rejected("event_too_large", f"the event has {size} bytes, and the limit is {EVENT_BYTES_MAXIMUM}")
