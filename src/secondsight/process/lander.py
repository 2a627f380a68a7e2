"""Land what of a frame is no scalar: events, facts, histograms, allocations; and what has no place, as dead letters."""

from collections.abc import Callable

from secondsight.process.batch import Batch
from secondsight.process.columns import SchemaPlan
from secondsight.process.deadletter import DEAD_LETTER, QUARANTINE, Loss, Position, lost_row
from secondsight.process.decode import FUTURE_MS, Decoded
from secondsight.process.enrich import Attribution
from secondsight.process.land import (
    Row,
    Source,
    allocation_row,
    event_row,
    fact_of,
    histogram_rows,
    info_row,
    is_owned,
)
from secondsight.process.misfits import FUTURE_TIME, column_values, fitting, misfits, timely, with_sums
from secondsight.process.tell import item_of_shed
from secondsight.process.world import World
from secondsight.wire.content import Event, HistogramRows

DECLARATION = "agent_shed"
PAYLOAD_BYTES_PER_HOUR = 16 << 20
"""Of dead letters, as base64; of further ones the reason is kept alone."""
MS_PER_HOUR = 3_600_000


class Lander:
    """Hands rows to the writer of a world. One thread uses it.

    Attributes:
        letters: Dead letters so far.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._payload_hour = self._payload_bytes = 0
        self.letters = 0

    def note_losses(self, source: Source, position: Position, plan: SchemaPlan | None, decoded: Decoded | None) -> None:
        """Dead-letter what has no place; frames without a plan have scalars that all do."""
        envelope, header = source.envelope, source.frame.header
        content, found = source.frame.content, misfits(source.frame.content, self._world.catalog)
        losses = [
            Loss(DEAD_LETTER, reason, reason, name, header.rows, column_values(content, name))
            for name, reason in (plan.dropped if plan else ())
        ]
        losses += [Loss(DEAD_LETTER, reason, reason, item.metric, n, n) for (item, reason), n in found.items()]
        if decoded and decoded.future_rows:
            text = f"{decoded.future_rows} rows lie more than 5 min ahead of their admission"
            losses.append(Loss(QUARANTINE, FUTURE_TIME, text, rows=decoded.future_rows, values=decoded.future_values))
        for loss in losses:
            self.dead(lost_row(position, loss, envelope, header))

    def land(self, source: Source, position: Position, batch: Batch) -> None:
        """Land the events, facts and histograms of a frame."""
        content, landing = source.frame.content, self._world.writer.landing
        if not (content.events or content.infos or content.histograms):
            return
        content, untimely = timely(
            fitting(content, self._world.catalog),
            source.frame.header.correction_ms,
            source.envelope.ingest_time_ms + FUTURE_MS,
        )
        for (metric, code), count in untimely.items():
            stage = QUARANTINE if code == FUTURE_TIME else DEAD_LETTER
            loss = Loss(stage, code, f"{count} of {metric} have an impossible time", metric, count, count)
            self.dead(lost_row(position, loss, source.envelope, source.frame.header))
        attribute = self._attribute(source)
        for event in content.events:
            self._land_event(source, event, event_row(source, event, attribute), position, batch)
        for info in content.infos:
            landing.add("infos", info_row(source, info, attribute))
        for rows in content.histograms:
            for row in histogram_rows(source, self._with_sums(rows, source, position), attribute):
                landing.add("histograms_1s", row, row["version_lo"])

    def _with_sums(self, rows: HistogramRows, source: Source, position: Position) -> HistogramRows:
        """Return the rows of a histogram whose sum is a number; the others are dead letters."""
        sound = with_sums(rows)
        lost = len(rows.sums) - len(sound.sums)
        if lost:
            name = source.frame.content.schema.histograms[rows.column].metric
            loss = Loss(DEAD_LETTER, "histogram_sum", f"{lost} of {name} have a sum that is no number", name, lost)
            self.dead(lost_row(position, loss, source.envelope, source.frame.header))
        return sound

    def _land_event(self, source: Source, event: Event, row: Row, position: Position, batch: Batch) -> None:
        landing = self._world.writer.landing
        landing.add_event(row)
        if event.metric == DECLARATION:
            self._world.ledger.take_item(item_of_shed(source, event, row["event_time"]))
        if is_owned(event):
            fact = fact_of(source, event)
            landing.add("allocations", allocation_row(fact), fact.version)
            batch.facts.append((fact, position))

    def _attribute(self, source: Source) -> Callable[[str, str, int], Attribution]:
        world, place = self._world, (source.envelope.tenant_id, source.envelope.cluster_id)
        kind, host_id = source.frame.header.kind, source.frame.content.entities.host_id
        return lambda entity, part, time_ms: world.attribution_at(kind, host_id, (*place, entity, part), time_ms)

    def dead(self, row: Row) -> None:
        """Count and keep a dead letter."""
        self.letters += 1
        self._world.metrics.count("processor_dead_letters_total", stage=row["stage"], code=row["code"])
        self._world.writer.landing.add("dead_letters", self._bounded(row))

    def _bounded(self, row: Row) -> Row:
        """Return a letter with its bytes only while there are not too many of this hour; the log has them too."""
        hour = self._world.clock.now_ms() // MS_PER_HOUR
        if hour != self._payload_hour:
            self._payload_hour, self._payload_bytes = hour, 0
        self._payload_bytes += len(row["payload"])
        if self._payload_bytes <= PAYLOAD_BYTES_PER_HOUR:
            return row
        self._world.metrics.count("processor_dead_letter_payloads_dropped_total")
        return row | {"payload": ""}
