"""Turn schemas and entity tables into canonical JSON blobs, named by hash, and back.

A blob is UTF-8 JSON with fixed field order and no spaces. Its name is the 16-byte blake2b hash of its bytes. Parsing
bounds everything before it is used, because blobs arrive from the network; every fault is `Rejected("bad_schema")`.
"""

import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise
from threading import Lock
from typing import Any, NoReturn

import numpy as np

from secondsight.errors import Rejected
from secondsight.model import EntityKind
from secondsight.wire.content import Column, Entity, EntityTable, HistogramColumn, Schema

HASH_BYTES = 16
MAX_BLOB_BYTES = 16 << 20
MAX_COLUMNS = 4096
MAX_HISTOGRAMS = 256
MAX_BOUNDS = 1024
MAX_ENTITIES = 65536
MAX_ATTRIBUTES = 64
MAX_TEXT_LENGTH = 512

NUMPY_TYPES: dict[str, "np.dtype[Any]"] = {
    "u64": np.dtype("<u8"),
    "i64": np.dtype("<i8"),
    "f64": np.dtype("<f8"),
    "u32": np.dtype("<u4"),
    "i32": np.dtype("<i4"),
    "u16": np.dtype("<u2"),
    "i16": np.dtype("<i2"),
    "u8": np.dtype("u1"),
    "i8": np.dtype("i1"),
}
"""Stored types in the order in which a schema groups its columns: widest first."""

DTYPE_ORDER = {name: position for position, name in enumerate(NUMPY_TYPES)}


@dataclass(frozen=True, slots=True)
class GroupLayout:
    """Columns of one dtype in a schema: `columns` of them from `first_column` on."""

    dtype: "np.dtype[Any]"
    first_column: int
    columns: int


@dataclass(frozen=True, slots=True)
class WidthLayout:
    """Groups of one width, which are one matrix on the wire: `columns` of them from `first_column` on."""

    dtype: "np.dtype[Any]"
    first_column: int
    columns: int
    groups: tuple[GroupLayout, ...]

    @property
    def end_column(self) -> int:
        """Return the column after the last one."""
        return self.first_column + self.columns


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """A schema with its blob, its hash and where its matrices lie.

    Attributes:
        row_bytes: Bytes of the cells of one row.
    """

    schema: Schema
    blob: bytes
    hash: bytes
    groups: tuple[GroupLayout, ...]
    widths: tuple[WidthLayout, ...]
    row_bytes: int


@dataclass(frozen=True, slots=True)
class KnownEntities:
    """An entity table with its blob and hash."""

    table: EntityTable
    blob: bytes
    hash: bytes


def make_schema(kind: EntityKind, columns: Iterable[Column], histograms: Iterable[HistogramColumn] = ()) -> Schema:
    """Make a schema of columns in any order: sorted by dtype (widest first), then by metric."""
    ordered = sorted(columns, key=_column_key)
    return Schema(kind, tuple(ordered), tuple(sorted(histograms, key=lambda column: column.metric)))


def definition_hash(blob: bytes) -> bytes:
    """Return the 16-byte name of a blob."""
    return hashlib.blake2b(blob, digest_size=HASH_BYTES).digest()


def schema_blob(schema: Schema) -> bytes:
    """Return the canonical blob of a schema; numbers are written as floats, so a parsed schema has the same blob."""
    return _dump(
        {
            "type": "schema",
            "kind": schema.kind.value,
            "columns": [[item.metric, item.unit, item.dtype, float(item.resolution)] for item in schema.columns],
            "histograms": [
                [item.metric, item.unit, [float(bound) for bound in item.bounds]] for item in schema.histograms
            ],
        }
    )


def entity_table_blob(table: EntityTable) -> bytes:
    """Return the canonical blob of an entity table; attributes are sorted."""
    return _dump(
        {
            "type": "entities",
            "kind": table.kind.value,
            "host_id": table.host_id,
            "rack": table.rack,
            "entities": [[item.entity, item.part, sorted(item.attributes)] for item in table.entities],
        }
    )


def parse_schema(blob: bytes) -> Schema:
    """Parse the blob of a schema.

    Raises:
        Rejected: `bad_schema`.
    """
    fields = _load(blob, "schema")
    columns = tuple(_column(item) for item in _items(fields, "columns", MAX_COLUMNS))
    histograms = tuple(_histogram(item) for item in _items(fields, "histograms", MAX_HISTOGRAMS))
    _require_ascending([_column_key(column) for column in columns], "columns")
    _require_ascending([column.metric for column in histograms], "histograms")
    metrics = {column.metric for column in columns} | {column.metric for column in histograms}
    if len(metrics) < len(columns) + len(histograms):
        _refuse("a metric stands twice")
    return Schema(_kind(fields), columns, histograms)


