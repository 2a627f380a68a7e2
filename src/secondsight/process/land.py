"""Turn what is not a scalar cell into rows: histograms, events, infos, allocations, plans, refusals, progress.

Rows of one table wait here as dicts, keyed so that repeats within a batch collapse, and become one Arrow table.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from secondsight.errors import Rejected
from secondsight.model import EntityKind
from secondsight.process.decode import origin_of
from secondsight.process.enrich import FIELDS, Attribution, Fact
from secondsight.process.pieces import Origin
from secondsight.process.sources import source_rank
from secondsight.store.rows import ColumnValues, ListColumn, MapColumn, NullableColumn, WideColumn, arrow_table
from secondsight.store.spec import TableSpec
from secondsight.wire.content import Event, Frame, HistogramRows, Info
from secondsight.wire.envelope import Envelope

ALLOCATION = "job_gpu_allocation"
IDENTITY = ("id", "text", "message", "job_id")
"""Attributes that tell two events of one time and code apart."""
CORRECTION_DIGITS = 12
Row = dict[str, Any]
Attribute = Callable[[str, str, int], Attribution]
"""(entity, part, time) -> attribution, of rows of one frame."""


def hash64(*parts: object) -> int:
    """Return 64 bits that depend on every part."""
    text = "\0".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class Source:
    """A frame and the envelope that brought it."""

    envelope: Envelope
    frame: Frame

    def place(self, entity: str, part: str) -> Row:
        """Return the place columns of a row."""
        envelope = self.envelope
        return {
            "tenant_id": envelope.tenant_id,
            "region": envelope.region,
            "cluster_id": envelope.cluster_id,
            "host_id": self.frame.content.entities.host_id,
            "entity": entity,
            "part": part,
        }

    def provenance(self, time_ms: int) -> Row:
        """Return the columns that say where a row came from."""
        origin: Origin = origin_of(self.frame.header)
        ingest_ms = self.envelope.ingest_time_ms
        return {
            "ingest_time": ingest_ms,
            "collector_id": self.frame.header.collector_id,
            "source": origin.source,
            "source_rank": source_rank(origin.source),
            "spool_id": origin.spool_id,
            "sequence": origin.sequence,
            "boot_id": origin.boot_id,
            "schema_id": origin.schema_id,
            "skew": int(origin.suspect or time_ms > ingest_ms),
        }


def own_provenance(source: str, collector_id: str, now_ms: int) -> Row:
    """Return the same columns of a row that no frame brought: the processor says it of what a collector sent."""
    return {
        "ingest_time": now_ms,
        "collector_id": collector_id,
        "source": source,
        "source_rank": 0,
        "spool_id": 0,
        "sequence": 0,
        "boot_id": "",
        "schema_id": 0,
        "skew": 0,
    }


def attribution_row(attribution: Attribution) -> Row:
    """Return the attribution columns of a row."""
    return dict(zip(FIELDS, attribution, strict=True))


def event_row(source: Source, event: Event, attribute: Attribute) -> Row:
    """Return the row of an event."""
    time_ms = event.time_ms + start_correction_ms(source, event)
    identity = [event.attributes.get(name, "") for name in IDENTITY]
    return {
        **source.place(event.entity, event.part),
        "kind": source.frame.header.kind.value,
        "metric": event.metric,
        "event_time": time_ms,
        "end_time": None if event.end_ms is None else event.end_ms + source.frame.header.correction_ms,
        "code": event.code,
        "severity": event.attributes.get("severity", ""),
        "text_hash": hash64(*identity),
        "event_version": event.version,
        "attributes": dict(event.attributes),
        **source.provenance(time_ms),
        **attribution_row(_owner(source, event, attribute, time_ms)),
    }


def history_row(row: Row) -> Row:
    """Return the row that keeps what an event told this time, whatever is told of it later."""
    told = [row["end_time"], row["severity"], *(row[name] for name in FIELDS), sorted(row["attributes"].items())]
    return row | {"content_hash": hash64(json.dumps(told))}


def info_row(source: Source, info: Info, attribute: Attribute) -> Row:
    """Return the row of an info."""
    time_ms = info.time_ms + source.frame.header.correction_ms
    return {
        **source.place(info.entity, info.part),
        "kind": source.frame.header.kind.value,
        "metric": info.metric,
        "event_time": time_ms,
        "text_hash": hash64(json.dumps(dict(info.attributes), sort_keys=True)),
        "event_version": 1,
        "attributes": dict(info.attributes),
        **source.provenance(time_ms),
        **attribution_row(_owner(source, info, attribute, time_ms)),
    }


def _owner(source: Source, item: Event | Info, attribute: Attribute, time_ms: int) -> Attribution:
    """Return whose an event or fact is: one about a job says so itself, and is never that of who had the GPU before."""
    if source.frame.header.kind is EntityKind.PROCESS_JOB or item.metric == ALLOCATION:
        return stated_attribution(item.attributes)
    return attribute(item.entity, item.part, time_ms)


def stated_attribution(texts: Mapping[str, str]) -> Attribution:
    """Return the attribution that attributes state; nobody's where they state none."""
    return texts.get("job_id", ""), texts.get("workload_id", ""), texts.get("owner_team", ""), texts.get("model_id", "")


