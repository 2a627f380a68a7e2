"""Find what a frame carries beside its scalars that the catalogue does not have, or has otherwise.

Scalar columns are judged once per schema, see `columns.py`; histograms, events and infos are judged as they come.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.index import Catalog
from secondsight.catalog.metric import MetricType
from secondsight.model import EntityKind, Quality
from secondsight.wire.content import Content, Event, Frame, Group, HistogramRows, Info

FUTURE_TIME = "future_time"


class Item(NamedTuple):
    """What items of one metric are: their type and the metric's name."""

    type: MetricType
    metric: str


def misfits(content: Content, catalog: Catalog) -> Mapping[tuple[Item, str], int]:
    """Return (item, reason) -> how many rows, events or infos have no place in the tables."""
    if not (content.histograms or content.events or content.infos):
        return {}
    kind, found = content.schema.kind, Counter[tuple[Item, str]]()
    for item, unit, count in _items(content):
        reason = _reason(item, unit, kind, catalog)
        if reason:
            found[item, reason] += count
    return found


def fitting(content: Content, catalog: Catalog) -> Content:
    """Return a content with only those histograms, events and infos that have a place."""
    refused = {item for item, _ in misfits(content, catalog)}
    if not refused:
        return content
    columns = content.schema.histograms
    return replace(
        content,
        histograms=tuple(
            rows
            for rows in content.histograms
            if Item(MetricType.HISTOGRAM, columns[rows.column].metric) not in refused
        ),
        events=tuple(event for event in content.events if Item(MetricType.EVENT, event.metric) not in refused),
        infos=tuple(info for info in content.infos if Item(MetricType.INFO, info.metric) not in refused),
    )


def numbers_alone(frame: Frame) -> Frame:
    """Return a frame whose floats that are no numbers are absent, as out of range; no agent sends such."""
    scalars = frame.content.scalars
    if scalars is None:
        return frame
    bad = [_no_numbers(group) for group in scalars.groups]
    if not any(map(np.any, bad)):
        return frame
    groups, cells = [], []
    for group, wrong in zip(scalars.groups, bad, strict=True):
        present = ~wrong if group.present is None else group.present & ~wrong
        groups.append(replace(group, values=np.where(wrong, group.values.dtype.type(0), group.values), present=present))
        column, row = np.nonzero(wrong)
        cells.append(np.stack([column + group.first_column, row]))
    column, row = np.concatenate(cells, axis=1)
    listed = ~np.isin(_cells(scalars.quality_column, scalars.quality_row), _cells(column, row))
    row, column = np.append(scalars.quality_row[listed], row), np.append(scalars.quality_column[listed], column)
    quality = np.append(scalars.quality[listed], np.full(row.size - int(listed.sum()), Quality.BAD_RANGE, np.uint8))
    made = replace(
        scalars,
        groups=tuple(groups),
        quality_row=row.astype(np.uint32),
        quality_column=column.astype(np.uint16),
        quality=quality.astype(np.uint8),
    )
    return Frame(frame.header, replace(frame.content, scalars=made))


def _no_numbers(group: Group) -> NDArray[np.bool_]:
    """Tell which cells of a group have a value that is no number."""
    if group.values.dtype.kind != "f":
        return np.zeros(group.values.shape, np.bool_)
    wrong: NDArray[np.bool_] = ~np.isfinite(group.values)
    return wrong if group.present is None else wrong & group.present


def _cells(column: NDArray[Any], row: NDArray[Any]) -> NDArray[np.int64]:
    """Number cells by their place."""
    return column.astype(np.int64) << 32 | row.astype(np.int64)


def with_sums(rows: HistogramRows) -> HistogramRows:
    """Return the rows of a histogram whose sum is a number."""
    there = np.isfinite(rows.sums)
    names = ("entity_index", "tick_index", "buckets", "sums", "start_times_ms")
    return rows if there.all() else replace(rows, **{name: getattr(rows, name)[there] for name in names})


def timely(content: Content, correction_ms: int, latest_ms: int) -> tuple[Content, Counter[tuple[str, str]]]:
    """Return a content with only events and infos of a possible time, and (metric, code) -> how many others it had."""
    found: Counter[tuple[str, str]] = Counter()

    def is_timely(item: Event | Info) -> bool:
        code = _bad_time(item.time_ms + correction_ms, latest_ms)
        found.update([(item.metric, code)] if code else ())
        return not code

    events = tuple(event for event in content.events if is_timely(event))
    infos = tuple(info for info in content.infos if is_timely(info))
    return (replace(content, events=events, infos=infos) if found else content), found


def _bad_time(time_ms: int, latest_ms: int) -> str:
    """Return why a time is impossible, or ""."""
    if time_ms > latest_ms:
        return FUTURE_TIME
    return "bad_time" if time_ms < 0 else ""


def column_values(content: Content, metric: str) -> int:
    """Return how many values a frame has of one column of its schema."""
    place = [column.metric for column in content.schema.columns].index(metric)
    for group in content.scalars.groups if content.scalars is not None else ():
        row = place - group.first_column
        if 0 <= row < group.values.shape[0]:
            return group.values.shape[1] if group.present is None else int(group.present[row].sum())
    return 0


def _items(content: Content) -> Iterator[tuple[Item, str | None, int]]:
    """Give (item, unit where the frame says one, count)."""
    for rows in content.histograms:
        column = content.schema.histograms[rows.column]
        yield Item(MetricType.HISTOGRAM, column.metric), column.unit, len(rows.entity_index)
    for event in content.events:
        yield Item(MetricType.EVENT, event.metric), None, 1
    for info in content.infos:
        yield Item(MetricType.INFO, info.metric), None, 1


def _reason(item: Item, unit: str | None, kind: EntityKind, catalog: Catalog) -> str:
    """Return why items have no place, or ""; events and infos may come with frames of any kind."""
    metric = catalog.get(item.metric) if item.metric in catalog else None
    if metric is None or metric.type is not item.type or (unit is not None and metric.kind is not kind):
        return "unknown_metric"
    return "" if unit is None or unit == metric.unit else "unit_mismatch"
