"""What a one-tick content holds, as physical values by name."""

from typing import Any

from secondsight.catalog.load import load_catalog
from secondsight.catalog.scale import to_physical
from secondsight.model import Quality
from secondsight.wire.content import Content


def cells_of(content: Content, *, with_entity: bool = False) -> dict[str, Any]:
    """Return `metric part` (behind its entity, if asked) -> physical value, or the quality where there is no value."""
    block = content.scalars
    found: dict[str, Any] = {}
    if block is None:
        return found
    keys = [content.entities.entities[index] for index in block.entity_index]

    def name_of(metric: str, row: int) -> str:
        entity = f"{keys[row].entity} " if with_entity else ""
        return f"{entity}{metric} {keys[row].part}".strip()

    for group in block.groups:
        for offset, row in enumerate(group.values):
            metric = load_catalog().get(content.schema.columns[group.first_column + offset].metric)
            for position, value in enumerate(row):
                if group.present is None or group.present[offset, position]:
                    found[name_of(metric.name, position)] = to_physical(metric, value.item())
    for row, column, quality in zip(block.quality_row, block.quality_column, block.quality, strict=True):
        found.setdefault(name_of(content.schema.columns[column].metric, row), Quality(quality).name.lower())
    return found