def parse_entity_table(blob: bytes) -> EntityTable:
    """Parse the blob of an entity table.

    Raises:
        Rejected: `bad_schema`.
    """
    fields = _load(blob, "entities")
    entities = tuple(_entity(item) for item in _items(fields, "entities", MAX_ENTITIES))
    if len({(item.entity, item.part) for item in entities}) < len(entities):
        _refuse("an entity and part stand twice")
    return EntityTable(_kind(fields), _text(fields.get("host_id")), _text(fields.get("rack")), entities)


def group_layouts(schema: Schema) -> tuple[GroupLayout, ...]:
    """Return where the columns of each dtype lie.

    Raises:
        Rejected: `bad_schema` when columns are not sorted as `make_schema` sorts them.
    """
    keys = [_column_key(column) for column in schema.columns]
    _require_ascending(keys, "columns")
    orders = [order for order, _ in keys]
    types = list(NUMPY_TYPES.values())
    return tuple(GroupLayout(types[order], orders.index(order), orders.count(order)) for order in dict.fromkeys(orders))


def width_layouts(groups: Sequence[GroupLayout]) -> tuple[WidthLayout, ...]:
    """Return where the columns of each width lie."""
    found = []
    for width, items in groupby(groups, key=lambda group: group.dtype.itemsize):
        same = tuple(items)
        columns = sum(group.columns for group in same)
        found.append(WidthLayout(np.dtype(f"<u{width}"), same[0].first_column, columns, same))
    return tuple(found)


def named_schema(schema: Schema) -> KnownSchema:
    """Return a schema with blob, hash and layout; computed once per object, so senders should keep their schemas."""
    return _named_schema(_Identity(schema))


def named_entities(table: EntityTable) -> KnownEntities:
    """Return an entity table with blob and hash; computed once per object."""
    return _named_entities(_Identity(table))


class Definitions:
    """Bounded memory of parsed definitions by hash, least recently used out first. Safe to call from threads."""

    def __init__(self, max_entries: int = 4096, max_bytes: int = 64 << 20) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._bytes = 0
        self._known: OrderedDict[bytes, KnownSchema | KnownEntities] = OrderedDict()
        self._lock = Lock()

    def add(self, blob: bytes) -> bytes:
        """Parse and keep a blob; return its hash. Adding one again is cheap.

        Raises:
            Rejected: `bad_schema`.
        """
        name = definition_hash(blob)
        if self._find(name) is None:
            self._keep(_parse(blob, name))
        return name

    def schema(self, name: bytes) -> Schema | None:
        """Return the schema of this hash, or None."""
        known = self.known_schema(name)
        return known.schema if known else None

    def entities(self, name: bytes) -> EntityTable | None:
        """Return the entity table of this hash, or None."""
        known = self._find(name)
        return known.table if isinstance(known, KnownEntities) else None

    def known_schema(self, name: bytes) -> KnownSchema | None:
        """Return the schema of this hash with its layout, or None."""
        known = self._find(name)
        return known if isinstance(known, KnownSchema) else None

    def _find(self, name: bytes) -> KnownSchema | KnownEntities | None:
        with self._lock:
            known = self._known.get(name)
            if known is not None:
                self._known.move_to_end(name)
            return known

    def _keep(self, known: KnownSchema | KnownEntities) -> None:
        with self._lock:
            if known.hash in self._known:
                return
            self._known[known.hash] = known
            self._bytes += len(known.blob)
            while len(self._known) > 1 and (len(self._known) > self._max_entries or self._bytes > self._max_bytes):
                _, dropped = self._known.popitem(last=False)
                self._bytes -= len(dropped.blob)


