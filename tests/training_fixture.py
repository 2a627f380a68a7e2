"""What ticks of the training readers say, as JSON that a person can read."""

from typing import Any

from secondsight.catalog.load import load_catalog
from secondsight.catalog.scale import to_physical
from secondsight.contracts import Tick
from secondsight.model import Quality

NAMES_OF_QUALITY = {quality.value: quality.name.lower() for quality in Quality}


def told(tick: Tick) -> dict[str, Any]:
    """Return values, durations as [observations, sum], events and facts of one tick; a quality where no value is."""
    out: dict[str, Any] = {"values": {}, "durations": {}, "events": [], "facts": {}}
    for content in tick.contents:
        _values(content, out["values"])
        _durations(content, out["durations"])
        for event in content.events:
            out["events"].append(
                [
                    event.metric,
                    event.entity,
                    event.code,
                    event.time_ms,
                    event.end_ms,
                    dict(sorted(event.attributes.items())),
                ]
            )
        for info in content.infos:
            out["facts"][f"{info.metric} {info.entity}"] = dict(sorted(info.attributes.items()))
    return {name: found for name, found in out.items() if found}


def _values(content: Any, values: dict[str, Any]) -> None:
    block = content.scalars
    if block is None:
        return
    qualities = {
        (int(row), int(column)): int(quality)
        for row, column, quality in zip(block.quality_row, block.quality_column, block.quality, strict=True)
    }
    for group in block.groups:
        for offset in range(group.values.shape[0]):
            column = group.first_column + offset
            metric = load_catalog().get(content.schema.columns[column].metric)
            for row, index in enumerate(block.entity_index):
                subject = content.entities.entities[int(index)]
                key = f"{metric.name} {subject.entity} {subject.part}".strip()
                if group.present is None or group.present[offset, row]:
                    values[key] = to_physical(metric, group.values[offset, row].item())
                elif (row, column) in qualities:
                    values[key] = NAMES_OF_QUALITY[qualities[row, column]]


def _durations(content: Any, durations: dict[str, Any]) -> None:
    for rows in content.histograms:
        metric = content.schema.histograms[rows.column].metric
        for number, index in enumerate(rows.entity_index):
            subject = content.entities.entities[int(index)]
            key = f"{metric} {subject.entity} {subject.part}".strip()
            durations[key] = [int(rows.buckets[number].sum()), round(float(rows.sums[number]), 9)]
