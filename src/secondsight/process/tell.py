"""Say what a frame tells the ledger: how many rows and values of which ticks, in which window, and what was refused."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.process.cells import WINDOW_MS, window_start
from secondsight.process.deadletter import DEAD_LETTER, QUARANTINE
from secondsight.process.decode import FUTURE_MS
from secondsight.process.land import Row, Source
from secondsight.process.ledger import SHED, Counts, Item, Name, Reason, Ticks, Told, name_of
from secondsight.process.misfits import FUTURE_TIME
from secondsight.process.pieces import I64
from secondsight.process.spans import SpanKey
from secondsight.process.stacks import Likeness, Member
from secondsight.wire.content import Event, Frame, Header, ScalarBlock
from secondsight.wire.envelope import Envelope
from secondsight.wire.header import HeadView
from secondsight.wire.letters import marked_header
from secondsight.wire.scalars import MIXED
from secondsight.wire.stacks import tick_times, values_by_tick


@dataclass(frozen=True, slots=True)
class _Run:
    """Ticks of one window, one interval apart: from number `start` of the frame's ticks to `stop`."""

    window_ms: int
    name: Name
    first: int
    start: int
    stop: int


def told_of_frame(frame: Frame, collector: int, times_ms: I64, dropped: Sequence[tuple[str, str]]) -> Iterator[Told]:
    """Give what a frame tells that was read alone.

    Args:
        frame: The frame.
        collector: Its code.
        times_ms: Event times of its ticks that may be stored; the others, which are the last ones, are items.
        dropped: (metric, reason) of columns that have no place.
    """
    scalars = frame.content.scalars
    if scalars is None or not times_ms.size:
        return
    ticks = _ticks(frame, scalars, dropped)
    for run in _runs(frame.header, times_ms.tolist()):
        yield _told((frame.header, collector), run, ticks)


def items_of_future(source: Source, stored: int) -> Iterator[Item]:
    """Give the ticks of a frame that lie too far ahead, all after the first `stored` ones; each is known by itself."""
    frame, scalars = source.frame, source.frame.content.scalars
    header = frame.header
    times_ms = (header.tick_times_ms + header.correction_ms).tolist()
    if scalars is None or stored == len(times_ms):
        return
    ticks = _ticks(frame, scalars, ())
    definitions = name_of(header.schema_hash, header.entities_hash)
    for number in range(stored, len(times_ms)):
        if ticks.rows[number]:
            counts = (ticks.rows[number], ticks.values[number])
            yield _item_of_tick(source.envelope, header, definitions, times_ms[number], counts)


def items_of_mark(envelope: Envelope, row: Row, said: Mapping[str, Any]) -> Iterator[Item]:
    """Give what was refused and is sent again, as counting nothing any more; `said` is a mark, see `wire.letters`.

    Raises:
        Rejected: `bad_refusal`.
    """
    stage, frame = str(said.get("letter_stage", "")), said.get("frame")
    first = replace(envelope, ingest_time_ms=max(_integer(said.get("letter_ingest_ms")), 0))
    if frame is None:
        items = [item_of_gateway(first, row | {"stage": stage}, said)]
    elif stage == QUARANTINE:
        items = [*_items_after(first, marked_header(frame))]
    else:
        items = [None if row["metric"] else item_of_refused(first, marked_header(frame), row["code"])]
    for item in items:
        if item is not None:
            yield replace(item, rows=0, values=0, version=envelope.ingest_time_ms)


def _items_after(envelope: Envelope, header: Header) -> Iterator[Item]:
    """Give the ticks of a frame that lay too far ahead of its admission, without counts."""
    definitions = name_of(header.schema_hash, header.entities_hash)
    for time_ms in (header.tick_times_ms + header.correction_ms).tolist():
        if time_ms > envelope.ingest_time_ms + FUTURE_MS:
            yield _item_of_tick(envelope, header, definitions, time_ms, (0, 0))


def _item_of_tick(envelope: Envelope, header: Header, definitions: int, time_ms: int, counts: Counts) -> Item:
    return _item(envelope, header, (QUARANTINE, FUTURE_TIME), f"{definitions:x}.{time_ms}", time_ms, counts)


