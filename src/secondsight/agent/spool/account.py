"""Turn records into the losses that are declared for them: one per collector and kind."""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from secondsight.agent.spool.losses import Loss, LossReason
from secondsight.agent.spool.ranges import Span
from secondsight.agent.spool.reading import SpoolRecord
from secondsight.agent.spool.tally import Tally, head_of
from secondsight.errors import Rejected
from secondsight.model import Priority
from secondsight.wire.header import HeadView, read_header

TickKey = tuple[bytes, bytes, str, int]
"""Hashes of schema and entity table, collector, and instant of a tick of a frame."""


def losses_of_frames(
    priority: Priority, reason: LossReason, records: Iterable[SpoolRecord], spool_id: int
) -> list[Loss]:
    """Return the losses of records whose heads can be read; others are in none."""
    found: dict[tuple[str, ...], Loss] = {}
    for record in records:
        head = head_of(record.payload)
        if head is not None:
            loss = _loss_of(priority, reason, head, (spool_id, record.sequence))
            found[loss.key] = found[loss.key].joined(loss) if loss.key in found else loss
    return list(found.values())


def losses_of_tally(unread: Loss, tally: Tally, span: Span) -> list[Loss]:
    """Return the losses of records [first, end) of which only the tally is known, and what is in no tally.

    Args:
        unread: What they have in common.
        tally: Their counts by kind.
        span: Their sequences.
    """
    first, end = span
    found = [
        _like(unread, kind.value, count.records, count.rows, count.values, span)
        for kind, count in tally.items()
        if count.records > 0
    ]
    rest = end - first - sum(loss.records for loss in found)
    return [*found, _like(unread, "", rest, 0, 0, span)] if rest > 0 else found


def ticks_of(records: Iterable[SpoolRecord]) -> set[TickKey]:
    """Return the ticks of records that can be read."""
    found: set[TickKey] = set()
    for record in records:
        with suppress(Rejected):
            header = read_header(record.payload).header
            place = (header.schema_hash, header.entities_hash, header.collector_id)
            found.update((*place, tick_ms) for tick_ms in header.tick_times_ms.tolist())
    return found


def span_of(heads: Sequence[HeadView]) -> tuple[int, int]:
    """Return the event times that heads reach over, corrected, the last tick with its interval; 0 where unknown."""
    timed = [head for head in heads if head.ticks]
    first = min((head.first_tick_ms + head.correction_ms for head in timed), default=0)
    last = max((head.last_tick_ms + head.correction_ms + head.interval_ms for head in timed), default=0)
    return first, last


def _loss_of(priority: Priority, reason: LossReason, head: HeadView, place: tuple[int, int]) -> Loss:
    first_ms, last_ms = span_of([head])
    spool_id, sequence = place
    return Loss(
        reason,
        priority,
        head.kind.value,
        head.collector_id,
        1,
        head.rows,
        head.values,
        first_ms,
        last_ms,
        spool_id,
        sequence,
        sequence,
    )


def _like(unread: Loss, kind: str, records: int, rows: int, values: int, span: Span) -> Loss:
    return Loss(
        unread.reason,
        unread.priority,
        kind,
        unread.collector_id,
        records,
        rows,
        values,
        unread.first_ms,
        unread.last_ms,
        unread.spool_id,
        span[0],
        span[1] - 1,
    )
