"""Turn the fields of one event into what is stored of it, or into the reason why not.

What an event is, the catalogue says: a metric of type event, or facts of type info. Two events are the same when they
agree in metric, place, time, code and id; an event without an id gets the hash of its content for one. An interval is
known by its start and, of an allocation, its job: a later version replaces an earlier one for readers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from math import floor
from typing import Any

import orjson

from secondsight.catalog.index import Catalog
from secondsight.catalog.metric import Metric, MetricType
from secondsight.errors import Rejected
from secondsight.gateway.admission import Bounds
from secondsight.gateway.events.cloud import is_cloud_event, plain_fields
from secondsight.mapping.identity import gpu_id, is_usable
from secondsight.model import EntityKind
from secondsight.wire.content import Event, Info
from secondsight.wire.events import MAX_ATTRIBUTE_LENGTH
from secondsight.wire.schema import MAX_TEXT_LENGTH, is_text

ALLOCATIONS = frozenset({"job_gpu_allocation", "job_gpu_conflict"})
"""Metrics of jobs whose entity is a GPU."""
OWN_SOURCES = frozenset({"agent", "processor", "gateway"})
"""What the platform says of itself nobody says for it."""
INTERVAL = "interval"
ATTRIBUTES_MAXIMUM = 100
VERSION_MAXIMUM = 2**32 - 1
CODE_MAXIMUM = 2**53
TIME_MS_MINIMUM, TIME_MS_MAXIMUM = 100_000_000_000, 100_000_000_000_000
MS_PER_SECOND = 1000

_FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "id": str,
    "metric": str,
    "time": (str, int, float),
    "endTime": (str, int, float),
    "host": str,
    "gpu": str,
    "job": (str, int),
    "entity": str,
    "part": str,
    "code": (str, int),
    "version": int,
    "severity": str,
    "text": str,
    "message": str,
    "team": str,
    "model": str,
    "workload": str,
    "user": str,
    "attributes": dict,
}
_AS_ATTRIBUTES: Mapping[str, str] = {
    "severity": "severity",
    "text": "text",
    "message": "message",
    "job": "job_id",
    "team": "owner_team",
    "model": "model_id",
    "workload": "workload_id",
    "user": "user_id",
}
_IDENTIFYING: Mapping[str, str] = {"id": "event_id", "text": "note", "message": "note"}
"""What would tell two versions of an interval apart, and what it is called there."""
_RESERVED = frozenset({"clock_correction_ms"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAP = re.compile(r":59:60(?=[.,Z+-])")
_TIME_HINT = "write RFC 3339 with a zone, or epoch milliseconds"


@dataclass(frozen=True, slots=True)
class Said:
    """One event that can be stored.

    Attributes:
        host: Whose it is; "" where it is of none.
        event_id: As the sender named it; "" where it did not.
        content_hash: 16 bytes of all that it says.
    """

    kind: EntityKind
    host: str
    item: Event | Info
    event_id: str
    content_hash: bytes


@dataclass(frozen=True, slots=True)
class Reading:
    """What events are read by.

    Attributes:
        sender: Name of who sent them, which stands for an entity of the platform where none is named.
        now_ms: The gateway's clock.
    """

    catalog: Catalog
    sender: str
    now_ms: int
    bounds: Bounds


def read_event(fields: Mapping[str, Any], reading: Reading) -> Said:
    """Return what is stored of an event.

    Raises:
        Rejected: bad_event, unknown_metric, not_an_event, reserved_metric, no_time, bad_time, time_unit, future_time,
            too_old, no_host, no_entity, bad_id, bad_code, bad_attribute.
    """
    given = plain_fields(fields) if is_cloud_event(fields) else dict(fields)
    _check_types(given)
    metric = _metric(given, reading.catalog)
    time_ms = _time(given, "time", reading)
    host, entity = _place(given, metric, reading)
    attributes = _attributes(given, metric)
    event_id = str(given.get("id") or attributes.pop("id", ""))
    part = given.get("part") or ""
    if metric.type is MetricType.INFO:
        item: Event | Info = Info(metric.name, entity, part, time_ms, attributes)
    else:
        end_ms = _time(given, "endTime", reading) if given.get("endTime") is not None else None
        if end_ms is not None and end_ms < time_ms:
            raise Rejected("bad_time", f"{metric.name} on {entity} ends before it begins", "endTime is after time")
        version = given.get("version") or (2 if metric.unit == INTERVAL and end_ms is not None else 1)
        if not 0 < version <= VERSION_MAXIMUM:
            raise Rejected("bad_event", f"version {version} is none", f"a version is 1 to {VERSION_MAXIMUM}")
        item = Event(metric.name, entity, part, time_ms, _code(given, metric), end_ms, version, attributes)
    for name in (part, event_id):
        _require_text(name)
    said = Said(metric.kind, host, item, event_id, _hash(host, event_id, item))
    return _identified(said, is_interval=metric.unit == INTERVAL)


def _check_types(given: Mapping[str, Any]) -> None:
    unknown = sorted(str(name)[:MAX_TEXT_LENGTH] for name in given if name not in _FIELDS)
    if unknown:
        message = f"an event has no field {unknown[0]!r}"
        raise Rejected("bad_event", message, f"fields: {', '.join(_FIELDS)}; the rest goes into attributes")
    for name, value in given.items():
        if value is not None and (not isinstance(value, _FIELDS[name]) or isinstance(value, bool)):
            raise Rejected("bad_event", f"the field {name} is {type(value).__name__}", "see docs/guides/events.md")


def _metric(given: Mapping[str, Any], catalog: Catalog) -> Metric:
    name = given.get("metric") or ""
    if not name:
        raise Rejected("bad_event", "the event names no metric", "metric is the catalogue's name of what happened")
    metric = catalog.resolve(name[:MAX_TEXT_LENGTH])
    if metric.type not in (MetricType.EVENT, MetricType.INFO):
        raise Rejected(
            "not_an_event", f"{metric.name} is a {metric.type}", "samples go to remote write, OTLP or frames"
        )
    if metric.derived.partition(",")[0] in OWN_SOURCES:
        raise Rejected("reserved_metric", f"{metric.name} is what the platform says of itself", "use another metric")
    return metric


def _time(given: Mapping[str, Any], name: str, reading: Reading) -> int:
    said = given.get(name)
    if said is None or said == "":
        raise Rejected("no_time", f"the event has no {name}", f"{_TIME_HINT}; a retry must say the same")
    time_ms = _parsed(said)
    if not TIME_MS_MINIMUM <= time_ms < TIME_MS_MAXIMUM:
        raise Rejected("time_unit", f"{name} {said} is not epoch milliseconds of our time", _TIME_HINT)
    off = (time_ms - reading.now_ms) / MS_PER_SECOND
    if time_ms > reading.now_ms + reading.bounds.future_ms:
        raise Rejected("future_time", f"{name} lies {off:.0f} s ahead of the gateway", "check the sender's clock")
    if time_ms < reading.now_ms - reading.bounds.past_ms:
        raise Rejected("too_old", f"{name} lies {-off / 86_400:.0f} days back", "what is so old is not kept")
    return time_ms


def _parsed(said: str | float) -> int:
    """Return epoch ms, cut and never rounded up; a leap second is the first of the next minute, as in epoch time."""
    if isinstance(said, str) and not said.strip().isdecimal():
        written = said.strip().upper()
        leap = _LEAP.search(written) is not None
        try:
            instant = datetime.fromisoformat(_LEAP.sub(":59:59", written))
        except ValueError as error:
            raise Rejected("bad_time", f"{said[:64]!r} is no time", _TIME_HINT) from error
        if instant.tzinfo is None:
            raise Rejected("bad_time", f"{said[:64]!r} names no zone", _TIME_HINT)
        return (instant - _EPOCH) // timedelta(milliseconds=1) + leap * MS_PER_SECOND
    number = float(said)
    return floor(number) if abs(number) < TIME_MS_MAXIMUM else TIME_MS_MAXIMUM


def _place(given: Mapping[str, Any], metric: Metric, reading: Reading) -> tuple[str, str]:
    """Return host and entity."""
    host = given.get("host") or ""
    if host and not is_usable(host):
        raise Rejected("no_host", f"{host[:64]!r} cannot name a host", "a host is a printable name")
    named, gpu, job = (str(given.get(name) or "") for name in ("entity", "gpu", "job"))
    is_of_gpu = metric.kind is EntityKind.GPU or metric.name in ALLOCATIONS
    if is_of_gpu:
        entity = gpu_id(gpu or named)
        if metric.name in ALLOCATIONS and not job:
            raise Rejected("no_entity", f"{metric.name} names no job", "name the job that has the GPU")
    elif metric.kind is EntityKind.NODE:
        entity, host = host or named, host or named
    elif metric.kind is EntityKind.PLATFORM:
        entity = named or reading.sender
    else:
        entity = named or job
    if not host and (is_of_gpu or metric.kind is EntityKind.FABRIC_PORT):
        raise Rejected("no_host", f"{metric.name} names no host", "name the host that the device is in")
    if not is_usable(entity):
        lacking = "GPU by its UUID" if is_of_gpu else f"{metric.kind} as entity"
        raise Rejected("no_entity", f"{metric.name} does not say what it is about", f"name the {lacking}")
    return host, entity


def _code(given: Mapping[str, Any], metric: Metric) -> int:
    said = given.get("code")
    meanings = {meaning: value for value, meaning in metric.values}
    if said is None or said == "":
        if metric.unit == INTERVAL and not meanings:
            return 0
        raise Rejected("bad_code", f"{metric.name} has no code", _codes(metric))
    if isinstance(said, str):
        text = said.strip()
        is_number = text.removeprefix("-").isdecimal() and len(text) < len(str(CODE_MAXIMUM))
        said = meanings.get(text, int(text) if is_number else None)
    least = -CODE_MAXIMUM if metric.minimum is None else metric.minimum
    most = CODE_MAXIMUM if metric.maximum is None else metric.maximum
    if said is None or not least <= said <= most or (meanings and said not in meanings.values()):
        raise Rejected("bad_code", f"{given['code']!r} is no code of {metric.name}"[:MAX_TEXT_LENGTH], _codes(metric))
    return int(said)


def _codes(metric: Metric) -> str:
    return "codes: " + (", ".join(f"{value} {meaning}" for value, meaning in metric.values) or "see the catalogue")


def _attributes(given: Mapping[str, Any], metric: Metric) -> dict[str, str]:
    free = given.get("attributes") or {}
    found = {name: _text_of(name, value) for name, value in free.items() if value is not None}
    found |= {name: str(given[field]) for field, name in _AS_ATTRIBUTES.items() if given.get(field)}
    if metric.name in ALLOCATIONS:
        found |= {"via": found.get("via", "events"), "start": "exact"}
    for name, text in found.items():
        if name in _RESERVED or not is_text(name) or not is_text(text, MAX_ATTRIBUTE_LENGTH):
            raise Rejected("bad_attribute", f"the attribute {name[:64]!r} cannot be kept", "short texts without NUL")
    if len(found) > ATTRIBUTES_MAXIMUM:
        raise Rejected("bad_attribute", f"the event has {len(found)} attributes", f"{ATTRIBUTES_MAXIMUM} at most")
    return found


def _text_of(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise Rejected("bad_attribute", f"the attribute {name[:64]!r} is neither text nor number", "keep attributes flat")


def _require_text(name: str) -> None:
    if not is_text(name):
        raise Rejected("bad_id", "an id or a part is too long or cannot be written", f"{MAX_TEXT_LENGTH} characters")


def _hash(host: str, event_id: str, item: Event | Info) -> bytes:
    said = [host, event_id, item.metric, item.entity, item.part, item.time_ms, dict(item.attributes)]
    if isinstance(item, Event):
        said += [item.code, item.end_ms, item.version]
    return blake2b(orjson.dumps(said, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def _identified(said: Said, *, is_interval: bool) -> Said:
    """Return an event whose attributes hold what makes it the same event when it is told again."""
    attributes = dict(said.item.attributes)
    if is_interval:
        attributes = {_IDENTIFYING.get(name, name): text for name, text in attributes.items()}
        attributes |= {"event_id": said.event_id} if said.event_id else {}
    elif isinstance(said.item, Event) or said.event_id:
        attributes["id"] = said.event_id or said.content_hash.hex()
    item = _with_attributes(said.item, attributes)
    return Said(said.kind, said.host, item, said.event_id, said.content_hash)


def _with_attributes(item: Event | Info, attributes: Mapping[str, str]) -> Event | Info:
    if isinstance(item, Info):
        return Info(item.metric, item.entity, item.part, item.time_ms, attributes)
    return Event(item.metric, item.entity, item.part, item.time_ms, item.code, item.end_ms, item.version, attributes)
