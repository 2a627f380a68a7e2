"""Cut ticks into frames as agents do, and put them into an order in which no network should deliver them.

Every tick is divided by priority class and by metric group; each share is a record with a number of its spool. Runs of
records become frames. Frames are told twice, cut otherwise the second time, held back, shuffled, sent ahead of their
turn, or spoiled. What is sent in the end is listed, so that whoever knows the list knows what is to be stored.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from chaos_fleet import CATALOG, UNKNOWN_METRIC, Cell, Fleet, Rows, Tick, values_of
from secondsight.model import EntityKind, Priority, Quality
from secondsight.wire.content import (
    Column,
    Content,
    Entity,
    EntityTable,
    Group,
    HistogramColumn,
    HistogramRows,
    ScalarBlock,
    Schema,
)
from secondsight.wire.frame import Stamp, encode, read_header
from secondsight.wire.header import write_header
from secondsight.wire.schema import NUMPY_TYPES, definition_hash, entity_table_blob, make_schema, schema_blob

RUN = 12
"""Most ticks of a frame."""
BODY = 6
"""Most frames of a body."""
DAY_MS = 86_400_000
SPOOL_CLASSES = 8
CONFLICTS = SPOOL_CLASSES - 1


@dataclass(frozen=True, slots=True, repr=False)
class Record:
    """The share of one tick that one spool numbers."""

    tick: Tick
    rows: Rows
    spool_id: int
    sequence: int
    is_first: bool
    """It carries the tick's events, facts and histograms."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({name for cells in self.rows.values() for name in cells}))


@dataclass(slots=True, repr=False)
class Frame:
    """Some records that are sent as one; what becomes of it is said by `fate`."""

    records: tuple[Record, ...]
    live: bool = False
    fate: str = "stored"
    _parts: tuple[Stamp, Content] | None = None

    @property
    def tick(self) -> Tick:
        return self.records[0].tick

    @property
    def last_second(self) -> int:
        return self.records[-1].tick.second

    def parts(self) -> tuple[Stamp, Content]:
        if self._parts is None:
            self._parts = _stamp(self), _content(self.records)
        return self._parts

    def definitions(self) -> tuple[bytes, bytes]:
        """Return the names of schema and entity table."""
        content = self.parts()[1]
        blobs = schema_blob(content.schema), entity_table_blob(content.entities)
        return definition_hash(blobs[0]), definition_hash(blobs[1])

    def bytes(self, *, inline: bool = False) -> bytes:
        made = encode(*self.parts(), inline=inline)
        if self.fate != "poison":
            return made
        head = read_header(made)
        lie = replace(head.header, values=head.header.values + 1)
        return write_header(replace(head, header=lie)) + made[head.body_start :]


@dataclass(slots=True, repr=False)
class Parcel:
    """One body of one host, to be sent until it is acknowledged; a spoiled one until it is refused."""

    host: str
    frames: tuple[Frame, ...]
    turn: float
    spoil: int | None = None
    """Seed of the damage."""

    def bytes(self, *, inline: bool = False) -> bytes:
        body = b"".join(frame.bytes(inline=inline) for frame in self.frames)
        return body if self.spoil is None else _damaged(body, random.Random(self.spoil))


@dataclass(slots=True, repr=False)
class Shipment:
    """All that is sent of a fleet: parcels of each host in their order, and the frames among them that count."""

    fleet: Fleet
    parcels: dict[str, list[Parcel]]
    ticks: int
    counts: dict[str, int] = field(default_factory=dict)

    def frames(self) -> Iterator[Frame]:
        for parcels in self.parcels.values():
            for parcel in parcels:
                if parcel.spoil is None:
                    yield from parcel.frames

    def __len__(self) -> int:
        return sum(len(parcels) for parcels in self.parcels.values())