def start_correction_ms(source: Source, event: Event) -> int:
    """Return what is added to an event's time: what it states itself, so that every version has the same, or its frame.

    The frames of an interval's versions may state corrections that differ by what was learnt of the clock between.
    """
    stated = event.attributes.get("clock_correction_ms", "")
    digits = stated.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and len(digits) <= CORRECTION_DIGITS:
        return int(stated)
    return source.frame.header.correction_ms


def is_owned(event: Event) -> bool:
    """Tell whether an allocation makes its holder the owner; a share in a GPU is permission and not a place on it."""
    return event.metric == ALLOCATION and not event.attributes.get("share")


def fact_of(source: Source, event: Event) -> Fact:
    """Return the allocation fact that an event states."""
    shift = source.frame.header.correction_ms
    return Fact(
        (source.envelope.tenant_id, source.envelope.cluster_id, event.entity, event.part),
        source.frame.content.entities.host_id,
        stated_attribution(event.attributes),
        event.time_ms + start_correction_ms(source, event),
        None if event.end_ms is None else event.end_ms + shift,
        event.version,
    )


def allocation_row(fact: Fact) -> Row:
    """Return the row of an allocation fact."""
    tenant, cluster, entity, part = fact.subject
    return {
        "tenant_id": tenant,
        "cluster_id": cluster,
        "host_id": fact.host_id,
        "entity": entity,
        "part": part,
        **attribution_row(fact.attribution),
        "start_time": fact.start_ms,
        "end_time": fact.end_ms,
        "version": fact.version,
    }


def histogram_rows(source: Source, rows: HistogramRows, attribute: Attribute) -> list[Row]:
    """Return the rows of one histogram column of a frame."""
    header, content = source.frame.header, source.frame.content
    column = content.schema.histograms[rows.column]
    times = header.tick_times_ms + header.correction_ms
    made = []
    for number in range(len(rows.entity_index)):
        subject = content.entities.entities[int(rows.entity_index[number])]
        time_ms = int(times[rows.tick_index[number]])
        start_ms = int(rows.start_times_ms[number])
        made.append(
            {
                **source.place(subject.entity, subject.part),
                "event_time": time_ms,
                "observed_delta_ms": 0,
                "correction_ms": header.correction_ms,
                "interval_ms": header.interval_ms,
                **source.provenance(time_ms),
                **attribution_row(attribute(subject.entity, subject.part, time_ms)),
                "kind": header.kind.value,
                "metric": column.metric,
                "bounds": list(column.bounds),
                "buckets": rows.buckets[number].tolist(),
                "sum": float(rows.sums[number]),
                "start_time": start_ms + header.correction_ms if start_ms else None,
                "version_hi": 0,
                "version_lo": int(rows.buckets[number].sum()),
            }
        )
    return made


