"""Turn the events and infos of a frame into JSON blocks and back, with every field bounded."""

import json
from collections.abc import Mapping
from typing import Any

from secondsight.errors import Rejected
from secondsight.wire.blocks import refuse
from secondsight.wire.content import Event, Info
from secondsight.wire.header import MAX_TIME_MS
from secondsight.wire.schema import is_text

MAX_ATTRIBUTE_LENGTH = 8192
MAX_ATTRIBUTES = 128

_I64_MAX = (1 << 63) - 1


def write_events(events: tuple[Event, ...]) -> bytes:
    """Return the data of an event block."""
    return _dump([_event_fields(item) for item in events])


def read_events(data: bytes) -> tuple[Event, ...]:
    """Return the events of this data."""
    return tuple(_event(item) for item in _load(data))


def write_infos(infos: tuple[Info, ...]) -> bytes:
    """Return the data of an info block."""
    return _dump([[item.metric, item.entity, item.part, item.time_ms, _sorted(item.attributes)] for item in infos])


def read_infos(data: bytes) -> tuple[Info, ...]:
    """Return the infos of this data."""
    return tuple(_info(item) for item in _load(data))


def _event_fields(item: Event) -> list[Any]:
    subject = [item.metric, item.entity, item.part]
    return [*subject, item.time_ms, item.code, item.end_ms, item.version, _sorted(item.attributes)]


def _sorted(attributes: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(attributes.items()))


def _dump(items: list[Any]) -> bytes:
    try:
        return json.dumps(items, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError) as error:
        raise Rejected("bad_frame", f"an event cannot be written: {error}") from error


def _load(data: bytes) -> list[Any]:
    try:
        items = json.loads(data, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise Rejected("bad_frame", "an event block is not JSON") from error
    if not isinstance(items, list):
        refuse("an event block is not a list")
    return items


def _event(item: Any) -> Event:
    metric, entity, part, time_ms, code, end_ms, version, attributes = _list(item, 8)
    return Event(
        metric=_text(metric),
        entity=_text(entity),
        part=_text(part),
        time_ms=_integer(time_ms, -_I64_MAX, _I64_MAX),
        code=_integer(code, -_I64_MAX, _I64_MAX),
        end_ms=None if end_ms is None else _integer(end_ms, 0, MAX_TIME_MS),
        version=_integer(version, 0, 0xFFFF_FFFF),
        attributes=_attributes(attributes),
    )


def _info(item: Any) -> Info:
    metric, entity, part, time_ms, attributes = _list(item, 5)
    time = _integer(time_ms, -_I64_MAX, _I64_MAX)
    return Info(_text(metric), _text(entity), _text(part), time, _attributes(attributes))


def _list(item: Any, length: int) -> list[Any]:
    if not isinstance(item, list) or len(item) != length:
        refuse(f"an event or info is not a list of {length}")
    return item


def _text(value: Any) -> str:
    if not isinstance(value, str) or not is_text(value):
        refuse("an event field is not a short text")
    return value


def _integer(value: Any, minimum: int, maximum: int) -> int:
    if type(value) is not int or not minimum <= value <= maximum:
        refuse("an event field is not an integer in range")
    return value


def _attributes(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict) or len(value) > MAX_ATTRIBUTES:
        refuse(f"attributes are not an object of at most {MAX_ATTRIBUTES}")
    for name, text in value.items():
        if not is_text(name) or not isinstance(text, str) or not is_text(text, MAX_ATTRIBUTE_LENGTH):
            refuse("an attribute is not a text in bounds")
    return value
