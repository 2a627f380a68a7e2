"""Turn several frames of one collector into one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from secondsight.wire.content import Content, Frame, Group, Header, HistogramRows, ScalarBlock, Values
from secondsight.wire.header import Stamp, stamp_of


def merge_key(header: Header) -> tuple[object, ...]:
    """Return what frames must have in common to be merged."""
    return (
        header.kind,
        header.collector_id,
        header.host_id,
        header.source,
        header.spool_id,
        header.boot_id,
        header.interval_ms,
        header.correction_ms,
        header.live,
        header.schema_hash,
        header.entities_hash,
    )


def merge(frames: Sequence[Frame]) -> tuple[Stamp, Content]:
    """Concatenate the ticks of frames of one `merge_key`; clock offset and uncertainty are the last frame's.

    Frames should not overlap: two rows of one entity and tick are refused when the result is encoded.

    Raises:
        ValueError: There is no frame, or keys differ.
    """
    if len({merge_key(frame.header) for frame in frames}) != 1:
        raise ValueError("frames to merge must be of one collector, schema and entity table")
    headers = [frame.header for frame in frames]
    times = np.array(sorted({time for header in headers for time in header.tick_times_ms.tolist()}), np.int64)
    stamp = replace(
        stamp_of(headers[-1]),
        first_sequence=min(header.first_sequence for header in headers),
        last_sequence=max(header.last_sequence for header in headers),
        tick_times_ms=times,
    )
    shifts = [np.searchsorted(times, header.tick_times_ms).astype(np.uint16) for header in headers]
    return stamp, join([frame.content for frame in frames], shifts)


def join(contents: Sequence[Content], shifts: Sequence[Values]) -> Content:
    """Concatenate contents of equal definitions; tick i of a content is tick `shift[i]` of the result (u16)."""
    return Content(
        schema=contents[0].schema,
        entities=contents[0].entities,
        scalars=_merge_scalars([(item.scalars, shift) for item, shift in zip(contents, shifts, strict=True)]),
        histograms=_merge_histograms(contents, shifts),
        events=tuple(event for item in contents for event in item.events),
        infos=tuple(info for item in contents for info in item.infos),
    )


def _merge_scalars(pieces: Sequence[tuple[ScalarBlock | None, Values]]) -> ScalarBlock | None:
    blocks = [(block, shift) for block, shift in pieces if block is not None]
    if not blocks:
        return None
    only = [block for block, _ in blocks]
    starts = np.cumsum([0, *(len(block.entity_index) for block in only[:-1])])
    row = np.concatenate(
        [block.quality_row + np.uint32(start) for block, start in zip(only, starts, strict=True)], dtype=np.uint32
    )
    column = np.concatenate([block.quality_column for block in only])
    order = np.lexsort((row, column))
    return ScalarBlock(
        entity_index=np.concatenate([block.entity_index for block in only]),
        tick_index=np.concatenate([shift[block.tick_index] for block, shift in blocks]),
        observed_delta_ms=np.concatenate([block.observed_delta_ms for block in only]),
        groups=tuple(_merge_group(groups) for groups in zip(*(block.groups for block in only), strict=True)),
        quality_row=row[order],
        quality_column=column[order],
        quality=np.concatenate([block.quality for block in only])[order],
    )


def _merge_group(groups: Sequence[Group]) -> Group:
    values = np.concatenate([group.values for group in groups], axis=1)
    if all(group.present is None for group in groups):
        return Group(groups[0].first_column, values, None)
    present = [np.ones(group.values.shape, np.bool_) if group.present is None else group.present for group in groups]
    return Group(groups[0].first_column, values, np.concatenate(present, axis=1))


def _merge_histograms(contents: Sequence[Content], shifts: Sequence[Values]) -> tuple[HistogramRows, ...]:
    pieces: dict[int, list[tuple[HistogramRows, Values]]] = {}
    for content, shift in zip(contents, shifts, strict=True):
        for rows in content.histograms:
            pieces.setdefault(rows.column, []).append((rows, shift))
    return tuple(_merge_histogram(column, items) for column, items in sorted(pieces.items()))


def _merge_histogram(column: int, items: Sequence[tuple[HistogramRows, Values]]) -> HistogramRows:
    def joined(name: str) -> Any:
        return np.concatenate([getattr(rows, name) for rows, _ in items])

    ticks = np.concatenate([shift[rows.tick_index] for rows, shift in items])
    return HistogramRows(
        column, joined("entity_index"), ticks, joined("buckets"), joined("sums"), joined("start_times_ms")
    )
