"""Turn what is read rarely of the parts of GPUs into rows: NVLinks, fans, memory banks, errors by kind.

These rows have a slower cadence than those of the GPUs, so they are a collector of their own.
"""

import re
from collections.abc import Iterator

from secondsight.agent.nvml.plan import PartSlot
from secondsight.agent.nvml.rows import CODES, NOT_SUPPORTED, QUALITY_OF_CODE
from secondsight.agent.nvml.source import GpuSource, RareReading
from secondsight.catalog.scale import conversion
from secondsight.contracts import Tick
from secondsight.mapping.cells import Cell, ContentBuilder, Gathered, part_text
from secondsight.model import EntityKind, Quality

COLLECTOR = "nvml-parts"
FRESH_SECONDS, FRESH_TICKS = 40.0, 2
"""What is older is not told again, in seconds and in ticks of the GPUs; the greater counts."""

_NUMBERED = re.compile(r"(FI \d+)@(\d+)|(nvml\w+)\((\d+)\)").fullmatch


class PartsReader:
    """Tells of parts what the child last read; asks the driver nothing. See `contracts.Reader`."""

    def __init__(self, source: GpuSource) -> None:
        self.name = COLLECTOR
        self.interval_ms = source.settings.parts_interval_ms
        self._source = source
        self._builder = ContentBuilder(source.host.host_id, source.host.rack)

    def read(self, tick_ms: int) -> Tick:
        """Take one tick of rows of parts."""
        gathered = Gathered()
        now = self._source.clock.monotonic_seconds()
        fresh_seconds = max(FRESH_SECONDS, FRESH_TICKS * self._source.host.interval_ms / 1000)
        for uuid, reading in self._source.rare.items():
            if now - reading.monotonic_seconds <= fresh_seconds:
                gathered.cells += self._cells(uuid, reading)
        contents = self._builder.build(gathered, self._source.clock.now_ms() - tick_ms)
        return Tick(contents, collector=COLLECTOR, source="nvml")

    def close(self) -> None:
        """Nothing is held."""

    def _cells(self, uuid: str, reading: RareReading) -> Iterator[Cell]:
        for place, text in enumerate(reading.names):
            name, number = numbered(text)
            for slot in self._source.plan.parts.get(name, ()):
                code = int(reading.decoded.codes[0, place])
                is_better_there = slot.source.rank > 0 and slot.metric.name in reading.has
                if not is_better_there and QUALITY_OF_CODE[min(code, CODES - 1)] != NOT_SUPPORTED_QUALITY:
                    yield self._cell(uuid, slot, number, (reading, place, code))

    def _cell(self, uuid: str, slot: PartSlot, number: str, at: tuple[RareReading, int, int]) -> Cell:
        reading, place, code = at
        pairs = list(slot.source.part)
        entity = uuid
        if slot.metric.kind is EntityKind.FABRIC_PORT:
            entity = f"{self._source.host.host_id}/{uuid}/{number}"
        elif slot.label:
            pairs.append((slot.label, number))
        if code:
            return Cell(slot.metric, entity, part_text(pairs), None, Quality(QUALITY_OF_CODE[min(code, CODES - 1)]))
        value = reading.decoded.odd.get((0, place), int(reading.decoded.whole[0, place]))
        stored, quality = conversion(slot.metric, slot.source).one(value)
        return Cell(slot.metric, entity, part_text(pairs), stored, quality)


NOT_SUPPORTED_QUALITY = QUALITY_OF_CODE[NOT_SUPPORTED]


def numbered(text: str) -> tuple[str, str]:
    """Return the name of the catalogue and the number of the part, "" where the name has none."""
    found = _NUMBERED(text)
    if found is None:
        return text, ""
    return (found[1], found[2]) if found[1] else (found[3], found[4])
