"""Turn one content of one tick into bytes and back, for a file that only this agent reads.

Much cheaper than a frame: arrays as they are, nothing compressed, nothing checked that the reading end cannot check by
the record's length. Definitions are named by hash.
"""

from struct import Struct
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from secondsight.errors import Rejected
from secondsight.wire.content import Content, Group, HistogramRows, ScalarBlock
from secondsight.wire.header import Stamp
from secondsight.wire.schema import Definitions, KnownSchema, named_entities, named_schema

_HEAD = Struct("<16s16sqIqI??BIIQ")
"""Hashes, tick, interval, offset, uncertainty, offset is known, live, histograms, rows, qualities, groups with gaps."""

_HISTOGRAM = Struct("<HI")
_NO_ROWS = 2**32 - 1
"""Rows of a content without scalars."""


class _Cursor:
    """Takes pieces off a record."""

    def __init__(self, raw: bytes, at: int) -> None:
        self.raw = raw
        self.at = at

    def take(self, size_bytes: int) -> bytes:
        piece = self.raw[self.at : self.at + size_bytes]
        if len(piece) < size_bytes:
            _refuse()
        self.at += size_bytes
        return piece

    def text(self) -> str:
        return self.take(int.from_bytes(self.take(2), "little")).decode()

    def array(self, dtype: Any, *shape: int) -> NDArray[Any]:
        count = int(np.prod(shape))
        return np.frombuffer(self.take(count * np.dtype(dtype).itemsize), dtype).reshape(shape)


def pack(stamp: Stamp, content: Content) -> bytes:
    """Return the record of a content of one tick without events and facts."""
    block = content.scalars
    gaps = 0 if block is None else sum((g.present is not None) << place for place, g in enumerate(block.groups))
    head = _HEAD.pack(
        named_schema(content.schema).hash,
        named_entities(content.entities).hash,
        int(stamp.tick_times_ms[0]),
        stamp.interval_ms,
        stamp.clock_offset_ms or 0,
        stamp.clock_uncertainty_ms,
        stamp.clock_offset_ms is not None,
        stamp.live,
        len(content.histograms),
        _NO_ROWS if block is None else len(block.entity_index),
        0 if block is None else len(block.quality),
        gaps,
    )
    parts = [head, *(_text(text) for text in (stamp.collector_id, stamp.host_id, stamp.source, stamp.boot_id))]
    if block is not None:
        parts += [block.entity_index.tobytes(), block.observed_delta_ms.tobytes()]
        for group in block.groups:
            parts.append(group.values.tobytes())
            if group.present is not None:
                parts.append(group.present.tobytes())
        parts += [block.quality_row.tobytes(), block.quality_column.tobytes(), block.quality.tobytes()]
    for rows in content.histograms:
        parts += [_HISTOGRAM.pack(rows.column, len(rows.entity_index)), rows.entity_index.tobytes()]
        parts += [rows.buckets.tobytes(), rows.sums.tobytes(), rows.start_times_ms.tobytes()]
    return b"".join(parts)


def unpack(record: bytes, known: Definitions) -> tuple[Stamp, Content]:
    """Return what was packed.

    Raises:
        Rejected: `bad_frame`, or `schema_unknown` when its definitions are lost.
    """
    if len(record) < _HEAD.size:
        _refuse()
    schema_hash, entities_hash, tick_ms, interval_ms, offset_ms, uncertainty_ms, *rest = _HEAD.unpack_from(record)
    offset_known, live, histograms, rows, qualities, gaps = rest
    schema, entities = known.known_schema(schema_hash), known.entities(entities_hash)
    if schema is None or entities is None:
        raise Rejected("schema_unknown", "definitions of a held tick are lost")
    cursor = _Cursor(record, _HEAD.size)
    collector_id, host_id, source, boot_id = (cursor.text() for _ in range(4))
    stamp = Stamp(
        collector_id=collector_id,
        host_id=host_id,
        source=source,
        spool_id=0,
        first_sequence=0,
        last_sequence=0,
        tick_times_ms=np.array([tick_ms], np.int64),
        interval_ms=interval_ms,
        boot_id=boot_id,
        clock_offset_ms=offset_ms if offset_known else None,
        clock_uncertainty_ms=uncertainty_ms,
        live=live,
    )
    scalars = None if rows == _NO_ROWS else _scalars(cursor, schema, rows, qualities, gaps)
    found = tuple(_histogram(cursor, schema) for _ in range(histograms))
    return stamp, Content(schema.schema, entities, scalars, found)


def _scalars(cursor: _Cursor, schema: KnownSchema, rows: int, qualities: int, gaps: int) -> ScalarBlock:
    entity_index, delta_ms = cursor.array(np.uint32, rows), cursor.array(np.int32, rows)
    groups = []
    for place, layout in enumerate(schema.groups):
        values = cursor.array(layout.dtype, layout.columns, rows)
        present = cursor.array(np.bool_, layout.columns, rows) if gaps >> place & 1 else None
        groups.append(Group(layout.first_column, values, present))
    listed = cursor.array(np.uint32, qualities), cursor.array(np.uint16, qualities), cursor.array(np.uint8, qualities)
    return ScalarBlock(entity_index, np.zeros(rows, np.uint16), delta_ms, tuple(groups), *listed)


def _histogram(cursor: _Cursor, schema: KnownSchema) -> HistogramRows:
    column, rows = _HISTOGRAM.unpack(cursor.take(_HISTOGRAM.size))
    if column >= len(schema.schema.histograms):
        _refuse()
    buckets = len(schema.schema.histograms[column].bounds) + 1
    return HistogramRows(
        column=column,
        entity_index=cursor.array(np.uint32, rows),
        tick_index=np.zeros(rows, np.uint16),
        buckets=cursor.array(np.uint64, rows, buckets),
        sums=cursor.array(np.float64, rows),
        start_times_ms=cursor.array(np.int64, rows),
    )


def _text(text: str) -> bytes:
    raw = text.encode()
    return len(raw).to_bytes(2, "little") + raw


def _refuse() -> NoReturn:
    raise Rejected("bad_frame", "a held tick is cut short")