def ship(fleet: Fleet) -> Shipment:
    """Make all parcels of a fleet."""
    by_host: defaultdict[str, list[Tick]] = defaultdict(list)
    closing: defaultdict[str, list[Tick]] = defaultdict(list)
    for tick in fleet.ticks():
        (closing if tick.second > fleet.story.seconds else by_host)[tick.host].append(tick)
    parcels: dict[str, list[Parcel]] = {}
    counts: defaultdict[str, int] = defaultdict(int)
    for number, host in enumerate(fleet.names()):
        cutter = _Cutter(fleet, number)
        frames = cutter.frames(by_host[host])
        sent = _disordered(frames, cutter, counts)
        parcels[host] = [*_parcels(host, sent, cutter.chance, counts), cutter.last_parcel(host, closing[host])]
    counts["frames"] = sum(len(parcel.frames) for some in parcels.values() for parcel in some)
    return Shipment(fleet, parcels, sum(map(len, by_host.values())), dict(counts))


class _Cutter:
    """Numbers the records of one host and cuts them into frames."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.chance = random.Random(f"frames {fleet.story.seed} {number}")
        self._number = number
        self._spools: dict[tuple[str, str, int], int] = {}
        self._sequences: defaultdict[int, int] = defaultdict(int)

    def frames(self, ticks: Iterable[Tick]) -> list[Frame]:
        """Return the frames of ticks in the order of their last tick."""
        streams: defaultdict[tuple[str, EntityKind, str, int], list[Record]] = defaultdict(list)
        for tick in ticks:
            for group, record in self._records(tick):
                streams[tick.collector, tick.kind, tick.source, group].append(record)
        made = [Frame(run) for records in streams.values() for run in cut(records, self.chance)]
        return sorted(made, key=lambda frame: frame.last_second)

    def extra(self, record: Record, shift_ms: int) -> Record:
        """Return a record of its own with the rows of another, so much later."""
        tick = record.tick
        spool = self._spool(tick, CONFLICTS)
        return replace(
            record,
            tick=replace(tick, time_ms=tick.time_ms + shift_ms, events=(), infos=(), histograms=()),
            spool_id=spool,
            sequence=self._next(spool),
        )

    def last_parcel(self, host: str, ticks: Sequence[Tick]) -> Parcel:
        return Parcel(host, tuple(self.frames(ticks)), float("inf"))

    def _records(self, tick: Tick) -> Iterator[tuple[int, Record]]:
        shares: defaultdict[int, Rows] = defaultdict(dict)
        for subject, cells in tick.rows.items():
            for name, cell in cells.items():
                shares[_group(name)].setdefault(subject, {})[name] = cell
        contested = self._contested(tick)
        if contested:
            shares[CONFLICTS] = contested
        groups = sorted(shares) or [0]
        for group in groups:
            spool = self._spool(tick, group)
            yield group, Record(tick, shares[group], spool, self._next(spool), group == groups[0])

    def _contested(self, tick: Tick) -> Rows:
        """Return other claims of some of a tick's cells, which are settled by the greater quality and value."""
        if tick.kind is not EntityKind.GPU or self.chance.random() > 0.02:
            return {}
        claims: Rows = {}
        for subject, cells in tick.rows.items():
            name = self.chance.choice(sorted(name for name in cells if name != UNKNOWN_METRIC))
            value, quality = cells[name]
            other = self.chance.choice((Cell(value, Quality.ESTIMATE), Cell(None, Quality.STALE), Cell(1), Cell(0)))
            claims[subject] = {name: other if value is not None or other.value is not None else Cell(None, quality)}
        return claims

    def _spool(self, tick: Tick, group: int) -> int:
        """Return the spool of a class; a new boot begins with an empty folder."""
        key = (tick.collector, tick.boot, group)
        if key not in self._spools:
            self._spools[key] = self.chance.getrandbits(63) | 1
        return self._spools[key]

    def _next(self, spool: int) -> int:
        self._sequences[spool] += 1
        return self._sequences[spool]


def cut(records: Sequence[Record], chance: random.Random) -> Iterator[tuple[Record, ...]]:
    """Cut records in order into runs that one frame can hold."""
    run: list[Record] = []
    size = chance.randint(1, RUN)
    for record in records:
        if run and (len(run) >= size or _shape(record) != _shape(run[-1]) or not _follows(record, run[-1])):
            yield tuple(run)
            run, size = [], chance.randint(1, RUN)
        run.append(record)
    if run:
        yield tuple(run)


