"""Turn a stretch of the waves into one body of native frames, as agents send them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from secondsight.canary.waves import I64, STEP_S, WAVES, Wave
from secondsight.catalog.index import Catalog
from secondsight.wire.content import Column, Content, Entity, EntityTable, Group, ScalarBlock
from secondsight.wire.frame import Stamp, encode
from secondsight.wire.schema import NUMPY_TYPES, make_schema

SOURCE = "canary"
UNCERTAINTY_MS = 5


@dataclass(slots=True)
class Framer:
    """Makes frames; sequences count on from 1 under one spool id.

    Attributes:
        spool_id: Random number of this life of the process.
    """

    catalog: Catalog
    spool_id: int
    sequence: int = 0

    def body(self, from_s: int, to_s: int) -> bytes:
        """Return the frames of what is to be sent for [from, to): the samples of it, and late ones that are due."""
        return b"".join(frame for wave in WAVES for frame in self._frames(wave, from_s, to_s))

    def _frames(self, wave: Wave, from_s: int, to_s: int) -> Iterator[bytes]:
        now_s = wave.samples(from_s, to_s)
        due_s = wave.samples(from_s - wave.late_s, to_s - wave.late_s)
        for at_s in (now_s[~wave.is_late(now_s)], due_s[wave.is_late(due_s)]):
            if at_s.size:
                yield self._frame(wave, at_s)

    def _frame(self, wave: Wave, at_s: I64) -> bytes:
        metric = self.catalog.get(wave.metric)
        schema = make_schema(metric.kind, [Column(metric.name, metric.unit, metric.dtype, metric.resolution)])
        self.sequence += 1
        stamp = Stamp(
            collector_id=wave.host,
            host_id=wave.host,
            source=SOURCE,
            spool_id=self.spool_id,
            first_sequence=self.sequence,
            last_sequence=self.sequence,
            tick_times_ms=(at_s + wave.ahead_s) * 1000,
            interval_ms=STEP_S * 1000,
            clock_offset_ms=wave.ahead_s * 1000,
            clock_uncertainty_ms=UNCERTAINTY_MS,
        )
        size = at_s.size
        block = ScalarBlock(
            entity_index=np.zeros(size, np.uint32),
            tick_index=np.arange(size, dtype=np.uint16),
            observed_delta_ms=np.zeros(size, np.int32),
            groups=(Group(0, wave.value(at_s).astype(NUMPY_TYPES[metric.dtype]).reshape(1, -1), None),),
            quality_row=np.zeros(0, np.uint32),
            quality_column=np.zeros(0, np.uint16),
            quality=np.zeros(0, np.uint8),
        )
        table = EntityTable(metric.kind, wave.host, "", (Entity(wave.host),))
        return encode(stamp, Content(schema, table, scalars=block), inline=True)
