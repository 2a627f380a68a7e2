"""What the tables must hold of a shipment, worked out one cell at a time from what was measured and sent.

Nothing of the processor is used: the rules are those of the documentation, in their simplest form. Arrival is not known
here, so whatever depends on it cannot come out equal.
"""

import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import findings_oracle
from chaos_fleet import CATALOG, UNKNOWN_METRIC, Tick
from chaos_frames import Frame, Shipment, counted, delta_of
from chaos_gaps import GapKey, gaps_of
from chaos_owners import Facts, stated
from chaos_rollup import roll_up
from chaos_rows import RANKS, WINDOW_MS, LedgerKey, Owner, Row, RowKey, WindowKey
from secondsight.catalog.findings import load_rules
from secondsight.model import EntityKind
from secondsight.wire.content import Event, Info

FINDINGS_SECONDS = 300
"""Of longer stories findings are not worked out: that takes the square of their length."""


@dataclass(slots=True, repr=False)
class Expected:
    """All that is to be found.

    Attributes:
        raw, rolled: By kind.
        told: Rows and values that were told of each window and not refused, each record once.
        unclear: Windows of which the ledger's counts depend on what came first.
        findings: None of a long story, of which they would take too long.
        refused: (collector, stage, code, metric) -> distinct (spool, sequence) that were refused.
    """

    raw: dict[EntityKind, dict[RowKey, Row]]
    owners: dict[EntityKind, dict[RowKey, Owner]]
    rolled: dict[EntityKind, dict[WindowKey, dict[str, Any]]]
    events: dict[tuple[Any, ...], dict[str, Any]]
    infos: set[tuple[Any, ...]]
    histograms: dict[tuple[Any, ...], tuple[Any, ...]]
    allocations: dict[tuple[str, int, str], tuple[Any, ...]]
    told: dict[LedgerKey, tuple[int, int]]
    unclear: set[LedgerKey]
    refused: dict[tuple[str, str, str, str], set[tuple[int, int]]]
    findings: set[tuple[Any, ...]] | None
    gaps: dict[GapKey, str]


def expect(shipment: Shipment) -> Expected:
    stored = [frame for frame in shipment.frames() if frame.fate == "stored"]
    raw: dict[EntityKind, dict[RowKey, Row]] = {kind: {} for kind in EntityKind}
    for frame in stored:
        _unite(raw[frame.tick.kind], frame)
    ticks = _ticks(stored)
    facts = Facts((tick.host, event) for tick in ticks for event in tick.events if event.metric == "job_gpu_allocation")
    owners = {kind: {key: facts.owner(kind, key) for key in rows} for kind, rows in raw.items()}
    told, unclear = _told(stored)
    return Expected(
        raw,
        owners,
        {kind: roll_up(kind, rows, owners[kind]) for kind, rows in raw.items()},
        _events(ticks, facts),
        {_info(tick, info) for tick in ticks for info in tick.infos},
        {
            (tick.host, item.entity, item.metric, tick.event_ms, tick.collector): (list(item.buckets), item.sum)
            for tick in ticks
            for item in tick.histograms
        },
        facts.rows(),
        told,
        unclear,
        _refused(shipment),
        _findings(raw) if shipment.fleet.story.seconds <= FINDINGS_SECONDS else None,
        gaps_of(raw, [event for tick in ticks for event in tick.events if event.metric == "agent_shed"]),
    )


def _ticks(frames: Iterable[Frame]) -> list[Tick]:
    """Return the ticks whose events, facts and histograms some frames carry."""
    return [record.tick for frame in frames for record in frame.records if record.is_first]


def _unite(rows: dict[RowKey, Row], frame: Frame) -> None:
    schema = int.from_bytes(frame.definitions()[0][:8], "little")
    for record in frame.records:
        tick = record.tick
        is_suspect = tick.uncertainty_ms >= 200 and abs(tick.offset_ms or 0) > 1000
        first = frame.records[0].sequence
        origin = (record.spool_id, first, schema, tick.correction_ms, tick.boot, tick.source, is_suspect)
        for subject, cells in record.rows.items():
            key = RowKey(tick.host, *subject, tick.event_ms, tick.collector)
            delta_ms = delta_of(record, subject)
            row = rows.setdefault(key, Row(origin, delta_ms, tick.interval_ms))
            if origin <= row.origin:
                row.delta_ms = delta_ms if origin < row.origin else min(delta_ms, row.delta_ms)
                row.origin = origin
            row.interval_ms = max(row.interval_ms, tick.interval_ms)
            for name, cell in cells.items():
                if name != UNKNOWN_METRIC:
                    made = (RANKS[cell.quality], _bits(name, cell.value), cell.value, cell.quality)
                    row.cells[name] = max(row.cells.get(name, made), made, key=lambda one: one[:2])


