"""Turn log records into frames, and frames into pieces of windows.

Definitions come from the log topic `definitions`, which is read from its beginning and again when a frame names a hash
that is not known yet. Event time is the frame's tick plus the correction that the frame itself states.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from secondsight.contracts import LogConsumer
from secondsight.errors import Rejected
from secondsight.model import Quality
from secondsight.process.cells import WINDOW_MS, window_start
from secondsight.process.columns import GroupPlan, SchemaPlan
from secondsight.process.pieces import Block, Origin, Piece, select_rows
from secondsight.process.series import I32
from secondsight.wire.content import Frame, Group, Header, ScalarBlock
from secondsight.wire.envelope import Envelope
from secondsight.wire.frame import OpenFrame, open_frame
from secondsight.wire.header import HeadView
from secondsight.wire.schema import Definitions

FUTURE_MS = 300_000
"""Samples further ahead of their admission than this are refused."""
UNCERTAIN_MS = 200
OFFSET_MS = 1000
POLL_BYTES = 8 << 20


class DefinitionReader:
    """Keeps the definitions of the log topic; one thread uses it.

    Args:
        open_topic: Opens the topic `definitions` at its beginning.
        definitions: Where to keep them; what it forgets is read again when it is asked for.
    """

    def __init__(self, open_topic: Callable[[], LogConsumer], definitions: Definitions | None = None) -> None:
        self.definitions = definitions or Definitions(max_entries=1 << 17, max_bytes=128 << 20)
        self._open_topic = open_topic
        self._consumer = open_topic()
        self._missing: OrderedDict[bytes, None] = OrderedDict()

    def read(self) -> int:
        """Take in what is new in the topic; return the number of records.

        Raises:
            Retryable: The log is away.
        """
        count = 0
        while records := self._consumer.poll(POLL_BYTES, 0.0).records:
            for record in records:
                self._learn(record.value)
            count += len(records)
        return count

    def open(self, envelope: Envelope) -> OpenFrame:
        """Open the frame of an envelope.

        Raises:
            Rejected: As `wire.frame.open_frame`; `schema_unknown` after the topic was searched.
            Retryable: The log is away.
        """
        try:
            return open_frame(envelope.body, self.definitions)
        except Rejected as error:
            if error.code != "schema_unknown":
                raise
        self.read()
        try:
            return open_frame(envelope.body, self.definitions)
        except Rejected as error:
            if error.code != "schema_unknown" or not self._search(envelope.body):
                raise
        return open_frame(envelope.body, self.definitions)

    def close(self) -> None:
        """Close the topic; may be called twice."""
        self._consumer.close()

    def _search(self, body: bytes) -> bool:
        """Read the topic again from its beginning, once per body that needs it; return whether it was read."""
        key = crc32(body).to_bytes(4, "little")
        if key in self._missing:
            return False
        self._missing[key] = None
        while len(self._missing) > 1024:
            self._missing.popitem(last=False)
        self._consumer.close()
        self._consumer = self._open_topic()
        return self.read() > 0

    def _learn(self, blob: bytes) -> None:
        try:
            self.definitions.add(blob)
        except Rejected:
            return


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows of a frame by window.

    Attributes:
        pieces: (window start, piece).
        future_rows, future_values: Rows refused because their time lies too far ahead, and their values.
        newest_ms: Newest event time that was taken, or 0.
    """

    pieces: list[tuple[int, Piece]]
    future_rows: int
    future_values: int
    newest_ms: int


@dataclass(frozen=True, slots=True)
class Subjects:
    """What a frame's rows are about: series id by position in the entity table, and the collector's code."""

    series: I32
    collector: int


def decode_rows(frame: Frame, ingest_ms: int, plan: SchemaPlan, subjects: Subjects) -> Decoded:
    """Turn the scalar rows of a frame into pieces."""
    scalars = frame.content.scalars
    if scalars is None or not scalars.entity_index.size:
        return Decoded([], 0, 0, 0)
    header = frame.header
    time_ms = (header.tick_times_ms + header.correction_ms)[scalars.tick_index]
    piece = _piece(header, scalars, time_ms, ingest_ms, subjects)
    piece.blocks = _blocks(scalars, plan)
    future = time_ms > ingest_ms + FUTURE_MS
    if not future.any():
        return Decoded(_by_window(piece), 0, 0, int(time_ms.max()))
    kept = np.flatnonzero(~future)
    lost = int(future.sum())
    values = _value_count(scalars, np.flatnonzero(future))
    if not kept.size:
        return Decoded([], lost, values, 0)
    return Decoded(_by_window(select_rows(piece, kept)), lost, values, int(time_ms[kept].max()))


def origin_of(header: Header | HeadView) -> Origin:
    """Return what describes the rows of a frame."""
    uncertain = header.clock_uncertainty_ms >= UNCERTAIN_MS and abs(header.clock_offset_ms or 0) > OFFSET_MS
    return Origin(
        header.spool_id,
        header.first_sequence,
        int.from_bytes(header.schema_hash[:8], "little"),
        header.correction_ms,
        header.boot_id,
        header.source,
        uncertain,
    )


def _piece(
    header: Header, scalars: ScalarBlock, time_ms: NDArray[np.int64], ingest_ms: int, subjects: Subjects
) -> Piece:
    rows = scalars.entity_index.size
    return Piece(
        collector=subjects.collector,
        series=subjects.series[scalars.entity_index],
        time_ms=time_ms,
        observed_delta_ms=scalars.observed_delta_ms,
        interval_ms=np.full(rows, header.interval_ms, np.int64),
        ingest_ms=np.full(rows, ingest_ms, np.int64),
        origins=(origin_of(header),),
        origin_of=np.zeros(rows, np.int32),
        blocks=(),
    )


def _by_window(piece: Piece) -> list[tuple[int, Piece]]:
    first, last = window_start(int(piece.time_ms.min())), window_start(int(piece.time_ms.max()))
    if first == last:
        return [(first, piece)]
    starts = piece.time_ms - piece.time_ms % WINDOW_MS
    return [(start, select_rows(piece, np.flatnonzero(starts == start))) for start in np.unique(starts).tolist()]


def _blocks(scalars: ScalarBlock, plan: SchemaPlan) -> list[Block]:
    blocks = [_block(scalars.groups[group.source], group) for group in plan.groups]
    if scalars.quality.size:
        _put_quality(blocks, scalars, plan)
    return blocks


def _block(group: Group, plan: GroupPlan) -> Block:
    values = group.values if plan.rows is None else group.values[plan.rows]
    present = group.present if group.present is None or plan.rows is None else group.present[plan.rows]
    quality = None if present is None else present.astype(np.uint8)
    return Block(plan.target, plan.columns, values, quality)


def _put_quality(blocks: list[Block], scalars: ScalarBlock, plan: SchemaPlan) -> None:
    """Write the listed qualities into the blocks' quality matrices."""
    group = plan.cell_group[scalars.quality_column]
    column = plan.cell_column[scalars.quality_column]
    for block in blocks:
        listed = np.flatnonzero(group == block.group)
        if not listed.size:
            continue
        if block.quality is None:
            block.quality = np.full(block.values.shape, Quality.OK, np.uint8)
        place = np.full(int(block.columns.max()) + 1, -1, np.intp)
        place[block.columns] = np.arange(block.columns.size)
        block.quality[place[column[listed]], scalars.quality_row[listed]] = scalars.quality[listed]


def _value_count(scalars: ScalarBlock, rows: NDArray[np.intp]) -> int:
    return sum(
        group.values.shape[0] * rows.size if group.present is None else int(group.present[:, rows].sum())
        for group in scalars.groups
    )