def _shape(record: Record) -> tuple[object, ...]:
    tick = record.tick
    histograms = tuple((item.metric, item.entity) for item in tick.histograms) if record.is_first else ()
    clock = (tick.boot, tick.offset_ms, tick.uncertainty_ms, tick.interval_ms)
    return (*clock, record.names, tuple(sorted(record.rows)), histograms, record.spool_id)


def _follows(record: Record, before: Record) -> bool:
    return record.tick.time_ms > before.tick.time_ms


def _group(name: str) -> int:
    """Return the class of a metric, each in two halves."""
    priority = CATALOG.get(name).priority if name in CATALOG else Priority.P2
    return 2 * priority.value + sum(name.encode()) % 2


def _disordered(frames: Sequence[Frame], cutter: _Cutter, counts: defaultdict[str, int]) -> list[tuple[float, Frame]]:
    """Return (turn, frame): turns are seconds of the story, and only their order means something."""
    chance, sent = cutter.chance, list[tuple[float, Frame]]()
    end = frames[-1].last_second if frames else 0
    for frame in frames:
        turn = float(frame.last_second)
        fate = chance.random()
        if fate < 0.04:
            counts["held back"] += 1
            turn += chance.uniform(20, max(end - turn, 40))
        elif fate < 0.08:
            counts["shuffled"] += 1
            turn += chance.uniform(-15, 15)
        elif fate < 0.11:
            counts["ahead"] += 1
            frame.live = True
            turn -= chance.uniform(0, 30)
        sent.append((turn, frame))
        if chance.random() < 0.05:
            counts["sent twice"] += 1
            sent.append((turn + chance.uniform(0, 60), frame))
        if len(frame.records) > 1 and chance.random() < 0.03:
            counts["cut again"] += 1
            first = chance.randrange(len(frame.records) - 1)
            again = Frame(frame.records[first : chance.randint(first + 1, len(frame.records))], frame.live)
            sent.append((turn + chance.uniform(-5, 90), again))
        sent += _spoiled(frame, turn, cutter, counts)
    return sorted(sent, key=lambda item: item[0])


def _spoiled(
    frame: Frame, turn: float, cutter: _Cutter, counts: defaultdict[str, int]
) -> Iterator[tuple[float, Frame]]:
    """Give frames that cannot be stored: one that lies of its body, one from the future."""
    if not frame.records[0].rows or cutter.chance.random() > 0.01:
        return
    fate, shift_ms = cutter.chance.choice((("poison", 0), ("future", DAY_MS)))
    counts[fate] += 1
    yield turn, Frame((cutter.extra(frame.records[0], shift_ms),), fate=fate)


def _parcels(
    host: str, sent: Sequence[tuple[float, Frame]], chance: random.Random, counts: defaultdict[str, int]
) -> Iterator[Parcel]:
    start = 0
    while start < len(sent):
        stop = start + chance.randint(1, BODY)
        frames = tuple(frame for _, frame in sent[start:stop])
        turn = sent[start][0]
        if chance.random() < 0.03:
            counts["spoiled bodies"] += 1
            yield Parcel(host, frames, turn, chance.getrandbits(32))
        yield Parcel(host, frames, turn)
        start = stop


def _damaged(body: bytes, chance: random.Random) -> bytes:
    """Change a byte, cut the end, or repeat a piece."""
    place = chance.randrange(len(body))
    match chance.randrange(3):
        case 0:
            return body[:place] + bytes([body[place] ^ 1 << chance.randrange(8)]) + body[place + 1 :]
        case 1:
            return body[: max(place, 1)] if place % 2 else body[:-1]
        case _:
            return body[:place] + body[place : place + 5] + body[place:]


def _stamp(frame: Frame) -> Stamp:
    tick, records = frame.tick, frame.records
    return Stamp(
        collector_id=tick.collector,
        host_id=tick.host,
        source=tick.source,
        spool_id=records[0].spool_id,
        first_sequence=records[0].sequence,
        last_sequence=records[-1].sequence,
        tick_times_ms=np.array([record.tick.time_ms for record in records], np.int64),
        interval_ms=tick.interval_ms,
        boot_id=tick.boot,
        clock_offset_ms=tick.offset_ms,
        clock_uncertainty_ms=tick.uncertainty_ms,
        live=frame.live,
    )


