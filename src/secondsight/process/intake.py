"""Take log records into open windows and waiting rows.

A batch is decoded whole, then the windows it adds to are made ready (loaded from the store where parts of them may be
there), then pieces of one schema are applied together. Until the batch is through, its records are kept; taking them
again after `Retryable` changes nothing that was taken already.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from secondsight.contracts import LogConsumer, LogRecord
from secondsight.errors import Permanent
from secondsight.model import EntityKind
from secondsight.process.batches import batches
from secondsight.process.cells import WINDOW_MS, Settled
from secondsight.process.columns import SchemaPlan
from secondsight.process.deadletter import (
    DEAD_LETTER,
    QUARANTINE,
    Loss,
    Position,
    gateway_row,
    lost_row,
    refused_row,
    undecoded_row,
)
from secondsight.process.decode import FUTURE_MS, Decoded, DefinitionReader, Seen, Subjects, decode_rows, frame_key
from secondsight.process.enrich import Attribution, Fact
from secondsight.process.kinds import KindState
from secondsight.process.land import (
    Row,
    Source,
    allocation_row,
    event_row,
    fact_of,
    histogram_rows,
    info_row,
    is_owned,
    plan_row,
)
from secondsight.process.ledger import Told, name_of
from secondsight.process.load import load_pieces
from secondsight.process.misfits import FUTURE_TIME, column_values, fitting, misfits, timely
from secondsight.process.pieces import Piece, Pile
from secondsight.process.restamp import Restamper
from secondsight.process.spans import SpanKey
from secondsight.process.stacks import MAX_MEMBERS, Likeness, Member, likeness, piles_of, sound_members
from secondsight.process.tell import (
    item_of_gateway,
    item_of_refused,
    item_of_shed,
    items_of_future,
    told_of_frame,
    told_of_members,
)
from secondsight.process.watermark import Progress
from secondsight.process.world import HORIZON_MS, World
from secondsight.store.schema import raw_table, rollup_table
from secondsight.wire.blocks import SCALARS
from secondsight.wire.content import Event, Frame, Header
from secondsight.wire.envelope import Envelope, RecordType, decode_envelope
from secondsight.wire.frame import OpenFrame, read_content, read_frame
from secondsight.wire.header import HeadView, header_of, read_header

DECLARATION = "agent_shed"
MAX_LATE = 256
"""Windows that late pieces are taken into in one step, so that fresh ones do not wait for them."""


@dataclass(slots=True)
class Batch:
    """What a batch of records holds, decoded.

    Attributes:
        pieces: Kind, window start, schema hash -> (piece, position of its record).
        stacks: Frames that are read together.
        piles: Kind, window start, pile, position of the record of each member.
        observed: (progress, head, newest event time, admission, log time).
        facts: Allocation facts with the position of their record.
        told: What its frames tell the ledger.
    """

    pieces: dict[tuple[EntityKind, int, bytes], list[tuple[Piece, Position]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    stacks: dict[Likeness, list[Member]] = field(default_factory=lambda: defaultdict(list))
    piles: list[tuple[EntityKind, int, Pile, list[Position]]] = field(default_factory=list)
    observed: list[tuple[Progress, HeadView, int, int, int]] = field(default_factory=list)
    facts: list[tuple[Fact, Position]] = field(default_factory=list)
    keys: list[tuple[object, ...]] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)

    def spans(self) -> set[SpanKey]:
        """Return the spans that it adds to."""
        alone = {
            (kind, start_ms, piece.collector)
            for (kind, start_ms, _), items in self.pieces.items()
            for piece, _ in items
        }
        piled = {(kind, start_ms, collector) for kind, start_ms, pile, _ in self.piles for collector in pile.collectors}
        return alone | piled


class Intake:
    """Takes records in. One thread uses it."""

    def __init__(self, world: World, open_definitions: Callable[[], LogConsumer]) -> None:
        self._world = world
        self._seen = Seen()
        self._waiting: list[LogRecord] = []
        self._assigned: set[int] = set()
        self._restamper = Restamper(world)
        self._definitions = DefinitionReader(open_definitions)
        self._definitions.read()

    def assign(self, partitions: Collection[int]) -> None:
        """Take note of which partitions are read here: forget what is open of lost ones, catch up on new ones.

        Raises:
            Retryable: The store is busy or away.
        """
        now = set(partitions)
        if now - self._assigned and self._assigned:
            self._world.restore_progress()
        lost = self._assigned - now
        if lost:
            self._world.forget(lost)
            self._seen = Seen()
            self._waiting = [record for record in self._waiting if record.partition not in lost]
        self._assigned = now

    def keep(self, records: Sequence[LogRecord]) -> None:
        """Hold polled records until they are taken in."""
        self._waiting.extend(records)

    def take(self, drained: Iterable[int]) -> None:
        """Take in the records that wait.

        Args:
            drained: Partitions of which the log has no more.

        Raises:
            Retryable: The log or the store is away; call again, after further records or none.
        """
        batch = Batch()
        for record in self._waiting:
            self._decode(record, batch)
        for alike, members in batch.stacks.items():
            for first in range(0, len(members), MAX_MEMBERS):
                self._take_together(alike, members[first : first + MAX_MEMBERS], batch)
        self._set_aside(batch)
        self._apply_all(batch)
        for told in batch.told:
            self._world.ledger.take(told, later=told.key in self._world.late.items)
        self._restamper.take(batch.facts)
        for progress, view, newest_ms, ingest_ms, log_ms in batch.observed:
            progress.observe(view, newest_ms, ingest_ms, log_ms)
        for key in batch.keys:
            self._seen.add(key)
        self._advance(drained)

    def _apply_all(self, batch: Batch) -> None:
        for kind, start_ms, pile, positions in batch.piles:
            batch.pieces[kind, start_ms, b""] += self._apply_pile(self._world.kinds[kind], start_ms, pile, positions)
        for (kind, start_ms, _), items in batch.pieces.items():
            if items:
                self._apply(self._world.kinds[kind], start_ms, items)

    def close(self) -> None:
        """Close the definitions topic; may be called twice."""
        self._definitions.close()

    def _advance(self, drained: Iterable[int]) -> None:
        """Note how far each partition has been read; a drained one without new records has been read up to now."""
        world, now_ms = self._world, self._world.clock.now_ms()
        newest = {record.partition: record for record in self._waiting}
        for partition in drained:
            if partition not in newest:
                world.frontiers[partition] = max(world.log_ms(partition), now_ms)
        for partition, record in newest.items():
            world.frontiers[partition] = max(world.log_ms(partition), record.append_time_ms)
            world.positions[partition] = record.offset + 1
        self._waiting = []

    def _decode(self, record: LogRecord, batch: Batch) -> None:
        position = Position(record.partition, record.offset, record.append_time_ms)
        try:
            envelope = decode_envelope(record.value)
        except Permanent as error:
            self._dead(undecoded_row(position, error, record.value))
            return
        try:
            self._decode_body(envelope, position, batch)
        except Permanent as error:
            self._refuse(envelope, position, error)

    def _refuse(self, envelope: Envelope, position: Position, error: Permanent) -> None:
        header = _header_of(envelope)
        self._dead(refused_row(position, error, envelope, header))
        item = None if header is None else item_of_refused(envelope, header, error)
        if item is not None:
            self._world.ledger.take_item(item)

    def _decode_body(self, envelope: Envelope, position: Position, batch: Batch) -> None:
        landing = self._world.writer.landing
        match envelope.type:
            case RecordType.PLAN:
                row = plan_row(envelope)
                landing.add("plans", row, row["version"])
            case RecordType.REFUSED:
                self._take_refusal(gateway_row(position, envelope), envelope)
            case RecordType.FRAME:
                self._decode_frame(envelope, position, batch)

    def _take_refusal(self, row: Row, envelope: Envelope) -> None:
        self._dead(row)
        item = item_of_gateway(envelope, row, json.loads(envelope.body))
        if item is not None:
            self._world.ledger.take_item(item)

    def _decode_frame(self, envelope: Envelope, position: Position, batch: Batch) -> None:
        """Put a frame to those like it, or take it in."""
        opened = self._definitions.open(envelope)
        key = frame_key(envelope, opened.view)
        if key in self._seen:
            self._take_again(envelope, position, opened.view, batch)
            return
        blocks = opened.blocks
        if blocks and blocks[0].kind == SCALARS and not self._plan(opened).dropped:
            member = Member(envelope, position, opened, key, blocks[0].data, opened.view.correction_ms)
            alike = likeness(member)
            if alike is not None:
                batch.stacks[alike].append(member)
                return
        self._take_alone(envelope, position, opened, batch)

    def _plan(self, opened: OpenFrame) -> SchemaPlan:
        return self._world.kinds[opened.view.kind].plan(opened.known.hash, opened.known.schema)

    def _take_again(self, envelope: Envelope, position: Position, view: HeadView, batch: Batch) -> None:
        """Take note of an exact repeat."""
        _, progress = self._progress(envelope, position, view)
        self._world.metrics.count("processor_duplicate_frames_total")
        newest_ms = _newest(header_of(envelope.body, view), envelope.ingest_time_ms)
        batch.observed.append((progress, view, newest_ms, envelope.ingest_time_ms, position.append_ms))

    def _progress(self, envelope: Envelope, position: Position, view: HeadView) -> tuple[int, Progress]:
        place = (envelope.tenant_id, envelope.region, envelope.cluster_id, view.collector_id)
        collector, progress = self._world.progress_of(place, view.host_id, position.partition)
        progress.host_id, progress.partition = view.host_id, position.partition
        return collector, progress

    def _take_alone(self, envelope: Envelope, position: Position, opened: OpenFrame, batch: Batch) -> None:
        world, view = self._world, opened.view
        frame = read_frame(envelope.body, opened)
        collector, progress = self._progress(envelope, position, view)
        plan = self._plan(opened)
        subjects = world.kinds[view.kind].subjects(collector, view.entities_hash, opened.entities)
        decoded = decode_rows(frame, envelope.ingest_time_ms, plan, subjects)
        for start_ms, piece in decoded.pieces:
            batch.pieces[view.kind, start_ms, view.schema_hash].append((piece, position))
        source = Source(envelope, frame)
        self._tell(source, collector, plan, batch)
        self._note_losses(source, position, plan, decoded)
        self._land(source, position, batch)
        self._see_entities(envelope, frame, decoded)
        batch.keys.append(frame_key(envelope, view))
        batch.observed.append((progress, view, decoded.newest_ms, envelope.ingest_time_ms, position.append_ms))
        world.metrics.count("processor_values_total", view.values)

    def _tell(self, source: Source, collector: int, plan: SchemaPlan, batch: Batch) -> None:
        """Tell the ledger of a frame that was read alone."""
        header, ledger = source.frame.header, self._world.ledger
        times = header.tick_times_ms + header.correction_ms
        stored = int(np.searchsorted(times, source.envelope.ingest_time_ms + FUTURE_MS, side="right"))
        ledger.know(name_of(header.schema_hash, header.entities_hash), plan.places)
        batch.told.extend(told_of_frame(source.frame, collector, times[:stored], plan.dropped))
        for item in items_of_future(source, stored):
            ledger.take_item(item)

    def _take_together(self, alike: Likeness, members: list[Member], batch: Batch) -> None:
        """Take in frames that are alike; those that do not hold what they announce are refused one by one."""
        good = sound_members(members, alike.shape).tolist()
        taken: list[Member] = []
        subjects: list[Subjects] = []
        for member, is_sound in zip(members, good, strict=True):
            try:
                if is_sound:
                    subjects.append(self._accept(member, batch))
                    taken.append(member)
                else:
                    self._take_alone(member.envelope, member.position, member.opened, batch)
            except Permanent as error:
                self._refuse(member.envelope, member.position, error)
        if not taken:
            return
        opened, positions = taken[0].opened, [member.position for member in taken]
        for entities_hash in {member.opened.view.entities_hash for member in taken}:
            self._world.ledger.know(name_of(opened.view.schema_hash, entities_hash), self._plan(opened).places)
        batch.told.extend(told_of_members(taken, [each.collector for each in subjects], alike))
        for start_ms, pile in piles_of(taken, subjects, self._plan(opened), alike):
            batch.piles.append((opened.view.kind, start_ms, pile, positions))
        self._world.metrics.count("processor_values_total", sum(member.opened.view.values for member in taken))

    def _accept(self, member: Member, batch: Batch) -> Subjects:
        """Take in all of a frame but its scalars.

        Raises:
            Rejected: Something else in it is malformed; nothing of it was taken.
        """
        envelope, position, (view, _, table, blocks), key, *_ = member
        frame = None
        if len(blocks) > 1:
            frame = Frame(header_of(envelope.body, view), read_content(member.opened, blocks[1:]))
        collector, progress = self._progress(envelope, position, view)
        if frame is not None:
            self._note_losses(Source(envelope, frame), position, None, None)
            self._land(Source(envelope, frame), position, batch)
        span_ms = member.span_ms
        self._world.entities.see(envelope, view, table, span_ms)
        batch.keys.append(key)
        batch.observed.append((progress, view, span_ms[1], envelope.ingest_time_ms, position.append_ms))
        return self._world.kinds[view.kind].subjects(collector, view.entities_hash, table)

    def _see_entities(self, envelope: Envelope, frame: Frame, decoded: Decoded) -> None:
        if decoded.pieces:
            first_ms = min(int(piece.time_ms.min()) for _, piece in decoded.pieces)
            table = frame.content.entities
            self._world.entities.see(envelope, frame.header, table, (first_ms, decoded.newest_ms))

    def _note_losses(
        self, source: Source, position: Position, plan: SchemaPlan | None, decoded: Decoded | None
    ) -> None:
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
            self._dead(lost_row(position, loss, envelope, header))

    def _land(self, source: Source, position: Position, batch: Batch) -> None:
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
            self._dead(lost_row(position, loss, source.envelope, source.frame.header))
        attribute = self._attribute(source)
        for event in content.events:
            self._land_event(source, event, event_row(source, event, attribute), position, batch)
        for info in content.infos:
            landing.add("infos", info_row(source, info, attribute))
        for rows in content.histograms:
            for row in histogram_rows(source, rows, attribute):
                landing.add("histograms_1s", row, row["version_lo"])

    def _land_event(self, source: Source, event: Event, row: Row, position: Position, batch: Batch) -> None:
        landing = self._world.writer.landing
        landing.add("events", row, event.version)
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

    def _dead(self, row: Row) -> None:
        self._world.metrics.count("processor_dead_letters_total", stage=row["stage"], code=row["code"])
        self._world.writer.landing.add("dead_letters", row)

    def _set_aside(self, batch: Batch) -> None:
        """Have pieces wait whose windows may be in the store and not in memory."""
        late = {key for key in batch.spans() if key in self._world.late.items or self._is_away(key)}
        if not late:
            return
        add = self._world.late.add
        for (kind, start_ms, _), items in batch.pieces.items():
            for piece, position in items:
                if (kind, start_ms, piece.collector) in late:
                    add((kind, start_ms, piece.collector), piece, position)
            items[:] = [item for item in items if (kind, start_ms, item[0].collector) not in late]
        piles, batch.piles = batch.piles, []
        for kind, start_ms, pile, positions in piles:
            away = [(kind, start_ms, collector) in late for collector in pile.collectors]
            rest = [number for number, is_away in enumerate(away) if not is_away]
            for number in np.flatnonzero(away).tolist():
                add((kind, start_ms, pile.collectors[number]), pile.member(number), positions[number])
            if rest:
                some = pile.select(rest) if len(rest) < len(away) else pile
                batch.piles.append((kind, start_ms, some, [positions[number] for number in rest]))

    def _is_away(self, key: SpanKey) -> bool:
        """Tell whether a window may be in the store and is not in memory."""
        span = self._world.spans.open.get(key)
        return (span.reopened and not span.loaded) if span is not None else self._may_be_written(key)

    def catch_up(self, goes_on: Callable[[], bool]) -> None:
        """Load windows and take in the late pieces that wait for them, oldest first, until told to leave the rest.

        Raises:
            Retryable: The store is busy or away; call again.
        """
        world = self._world
        if not world.late.items:
            return
        self._write_all()
        for keys in list(batches(sorted(world.late.items, key=lambda key: key[1])[:MAX_LATE], world.collectors)):
            if not goes_on():
                return
            reopen(world, [key for key in keys if self._is_away(key)])
            for key in keys:
                self._apply(world.kinds[key[0]], key[1], world.late.items[key])
                world.late.drop(key)

    def _may_be_written(self, key: SpanKey) -> bool:
        kind, start_ms, collector = key
        return self._world.progress[collector].may_be_written(kind, start_ms) or key in self._world.spans.closing

    def _write_all(self) -> None:
        world = self._world
        for kind, state in world.kinds.items():
            world.writer.flush_raw(state, world.allocations, world.stamps[kind], world.clock.now_ms())
        world.write_rollups()

    def _apply(self, state: KindState, start_ms: int, items: list[tuple[Piece, Position]]) -> None:
        world = self._world
        window = state.window(start_ms)
        for piece, position in items:
            span = world.spans.get((state.kind, start_ms, piece.collector))
            span.touch(position.partition, position.offset, position.append_ms)
            span.changed |= self._is_replay(position)
        reopened = [item for item in items if world.spans.get((state.kind, start_ms, item[0].collector)).reopened]
        if not reopened:
            self._count(window.apply([piece for piece, _ in items]))
        else:
            for piece, _ in items:
                done = window.apply([piece])
                world.spans.get((state.kind, start_ms, piece.collector)).changed |= bool(done.appended or done.changed)
                self._count(done)
            self._count_late(start_ms, reopened)
        replayed = {piece.collector for piece, position in items if self._is_replay(position)}
        self._announce_replayed(state, start_ms, replayed)

    def _apply_pile(
        self, state: KindState, start_ms: int, pile: Pile, positions: Sequence[Position]
    ) -> list[tuple[Piece, Position]]:
        """Apply a pile, and return those of its members whose windows were opened again."""
        reopened: list[int] = []
        replayed: set[int] = set()
        for number, (collector, position) in enumerate(zip(pile.collectors, positions, strict=True)):
            span = self._world.spans.get((state.kind, start_ms, collector))
            span.touch(position.partition, position.offset, position.append_ms)
            if span.reopened:
                reopened.append(number)
            elif self._is_replay(position):
                span.changed = True
                replayed.add(collector)
        self._announce_replayed(state, start_ms, replayed)
        alone = [(pile.member(number), positions[number]) for number in reopened]
        if len(alone) < len(positions):
            rest = sorted(set(range(len(positions))) - set(reopened))
            self._count(state.window(start_ms).pile(pile.select(rest) if alone else pile))
        return alone

    def _count(self, done: Settled) -> None:
        metrics = self._world.metrics
        metrics.count("processor_rows_total", done.appended)
        if done.touched:
            metrics.count("processor_duplicate_rows_total", done.touched)
        if done.conflicts:
            metrics.count("processor_conflicts_total", done.conflicts)

    def _count_late(self, start_ms: int, items: list[tuple[Piece, Position]]) -> None:
        rows = sum(piece.rows for piece, _ in items)
        beyond = start_ms + WINDOW_MS < self._world.clock.now_ms() - HORIZON_MS
        self._world.metrics.count("processor_late_rows_total", rows, horizon="beyond" if beyond else "within")

    def _announce_replayed(self, state: KindState, start_ms: int, collectors: Iterable[int]) -> None:
        world, now_ms = self._world, self._world.clock.now_ms()
        places = set()
        for collector in collectors:
            if start_ms + WINDOW_MS > world.progress[collector].restored_ms:
                tenant, _, cluster, _ = world.collectors.items[collector]
                places.add((tenant, cluster))
        world.writer.announce(raw_table(state.kind), places, start_ms, now_ms)
        world.writer.announce(rollup_table(state.kind), places, start_ms, now_ms)

    def _is_replay(self, position: Position) -> bool:
        """Tell whether an earlier process may have taken a record, without having finished with it."""
        return position.append_ms <= self._world.started_ms


def reopen(world: World, keys: Sequence[SpanKey]) -> None:
    """Load the stored rows of some spans, which are a batch.

    Raises:
        Retryable: The store is busy or away.
    """
    if not keys:
        return
    state, wanted = world.kinds[keys[0][0]], set(keys)
    collectors = sorted({collector for _, _, collector in keys})
    pieces: dict[int, list[Piece]] = defaultdict(list)
    for start_ms, piece in load_pieces(world.store, state, collectors, [start_ms for _, start_ms, _ in keys]):
        if (state.kind, start_ms, piece.collector) in wanted:
            pieces[start_ms].append(piece)
    for start_ms, some in pieces.items():
        state.window(start_ms).apply(some)
    world.load_accounts(state.kind, keys)
    for key in keys:
        state.window(key[1])
        span = world.spans.get(key)
        span.reopened = span.loaded = True
    world.metrics.count("processor_windows_reopened_total", len(keys))


def _newest(header: Header, ingest_ms: int) -> int:
    """Return the newest event time of a frame that was taken before."""
    times = header.tick_times_ms + header.correction_ms
    taken = times[times <= ingest_ms + 300_000]
    return int(taken.max()) if taken.size else 0


def _header_of(envelope: Envelope) -> Header | None:
    """Return the header of an envelope's frame, where it can be read."""
    if envelope.type is not RecordType.FRAME:
        return None
    try:
        return read_header(envelope.body).header
    except Permanent:
        return None