def item_of_refused(envelope: Envelope, header: Header, code: str) -> Item | None:
    """Return a whole frame that could not be processed, at its first tick; None where it counts nothing."""
    if not header.rows:
        return None
    times_ms = header.tick_times_ms.tolist()
    first_ms = times_ms[0] + header.correction_ms if times_ms else envelope.ingest_time_ms
    name = f"{header.first_sequence}-{header.last_sequence}"
    reason = (DEAD_LETTER, code)
    item = _item(envelope, header, reason, name, first_ms, (header.rows, header.values))
    return replace(item, last_ms=max(first_ms, times_ms[-1] + header.correction_ms if times_ms else 0))


def item_of_gateway(envelope: Envelope, row: Row, said: Mapping[str, object]) -> Item | None:
    """Return what a gateway refused, by its row of the dead letters; None where it counts nothing.

    Points of foreign senders are values of no row, and count by the record that tells of them.
    """
    if not (row["rows"] or row["values"]):
        return None
    sequences = [_integer(said.get(name, -1)) for name in ("first_sequence", "last_sequence")]
    name = "-".join(map(str, sequences)) if sequences[0] >= 0 else f"{row['id']:x}"
    first_ms = row["first_time"] + _integer(said.get("correction_ms", 0)) or envelope.ingest_time_ms
    place = (envelope.tenant_id, envelope.cluster_id, row["host_id"], row["collector_id"])
    spool_id, kind = _integer(said.get("spool_id", 0)), row["kind"]
    last_ms = row["last_time"] + _integer(said.get("correction_ms", 0))
    what = (kind, max(first_ms, 0), row["stage"], row["code"], name, row["rows"], row["values"], max(last_ms, 0))
    return Item(place, spool_id, *what, version=envelope.ingest_time_ms)


def item_of_shed(source: Source, event: Event, time_ms: int) -> Item:
    """Return what an event says that its agent gave up; it may reach over many windows and is kept at its first."""
    told, header = event.attributes, source.frame.header
    envelope = source.envelope
    host_id = told.get("host") or source.frame.content.entities.host_id
    place = (envelope.tenant_id, envelope.cluster_id, host_id, told.get("collector") or header.collector_id)
    rows, values = (_integer(told.get(name, 0)) for name in ("rows", "values"))
    last_ms = time_ms if event.end_ms is None else event.end_ms + header.correction_ms
    spool_id = _integer(told.get("spool_id", "0"), 16)
    name = told.get("id", "")
    reason = told.get("reason", str(event.code))
    return Item(place, spool_id, told.get("kind", ""), max(time_ms, 0), SHED, reason, name, rows, values, last_ms)


