"""Take log records into open windows and waiting rows.

A batch is decoded whole, then the windows it adds to are made ready (loaded from the store where parts of them may be
there), then pieces of one schema are applied together. Until the batch is through, its records are kept; taking them
again after `Retryable` changes nothing that was taken already.
"""

import json
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from secondsight.contracts import LogConsumer, LogRecord
from secondsight.errors import Permanent
from secondsight.process.apply import Applier
from secondsight.process.batch import Batch
from secondsight.process.columns import SchemaPlan
from secondsight.process.deadletter import Position, code_of, gateway_row, refused_row, undecoded_row
from secondsight.process.decode import FUTURE_MS, Decoded, DefinitionReader, Subjects, decode_rows
from secondsight.process.land import Row, Source, plan_row
from secondsight.process.lander import Lander
from secondsight.process.ledger import name_of
from secondsight.process.misfits import numbers_alone
from secondsight.process.restamp import Restamper
from secondsight.process.sequences import Seen, frame_key
from secondsight.process.stacks import MAX_MEMBERS, Likeness, Member, likeness, piles_of, sound_members
from secondsight.process.tell import (
    item_of_gateway,
    item_of_refused,
    items_of_future,
    items_of_mark,
    told_of_frame,
    told_of_members,
)
from secondsight.process.watermark import Progress
from secondsight.process.world import World
from secondsight.wire.blocks import SCALARS
from secondsight.wire.content import Frame, Header
from secondsight.wire.envelope import Envelope, RecordType, decode_envelope
from secondsight.wire.frame import OpenFrame, read_content, read_frame
from secondsight.wire.header import HeadView, header_of, read_header
from secondsight.wire.letters import REPLAYED