class _Identity:
    """A key equal only to a key of the same object; holds the object, so its id cannot be reused."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value is other.value


@lru_cache(maxsize=64)
def _named_schema(key: _Identity) -> KnownSchema:
    blob = schema_blob(key.value)
    return _known_schema(key.value, blob, definition_hash(blob))


@lru_cache(maxsize=16_384)
def _named_entities(key: _Identity) -> KnownEntities:
    blob = entity_table_blob(key.value)
    return KnownEntities(key.value, blob, definition_hash(blob))


def _parse(blob: bytes, name: bytes) -> KnownSchema | KnownEntities:
    if blob.startswith(b'{"type":"entities"'):
        return KnownEntities(parse_entity_table(blob), blob, name)
    return _known_schema(parse_schema(blob), blob, name)


def _known_schema(schema: Schema, blob: bytes, name: bytes) -> KnownSchema:
    groups = group_layouts(schema)
    row_bytes = sum(group.columns * group.dtype.itemsize for group in groups)
    return KnownSchema(schema, blob, name, groups, width_layouts(groups), row_bytes)


def _column_key(column: Column) -> tuple[int, str]:
    return DTYPE_ORDER.get(column.dtype, len(DTYPE_ORDER)), column.metric


def _dump(fields: dict[str, Any]) -> bytes:
    try:
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        raise Rejected("bad_schema", f"a definition cannot be written: {error}") from error


def _load(blob: bytes, kind: str) -> dict[str, Any]:
    if len(blob) > MAX_BLOB_BYTES:
        _refuse(f"{len(blob)} bytes are more than {MAX_BLOB_BYTES}")
    try:
        fields = json.loads(blob, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise Rejected("bad_schema", "a definition is not JSON") from error
    if not isinstance(fields, dict) or fields.get("type") != kind:
        _refuse(f"not a definition of type {kind}")
    return fields


def _kind(fields: dict[str, Any]) -> EntityKind:
    try:
        return EntityKind(str(fields.get("kind")))
    except ValueError as error:
        raise Rejected("bad_schema", "unknown entity kind") from error


def _items(fields: dict[str, Any], name: str, maximum: int) -> list[Any]:
    items = fields.get(name)
    if not isinstance(items, list) or len(items) > maximum:
        _refuse(f"{name} is not a list of at most {maximum}")
    return items


def _tuple(item: Any, length: int) -> list[Any]:
    if not isinstance(item, list) or len(item) != length:
        _refuse(f"not a list of {length}")
    return item


def _column(item: Any) -> Column:
    metric, unit, dtype, resolution = _tuple(item, 4)
    if not isinstance(dtype, str) or dtype not in NUMPY_TYPES:
        _refuse("unknown dtype")
    size = _number(resolution)
    if (size != 0.0) if dtype == "f64" else (size <= 0.0):
        _refuse("a resolution does not fit its dtype")
    return Column(_name(metric), _text(unit), dtype, size)


def _histogram(item: Any) -> HistogramColumn:
    metric, unit, bounds = _tuple(item, 3)
    if not isinstance(bounds, list) or len(bounds) > MAX_BOUNDS:
        _refuse(f"bounds are not a list of at most {MAX_BOUNDS}")
    numbers = [_number(bound) for bound in bounds]
    _require_ascending(numbers, "bounds")
    return HistogramColumn(_name(metric), _text(unit), tuple(numbers))


def _entity(item: Any) -> Entity:
    entity, part, attributes = _tuple(item, 3)
    if not isinstance(attributes, list) or len(attributes) > MAX_ATTRIBUTES:
        _refuse(f"attributes are not a list of at most {MAX_ATTRIBUTES}")
    pairs = [(_name(name), _text(value)) for name, value in (_tuple(pair, 2) for pair in attributes)]
    _require_ascending([name for name, _ in pairs], "attributes")
    return Entity(_text(entity), _text(part), tuple(pairs))


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        _refuse("not a number")
    try:
        number = float(value)
    except OverflowError as error:
        raise Rejected("bad_schema", "a number is out of range") from error
    if not math.isfinite(number):
        _refuse("a number is not finite")
    return number


def _name(value: Any) -> str:
    return _text(value) or _refuse("a name is empty")


def _text(value: Any) -> str:
    if not isinstance(value, str) or not is_text(value):
        _refuse(f"not a text of at most {MAX_TEXT_LENGTH} characters")
    return value


def is_text(value: str, maximum_length: int = MAX_TEXT_LENGTH) -> bool:
    """Tell whether a string is short enough, has no NUL and can be written as UTF-8."""
    if len(value) > maximum_length or "\0" in value:
        return False
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def _require_ascending(keys: Sequence[Any], name: str) -> None:
    if any(later <= earlier for earlier, later in pairwise(keys)):
        _refuse(f"{name} are not sorted and unique")


def _refuse(message: str) -> NoReturn:
    raise Rejected("bad_schema", message)