def _content(records: Sequence[Record]) -> Content:
    tick = records[0].tick
    carriers = [record for record in records if record.is_first]
    readings = [
        (number, item) for number, record in enumerate(records) if record.is_first for item in record.tick.histograms
    ]
    columns = {item.metric: HistogramColumn(item.metric, item.unit, item.bounds) for _, item in readings}
    schema = make_schema(tick.kind, [_column(name) for name in records[0].names], columns.values())
    subjects = sorted(set(records[0].rows) | {(item.entity, "") for _, item in readings}) or [(tick.host, "")]
    table = EntityTable(tick.kind, tick.host, rack_of(tick.host), tuple(Entity(*subject) for subject in subjects))
    return Content(
        schema,
        table,
        _block(records, schema, subjects) if records[0].rows else None,
        tuple(_histograms(metric, some, subjects) for metric, some in groupby(readings, key=lambda one: one[1].metric)),
        tuple(event for record in carriers for event in record.tick.events),
        tuple(info for record in carriers for info in record.tick.infos),
    )


def rack_of(host: str) -> str:
    return f"r{(int(host.rpartition('-')[2]) - 1) // 4 + 1:03d}"


def _column(name: str) -> Column:
    if name == UNKNOWN_METRIC:
        return Column(name, "1", "u32", 1.0)
    metric = CATALOG.get(name)
    return Column(metric.name, metric.unit, metric.dtype, metric.resolution)


def _block(records: Sequence[Record], schema: Schema, subjects: Sequence[tuple[str, str]]) -> ScalarBlock:
    keys = [
        (tick, place) for tick, record in enumerate(records) for place, s in enumerate(subjects) if s in record.rows
    ]
    cells = [records[tick].rows[subjects[place]] for tick, place in keys]
    groups, listed = [], list[tuple[int, int, int]]()
    for dtype, members in groupby(enumerate(schema.columns), key=lambda item: item[1].dtype):
        columns = list(members)
        read = [[row.get(column.metric, _NOTHING) for row in cells] for _, column in columns]
        values = np.array([[cell.value or 0 for cell in row] for row in read], NUMPY_TYPES[dtype])
        present = np.array([[cell.value is not None for cell in row] for row in read])
        groups.append(Group(columns[0][0], values, None if present.all() else present))
        listed += [
            (number, row, cell.quality.value)
            for (number, _), each in zip(columns, read, strict=True)
            for row, cell in enumerate(each)
            if cell.quality not in (Quality.OK, Quality.NONE)
        ]
    return ScalarBlock(
        np.array([place for _, place in keys], np.uint32),
        np.array([tick for tick, _ in keys], np.uint16),
        np.array([delta_of(records[tick], subjects[place]) for tick, place in keys], np.int32),
        tuple(groups),
        np.array([row for _, row, _ in listed], np.uint32),
        np.array([number for number, _, _ in listed], np.uint16),
        np.array([quality for _, _, quality in listed], np.uint8),
    )


_NOTHING = Cell(None, Quality.NONE)


def delta_of(record: Record, subject: tuple[str, str]) -> int:
    """Return how much later than its tick a row was read, ms."""
    return (record.sequence * 7 + len(subject[0])) % 90


def _histograms(
    metric: str, readings: Iterable[tuple[int, object]], subjects: Sequence[tuple[str, str]]
) -> HistogramRows:
    some = list(readings)
    return HistogramRows(
        0,
        np.array([subjects.index((item.entity, "")) for _, item in some], np.uint32),
        np.array([number for number, _ in some], np.uint16),
        np.array([item.buckets for _, item in some], np.uint64),
        np.array([item.sum for _, item in some]),
        np.array([item.start_ms for _, item in some], np.int64),
    )


def counted(record: Record) -> tuple[int, int]:
    """Return the rows and values that a header counts of a record."""
    return len(record.rows), values_of(record.rows)