def told_of_members(members: Sequence[Member], collectors: Sequence[int], alike: Likeness) -> Iterator[Told]:
    """Give what sound frames of one shape tell. Of regular ticks with equally many values the headers say it all."""
    by_tick = _ByTick(members, alike)
    rows_each, is_even = alike.shape.rows // alike.ticks, MIXED not in alike.shape.codes
    for number, (member, collector) in enumerate(zip(members, collectors, strict=True)):
        view, (first_ms, last_ms) = member.opened.view, member.span_ms
        step_ms, ticks = max(view.interval_ms, 1), view.ticks
        if last_ms - first_ms != (ticks - 1) * step_ms:
            counted = by_tick.ticks(number)
            for run in _runs(view, by_tick.times_ms(number)):
                yield _told((view, collector), run, counted)
            continue
        definitions, start = name_of(view.schema_hash, view.entities_hash), 0
        while start < ticks:
            window_ms = window_start(first_ms)
            first, phase_ms = divmod(first_ms - window_ms, step_ms)
            stop = min(ticks, start - (first_ms - window_ms - WINDOW_MS) // step_ms)
            some = stop - start
            if some == ticks:
                values = view.values
            elif is_even:
                values = view.values // ticks * some
            else:
                values = sum(by_tick.ticks(number).values[start:stop])
            name = Name(definitions, step_ms, phase_ms)
            key: SpanKey = (view.kind, window_ms, collector)
            each = partial(by_tick.part, number, start, stop)
            yield Told(key, view.spool_id, name, first, some, some * rows_each, values, each)
            first_ms += some * step_ms
            start = stop


class _ByTick:
    """Rows and values by tick of frames of one shape, worked out when they are first asked for."""

    def __init__(self, members: Sequence[Member], alike: Likeness) -> None:
        self._members = members
        self._alike = alike
        self._values: list[list[int]] | None = None

    def times_ms(self, number: int) -> list[int]:
        """Return the event times of a member's ticks."""
        member = self._members[number]
        times: list[int] = (tick_times([member.envelope.body], [member.opened.view])[0] + member.correction_ms).tolist()
        return times

    def part(self, number: int, start: int, stop: int) -> Ticks:
        """Return some of the ticks of a member."""
        ticks = self.ticks(number)
        return Ticks(ticks.rows[start:stop], ticks.values[start:stop])

    def ticks(self, number: int) -> Ticks:
        """Return the ticks of a member."""
        if self._values is None:
            views = [member.opened.view for member in self._members]
            counted = values_by_tick([member.data for member in self._members], views, self._alike.shape)
            self._values = counted.tolist()
        return Ticks([self._alike.shape.rows // self._alike.ticks] * self._alike.ticks, self._values[number])


def _told(whose: tuple[Header | HeadView, int], run: _Run, ticks: Ticks) -> Told:
    (header, collector), part = whose, _part(ticks, run)
    refused = {reason: _sum(counts) for reason, counts in part.refused.items() if any(map(any, counts))}
    return Told(
        (header.kind, run.window_ms, collector),
        header.spool_id,
        run.name,
        run.first,
        run.stop - run.start,
        sum(part.rows),
        sum(part.values),
        lambda: part,
        refused,
    )


def _runs(header: Header | HeadView, times_ms: Sequence[int]) -> Iterator[_Run]:
    """Cut ticks where a window ends or their distance is not the interval."""
    step_ms = max(header.interval_ms, 1)
    definitions = name_of(header.schema_hash, header.entities_hash)
    start = 0
    for number in range(1, len(times_ms) + 1):
        window_ms = window_start(times_ms[start])
        goes_on = number < len(times_ms) and times_ms[number] - times_ms[number - 1] == step_ms
        if goes_on and times_ms[number] < window_ms + WINDOW_MS:
            continue
        first, phase_ms = divmod(times_ms[start] - window_ms, step_ms)
        yield _Run(window_ms, Name(definitions, step_ms, phase_ms), first, start, number)
        start = number


def _part(ticks: Ticks, run: _Run) -> Ticks:
    chosen = slice(run.start, run.stop)
    refused = {reason: counts[chosen] for reason, counts in ticks.refused.items()}
    return Ticks(ticks.rows[chosen], ticks.values[chosen], refused)


def _sum(counts: Sequence[Counts]) -> Counts:
    return sum(rows for rows, _ in counts), sum(values for _, values in counts)


def _ticks(frame: Frame, scalars: ScalarBlock, dropped: Sequence[tuple[str, str]]) -> Ticks:
    """Return rows and values by tick; a dropped column takes values, and no row."""
    ticks = len(frame.header.tick_times_ms)
    rows = np.bincount(scalars.tick_index, minlength=ticks)
    values = np.zeros(ticks, np.int64)
    refused: dict[Reason, NDArray[np.int64]] = defaultdict(lambda: np.zeros(ticks, np.int64))
    reasons = dict(dropped)
    names = [column.metric for column in frame.content.schema.columns]
    for group in scalars.groups:
        for place in range(group.values.shape[0]):
            index = scalars.tick_index if group.present is None else scalars.tick_index[group.present[place]]
            counted = np.bincount(index, minlength=ticks)
            values += counted
            reason = reasons.get(names[group.first_column + place])
            if reason is not None:
                refused[DEAD_LETTER, reason] += counted
    listed: Mapping[Reason, Sequence[Counts]] = {
        reason: [(0, count) for count in counts.tolist()] for reason, counts in refused.items()
    }
    return Ticks(rows.tolist(), values.tolist(), listed)


def _item(envelope: Envelope, header: Header, reason: Reason, name: str, time_ms: int, counts: Counts) -> Item:
    place = (envelope.tenant_id, envelope.cluster_id, header.host_id, header.collector_id)
    what = (header.kind.value, max(time_ms, 0), *reason, name, *counts)
    return Item(place, header.spool_id, *what, version=envelope.ingest_time_ms)


def _integer(value: object, base: int = 10) -> int:
    """Return a count as somebody else wrote it, 0 where it is none."""
    try:
        number = int(value, base) if isinstance(value, str) else int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return 0
    return number if -(1 << 63) <= number < 1 << 64 else 0