def _bits(name: str, value: float | None) -> int:
    if value is None:
        return 0
    if CATALOG.get(name).dtype == "f64":
        return int.from_bytes(struct.pack("<d", value), "little")
    return int(value) & 0xFFFF_FFFF_FFFF_FFFF


def _event_key(tick: Tick, event: Event) -> tuple[Any, ...]:
    place = (tick.host, tick.kind.value, event.metric, event.entity)
    told = (event.attributes.get("text", ""), event.attributes.get("job_id", ""))
    return *place, event.time_ms + tick.correction_ms, event.code, *told


def _events(ticks: Iterable[Tick], facts: Facts) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the newest version of each event, with whose it is."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for tick in ticks:
        for event in tick.events:
            key, says_so = _event_key(tick, event), tick.kind is EntityKind.PROCESS_JOB
            owner = stated(event) if says_so else facts.of_gpu(event.entity, event.time_ms + tick.correction_ms)
            told = {"end": event.end_ms, "attributes": dict(event.attributes), "owner": owner}
            if key not in found or found[key]["version"] < event.version:
                found[key] = told | {"version": event.version}
    return found


def _info(tick: Tick, info: Info) -> tuple[Any, ...]:
    attributes = tuple(sorted(info.attributes.items()))
    return tick.host, info.metric, info.entity, info.time_ms + tick.correction_ms, attributes


def _told(stored: Iterable[Frame]) -> tuple[dict[LedgerKey, tuple[int, int]], set[LedgerKey]]:
    """Count every record once: one tick of one spool and pair of definitions."""
    seen: dict[tuple[Any, ...], tuple[LedgerKey, tuple[int, int], int]] = {}
    unclear: set[LedgerKey] = set()
    for frame in stored:
        definitions = frame.definitions()
        for record in frame.records:
            if not record.rows:
                continue
            tick = record.tick
            key = LedgerKey(tick.collector, tick.kind.value, tick.event_ms // WINDOW_MS * WINDOW_MS)
            name = (key, record.spool_id, definitions, tick.interval_ms, tick.event_ms)
            rows, values = counted(record)
            values -= sum(UNKNOWN_METRIC in cells for cells in record.rows.values())
            if name in seen and seen[name][2] != record.sequence:
                unclear.add(key)
            seen[name] = (key, (rows, values), record.sequence)
    told: defaultdict[LedgerKey, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for key, (rows, values), _ in seen.values():
        told[key] = (told[key][0] + rows, told[key][1] + values)
    return dict(told), unclear


def _findings(raw: Mapping[EntityKind, Mapping[RowKey, Row]]) -> set[tuple[Any, ...]]:
    found: set[tuple[Any, ...]] = set()
    for kind, rows in raw.items():
        rules = [rule for rule in load_rules(CATALOG) if rule.kind is kind]
        names = {metric.name for rule in rules for metric in rule.metrics}
        samples = [
            key._asdict()
            | {"boot_id": row.origin[4], "interval_ms": row.interval_ms}
            | {n: row.value(n) for n in names}
            for key, row in rows.items()
        ]
        found |= findings_oracle.expected(rules, samples)
    return found


def _refused(shipment: Shipment) -> dict[tuple[str, str, str, str], set[tuple[int, int]]]:
    """Return what is refused of frames, by the records that it is of."""
    found: defaultdict[tuple[str, str, str, str], set[tuple[int, int]]] = defaultdict(set)
    for frame in shipment.frames():
        collector, first = frame.tick.collector, (frame.records[0].spool_id, frame.records[0].sequence)
        if frame.fate == "poison":
            found[collector, "dead_letter", "bad_frame", ""].add(first)
        elif frame.fate == "future":
            found[collector, "quarantine", "future_time", ""].add(first)
        elif UNKNOWN_METRIC in frame.records[0].names:
            found[collector, "dead_letter", "unknown_metric", UNKNOWN_METRIC].add(first)
    return dict(found)


def sizes(expected: Expected) -> dict[str, int]:
    """Return how much there is to compare."""
    counts: Counter[str] = Counter()
    for kind in EntityKind:
        counts["raw rows"] += len(expected.raw[kind])
        counts["cells"] += sum(len(row.cells) for row in expected.raw[kind].values())
        counts["30 s rows"] += len(expected.rolled[kind])
        counts["figures"] += sum(len(row) for row in expected.rolled[kind].values())
    for name in ("events", "infos", "histograms", "allocations", "refused", "gaps", "findings"):
        counts[name] = len(getattr(expected, name) or ())
    return dict(counts)