class Intake:
    """Takes records in. One thread uses it."""

    def __init__(self, world: World, open_definitions: Callable[[], LogConsumer]) -> None:
        self._world = world
        self._seen = Seen()
        self._waiting: list[LogRecord] = []
        self._assigned: set[int] = set()
        self._taken_over: set[int] = set()
        self._applier = Applier(world)
        self._lander = Lander(world)
        self._restamper = Restamper(world)
        self._definitions = DefinitionReader(open_definitions)
        self._definitions.read()

    def assign(self, partitions: Collection[int], fresh: Collection[int] = ()) -> None:
        """Take note of which partitions are read here, and forget what is open of those that went.

        Args:
            partitions: All that are read here now.
            fresh: Those of them that another processor may have read since they were last; `take_over` is due.
        """
        now = set(partitions)
        gained = set(fresh) | (now - self._assigned if self._assigned else set())
        lost = (self._assigned - now) | (self._assigned & gained)
        if lost:
            self._world.forget(lost)
            self._seen = Seen()
            self._waiting = [record for record in self._waiting if record.partition not in lost]
        self._world.is_shared |= bool(gained)
        self._taken_over = (self._taken_over | gained) & now
        self._assigned = self._world.assigned = now

    def take_over(self) -> None:
        """Catch up on partitions that another processor may have read.

        Raises:
            Retryable: The store is busy or away; call again.
        """
        if self._taken_over:
            alive_ms = self._world.take_over(self._taken_over)
            self._restamper.reach_back(alive_ms)
            self._restamper.learn()
            self._taken_over = set()

    def learn(self) -> None:
        """Take in the allocations that other processors landed.

        Raises:
            Retryable: The store is busy or away; call again.
        """
        if self._world.is_shared:
            self._restamper.learn()

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
        self._decode_waiting(batch)
        for alike, members in batch.stacks.items():
            for first in range(0, len(members), MAX_MEMBERS):
                self._take_together(alike, members[first : first + MAX_MEMBERS], batch)
        self._applier.apply(batch)
        for told in batch.told:
            self._world.ledger.take(told, later=told.key in self._world.late.items)
        self._restamper.take(batch.facts)
        for progress, view, newest_ms, ingest_ms, log_ms in batch.observed:
            progress.observe(view, newest_ms, ingest_ms, log_ms)
        for key in batch.keys:
            self._seen.add(key)
        self._advance(drained)

    def catch_up(self, goes_on: Callable[[], bool]) -> None:
        """Load windows and take in the late pieces that wait for them, oldest first, until told to leave the rest.

        Raises:
            Retryable: The store is busy or away; call again.
        """
        self._applier.catch_up(goes_on)

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

    def _decode_waiting(self, batch: Batch) -> None:
        for record in self._waiting:
            self._decode(record, batch)

    def _decode(self, record: LogRecord, batch: Batch) -> None:
        position = Position(record.partition, record.offset, record.append_time_ms)
        try:
            envelope = decode_envelope(record.value)
        except Permanent as error:
            self._lander.dead(undecoded_row(position, error, record.value))
            return
        try:
            self._decode_body(envelope, position, batch)
        except Permanent as error:
            self._refuse(envelope, position, error)

    def _refuse(self, envelope: Envelope, position: Position, error: Permanent) -> None:
        header = _header_of(envelope)
        self._lander.dead(refused_row(position, error, envelope, header))
        item = None if header is None else item_of_refused(envelope, header, code_of(error))
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
        said = json.loads(envelope.body)
        if row["stage"] == REPLAYED:
            self._world.writer.landing.add("dead_letters", row)
            self._world.metrics.count("processor_replayed_letters_total", code=row["code"])
            items = list(items_of_mark(envelope, row, said))
        else:
            self._lander.dead(row)
            item = item_of_gateway(envelope, row, said)
            items = [] if item is None else [item]
        for item in items:
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
        frame = numbers_alone(read_frame(envelope.body, opened))
        collector, progress = self._progress(envelope, position, view)
        plan = self._plan(opened)
        subjects = world.kinds[view.kind].subjects(collector, view.entities_hash, opened.entities)
        decoded = decode_rows(frame, envelope.ingest_time_ms, plan, subjects)
        for start_ms, piece in decoded.pieces:
            batch.pieces[view.kind, start_ms, view.schema_hash].append((piece, position))
        source, letters = Source(envelope, frame), self._lander.letters
        self._tell(source, collector, plan, batch)
        self._lander.note_losses(source, position, plan, decoded)
        self._lander.land(source, position, batch)
        self._see_entities(envelope, frame, decoded)
        if self._lander.letters == letters:  # else it may be sent again for what was refused of it
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
        letters = self._lander.letters
        if frame is not None:
            self._lander.note_losses(Source(envelope, frame), position, None, None)
            self._lander.land(Source(envelope, frame), position, batch)
        span_ms = member.span_ms
        self._world.entities.see(envelope, view, table, span_ms)
        if self._lander.letters == letters:
            batch.keys.append(key)
        batch.observed.append((progress, view, span_ms[1], envelope.ingest_time_ms, position.append_ms))
        return self._world.kinds[view.kind].subjects(collector, view.entities_hash, table)

    def _see_entities(self, envelope: Envelope, frame: Frame, decoded: Decoded) -> None:
        if decoded.pieces:
            first_ms = min(int(piece.time_ms.min()) for _, piece in decoded.pieces)
            table = frame.content.entities
            self._world.entities.see(envelope, frame.header, table, (first_ms, decoded.newest_ms))


def _newest(header: Header, ingest_ms: int) -> int:
    """Return the newest event time of a frame that was taken before."""
    times = header.tick_times_ms + header.correction_ms
    taken = times[times <= ingest_ms + FUTURE_MS]
    return int(taken.max()) if taken.size else 0


def _header_of(envelope: Envelope) -> Header | None:
    """Return the header of an envelope's frame, where it can be read."""
    if envelope.type is not RecordType.FRAME:
        return None
    try:
        return read_header(envelope.body).header
    except Permanent:
        return None