def plan_row(envelope: Envelope) -> Row:
    """Return the row of a plan.

    Raises:
        Rejected: `bad_plan`.
    """
    try:
        plan = json.loads(envelope.body)
        return {
            "tenant_id": envelope.tenant_id,
            "cluster_id": envelope.cluster_id,
            "host_id": str(plan["host_id"]),
            "collector_id": str(plan["collector_id"]),
            "kind": str(plan["kind"]),
            "interval_ms": int(plan["interval_ms"]),
            "from_time": int(plan["from_ms"]),
            "to_time": None if plan.get("to_ms") is None else int(plan["to_ms"]),
            "version": int(plan["version"]),
            "without": str(plan.get("without", "")),
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Rejected("bad_plan", f"a plan record cannot be read: {error}") from error


class Landing:
    """Rows that wait to be written, by table.

    Args:
        specs: The tables by name.
    """

    def __init__(self, specs: Mapping[str, TableSpec]) -> None:
        self._specs = specs
        self._rows: dict[str, dict[tuple[Any, ...], Row]] = {}

    def __len__(self) -> int:
        return sum(len(rows) for rows in self._rows.values())

    def add(self, table: str, row: Row, version: int = 0) -> None:
        """Add a row; of two with one sorting key the greater version stays."""
        key = tuple(row.get(name) for name in self._specs[table].order if "(" not in name)
        rows = self._rows.setdefault(table, {})
        if key not in rows or rows[key].get("", 0) <= version:
            rows[key] = {**row, "": version}

    def add_event(self, row: Row) -> None:
        """Add what is told of an event: its greatest version stands in `events`, every one in `event_history`."""
        self.add("events", row, row["event_version"])
        self.add("event_history", history_row(row))

    def waiting(self, table: str) -> list[Row]:
        """Return the rows of a table that wait."""
        rows = self._rows.get(table, {}).values()
        return [{name: value for name, value in row.items() if name} for row in rows]

    def take(self, *only: str) -> Iterator[tuple[str, Any]]:
        """Yield (table, Arrow table) of what waits, of all tables or of some; `done` forgets it."""
        for table in only or tuple(self._rows):
            rows = self._rows.get(table)
            if rows:
                yield table, row_table(self._specs[table], list(rows.values()))

    def done(self, table: str) -> None:
        """Forget the rows of a table, which are written."""
        self._rows.pop(table, None)


def row_table(spec: TableSpec, rows: Sequence[Row]) -> Any:
    """Return the Arrow table of some rows that have the same keys."""
    types = {column.name: column.type for column in spec.columns}
    columns = {name: _column(types[name], [row[name] for row in rows]) for name in types if name in rows[0]}
    if "version_hi" in rows[0]:
        columns["version"] = _wide(rows)
    return arrow_table(spec, columns)


def _wide(rows: Sequence[Row]) -> ColumnValues:
    return WideColumn(
        np.array([row["version_hi"] for row in rows], np.uint64),
        np.array([row["version_lo"] for row in rows], np.uint64),
    )


def _column(type_: str, values: list[Any]) -> ColumnValues:
    if type_.startswith("Map"):
        return _map(type_, values)
    if type_.startswith("Array"):
        items = np.concatenate([np.array(value, _number_type(type_)) for value in values])
        return ListColumn(np.cumsum([0, *(len(value) for value in values)]), items)
    if "String" in type_:
        return [str(value) for value in values]
    dtype = _number_type(type_)
    if type_.startswith("Nullable"):
        present = np.array([value is not None for value in values], np.bool_)
        return NullableColumn(np.array([value or 0 for value in values], dtype), present)
    return np.array(values, dtype)


def _map(type_: str, values: list[Mapping[str, Any]]) -> MapColumn:
    entries = [(row, key, value) for row, each in enumerate(values) for key, value in sorted(each.items())]
    words = sorted({key for _, key, _ in entries})
    places = {word: place for place, word in enumerate(words)}
    numbers: Any = [value for _, _, value in entries]
    if "String)" not in type_.removeprefix("Map(LowCardinality(String)"):
        numbers = np.array(numbers, _number_type(type_))
    return MapColumn(
        np.array([row for row, _, _ in entries], np.int64),
        np.array([places[key] for _, key, _ in entries], np.int64),
        words,
        numbers,
    )


_NUMBERS: tuple[tuple[str, Any], ...] = (
    ("UInt8", np.uint8),
    ("UInt16", np.uint16),
    ("UInt32", np.uint32),
    ("UInt64", np.uint64),
    ("Int64", np.int64),
    ("Int32", np.int32),
    ("Float64", np.float64),
    ("DateTime", np.int64),
)


def _number_type(type_: str) -> Any:
    return next(dtype for name, dtype in _NUMBERS if name in type_)
