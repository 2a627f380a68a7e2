"""What the tables must hold of a shipment, worked out one cell at a time from what was measured and sent.

Nothing of the processor is used: the rules are those of the documentation, in their simplest form. Arrival is not known
here, so whatever depends on it cannot come out equal.
"""

import struct
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import findings_oracle
from chaos_fleet import CATALOG, UNKNOWN_METRIC, Tick
from chaos_frames import Frame, Shipment, counted, delta_of, rack_of
from secondsight.catalog.findings import load_rules
from secondsight.catalog.metric import Metric, RollupSet
from secondsight.model import EntityKind, Quality
from secondsight.wire.content import Event, Info

WINDOW_MS = 30_000
LOOKBACK_MS = 3_600_000
LEAD_MS = 600_000
FINDINGS_SECONDS = 300
FOREVER_MS = 1 << 62
RANKS = {
    quality: rank
    for rank, quality in enumerate(
        (
            Quality.NONE,
            Quality.ABSENT_NOT_SUPPORTED,
            Quality.ABSENT_NO_PERMISSION,
            Quality.ABSENT_SOURCE_BLANK,
            Quality.BAD_PARSE,
            Quality.BAD_RANGE,
            Quality.STALE,
            Quality.SATURATED,
            Quality.ESTIMATE,
            Quality.OK,
        )
    )
}
SOURCE_RANKS = {"simulate": 0, "training": 0, "slurm": 1, "scrape": 2}
KEPT_ACROSS_BOOTS = ("aggregate", "remapped", "retired", "lifetime")
BEGIN_AT_ZERO = (EntityKind.GPU, EntityKind.NODE, EntityKind.FABRIC_PORT, EntityKind.PROCESS_JOB)
ATTRIBUTION = ("job_id", "workload_id", "owner_team", "model_id")

Owner = tuple[str, str, str, str]
NOBODY: Owner = ("", "", "", "")


class RowKey(NamedTuple):
    host_id: str
    entity: str
    part: str
    event_time: int
    collector_id: str


class WindowKey(NamedTuple):
    host_id: str
    entity: str
    part: str
    collector_id: str
    window_start: int
    owner: Owner


class LedgerKey(NamedTuple):
    collector_id: str
    kind: str
    window_ms: int


Origin = tuple[int, int, int, int, str, str, bool]


@dataclass(slots=True)
class Row:
    """One raw row; cells as (rank, bits of the value, value, quality)."""

    origin: Origin
    delta_ms: int
    interval_ms: int
    cells: dict[str, tuple[int, int, Any, Quality]] = field(default_factory=dict)

    def value(self, name: str) -> Any:
        cell = self.cells.get(name)
        return None if cell is None else cell[2]

    @property
    def blemishes(self) -> dict[str, int]:
        return {name: cell[3].value for name, cell in self.cells.items() if cell[3] not in (Quality.OK, Quality.NONE)}


@dataclass(slots=True)
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
    gaps: dict[tuple[str, str, int, int], str]


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
        _gaps(raw, stored),
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


class Facts:
    """Who had what: of several facts in force the one that began last counts."""

    def __init__(self, events: Iterable[tuple[str, Event]]) -> None:
        self._best: dict[tuple[str, int, str], Event] = {}
        self._hosts: dict[str, str] = {}
        for host, event in events:
            self._hosts[event.entity] = host
            key = (event.entity, event.time_ms, event.attributes["job_id"])
            if key not in self._best or event.version > self._best[key].version:
                self._best[key] = event
        self._of_gpu: defaultdict[str, list[Event]] = defaultdict(list)
        self._of_job: defaultdict[str, list[Event]] = defaultdict(list)
        self._of_model: defaultdict[str, list[Event]] = defaultdict(list)
        for event in self._best.values():
            self._of_gpu[event.entity].append(event)
            self._of_job[event.attributes["job_id"]].append(event)
            self._of_model[event.attributes["model_id"]].append(event)

    def rows(self) -> dict[tuple[str, int, str], tuple[Any, ...]]:
        return {key: (event.end_ms, event.version, *_stated(event)) for key, event in self._best.items()}

    def of_gpu(self, gpu: str, time_ms: int) -> Owner:
        force = [one for one in self._of_gpu[gpu] if one.time_ms <= time_ms < (one.end_ms or FOREVER_MS)]
        return _stated(max(force, key=lambda one: (one.time_ms, one.version))) if force else NOBODY

    def of_job(self, job: str, time_ms: int) -> Owner:
        mine = self._of_job[job]
        if not mine or time_ms < min(one.time_ms for one in mine) - LEAD_MS:
            return (job, "", "", "")
        return agreed(map(_stated, mine))

    def owner(self, kind: EntityKind, key: RowKey) -> Owner:
        """Return whose a row is."""
        match kind:
            case EntityKind.TRAINING:
                return self.of_job(key.entity.partition("/")[0], key.event_time)
            case EntityKind.PROCESS_JOB if key.part:
                return self.of_gpu(key.part.removeprefix("gpu="), key.event_time)
            case EntityKind.PROCESS_JOB:
                return self.of_job(key.entity, key.event_time)
            case EntityKind.INFERENCE:
                return self._of_engine(key)
            case _:
                return self.of_gpu(key.entity, key.event_time)

    def _of_engine(self, key: RowKey) -> Owner:
        model = key.entity.partition("/")[2]
        force = [
            _stated(one)
            for one in self._of_model[model]
            if self._hosts[one.entity] == key.host_id and one.time_ms <= key.event_time < (one.end_ms or FOREVER_MS)
        ]
        return (*agreed(force)[:3], model)


def agreed(owners: Iterable[Owner]) -> Owner:
    """Return what all owners have in common."""
    fields = [set(values) for values in zip(*owners, strict=True)] or [set[str]()] * 4
    job, workload, team, model = (next(iter(values)) if len(values) == 1 else "" for values in fields)
    return job, workload, team, model


def _stated(event: Event) -> Owner:
    told = event.attributes
    return told["job_id"], told["workload_id"], told["owner_team"], told["model_id"]


def roll_up(
    kind: EntityKind, rows: Mapping[RowKey, Row], owners: Mapping[RowKey, Owner]
) -> dict[WindowKey, dict[str, Any]]:
    """Return the 30 s rows of a kind: a sample counts until the next one, its interval's end or its window's end."""
    series: defaultdict[tuple[str, str, str, str], list[RowKey]] = defaultdict(list)
    for key in rows:
        series[key.host_id, key.entity, key.part, key.collector_id].append(key)
    made: dict[WindowKey, dict[str, Any]] = {}
    for chain in series.values():
        chain.sort(key=lambda key: key.event_time)
        samples = [_Sample(key, rows[key], owners[key]) for key in chain]
        ranks: defaultdict[int, set[int]] = defaultdict(set)
        for sample in samples:
            ranks[sample.window_ms].add(SOURCE_RANKS[sample.row.origin[5]])
        for sample, weight in _weighed(samples):
            _count_row(made, sample, weight, min(ranks[sample.window_ms]))
        names = {name for sample in samples for name in sample.row.cells}
        for name in names:
            own = [sample for sample in samples if sample.row.value(name) is not None]
            _count_metric(made, CATALOG.get(name), own)
    for row in made.values():
        row["covered_other"] = {name: ms for name, ms in row["covered_other"].items() if ms != row["covered_ms"]}
        row["increase_other"] = {name: ms for name, ms in row["increase_other"].items() if ms != row["covered_ms"]}
        for name, pairs in row.pop("pairs").items():
            row[f"{name}_p95"] = _p95(pairs)
    return made


class _Sample(NamedTuple):
    key: RowKey
    row: Row
    owner: Owner

    @property
    def time_ms(self) -> int:
        return self.key.event_time

    @property
    def window_ms(self) -> int:
        return self.key.event_time // WINDOW_MS * WINDOW_MS

    @property
    def boot(self) -> str:
        return self.row.origin[4]

    @property
    def window(self) -> WindowKey:
        key = self.key
        return WindowKey(key.host_id, key.entity, key.part, key.collector_id, self.window_ms, self.owner)


def _weighed(samples: list[_Sample]) -> Iterable[tuple[_Sample, int]]:
    for number, sample in enumerate(samples):
        ends = [sample.time_ms + max(sample.row.interval_ms, 1), sample.window_ms + WINDOW_MS]
        ends += [other.time_ms for other in samples[number + 1 : number + 2]]
        yield sample, min(ends) - sample.time_ms


def _count_row(made: dict[WindowKey, dict[str, Any]], sample: _Sample, weight: int, rank: int) -> None:
    new: dict[str, Any] = {"samples": 0, "covered_ms": 0, "interval_ms": 0, "first_event_time": sample.time_ms}
    new |= {name: {} for name in ("covered_other", "increase_other", "resets", "changes", "state_ms", "pairs")}
    row = made.setdefault(sample.window, new | {"source_rank": rank})
    row["samples"] += 1
    row["covered_ms"] += weight
    row["last_event_time"] = sample.time_ms
    row["interval_ms"] = max(row["interval_ms"], sample.row.interval_ms)


def _count_metric(made: dict[WindowKey, dict[str, Any]], metric: Metric, own: list[_Sample]) -> None:
    before: _Sample | None = None
    for sample, weight in _weighed(own):
        row, value = made[sample.window], sample.row.value(metric.name)
        row[f"{metric.name}_last"] = value
        _add(row["covered_other"], metric.name, weight)
        if before is not None and sample.time_ms - before.time_ms > LOOKBACK_MS:
            before = None
        match metric.rollup:
            case RollupSet.LEVEL | RollupSet.DISTRIBUTION:
                _count_gauge(row, metric, value, weight)
            case RollupSet.INCREASE:
                _count_increase(row, metric, before, sample)
            case RollupSet.STATE:
                changes = before is not None and before.row.value(metric.name) != value
                _count_state(row, metric, value, weight, changes=changes)
            case _:
                pass
        before = sample


def _count_gauge(row: dict[str, Any], metric: Metric, value: Any, weight: int) -> None:
    name = metric.name
    row[f"{name}_sum"] = row.get(f"{name}_sum", 0) + value * weight
    row[f"{name}_min"] = min(row.get(f"{name}_min", value), value)
    row[f"{name}_max"] = max(row.get(f"{name}_max", value), value)
    if metric.rollup is RollupSet.DISTRIBUTION:
        row["pairs"].setdefault(name, []).append((value, weight))


def _count_state(row: dict[str, Any], metric: Metric, value: int, weight: int, *, changes: bool) -> None:
    if changes:
        _add(row["changes"], metric.name, 1)
    for state in _states(metric, value):
        _add(row["state_ms"], state, weight)


def _count_increase(row: dict[str, Any], metric: Metric, before: _Sample | None, sample: _Sample) -> None:
    row.setdefault(f"{metric.name}_first", sample.row.value(metric.name))
    if before is None:
        return
    v1, v2 = before.row.value(metric.name), sample.row.value(metric.name)
    gap_ms = sample.time_ms - before.time_ms
    gain = _gain(metric, v1, v2, is_new_boot=before.boot != sample.boot)
    if before.boot == sample.boot and v1 - v2 > v1 >> 30:
        _add(row["resets"], metric.name, 1)
    if gain is None or (metric.cap is not None and v2 >= metric.cap / metric.resolution):
        return
    if metric.step_maximum is not None and gain > metric.step_maximum / metric.resolution * (gap_ms / 1000 + 1):
        return
    row[f"{metric.name}_increase"] = row.get(f"{metric.name}_increase", 0) + gain
    _add(row["increase_other"], metric.name, gap_ms)


def _gain(metric: Metric, v1: int, v2: int, *, is_new_boot: bool) -> int | None:
    """Return what a counter gained between two samples, None where nobody can tell."""
    if is_new_boot:
        begins_at_zero = metric.kind in BEGIN_AT_ZERO and not any(word in metric.name for word in KEPT_ACROSS_BOOTS)
        return v2 if begins_at_zero else None
    if v2 >= v1:
        return v2 - v1
    return 0 if v1 - v2 <= v1 >> 30 else v2


def _states(metric: Metric, value: int) -> list[str]:
    if not metric.bitmask:
        return [f"{metric.name}={value}"]
    return [f"{metric.name}&{1 << bit}" for bit in range(value.bit_length()) if value >> bit & 1]


def _p95(pairs: list[tuple[Any, int]]) -> Any:
    total, reached = sum(weight for _, weight in pairs), 0
    for value, weight in sorted(pairs):
        reached += weight
        if 100 * reached >= 95 * total:
            return value
    raise AssertionError("no weight")


def _add(counts: dict[str, int], name: str, number: int) -> None:
    counts[name] = counts.get(name, 0) + number


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
            owner = _stated(event) if says_so else facts.of_gpu(event.entity, event.time_ms + tick.correction_ms)
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


def _gaps(
    raw: Mapping[EntityKind, Mapping[RowKey, Row]], stored: Iterable[Frame]
) -> dict[tuple[str, str, int, int], str]:
    """Return (host, GPU, first missing slot, next present one) -> reason, of gaps between samples of GPUs."""
    times: defaultdict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for key, row in raw[EntityKind.GPU].items():
        if not key.part:
            times[key.host_id, key.entity].setdefault(key.event_time, row.origin[4])
    beats: defaultdict[str, list[int]] = defaultdict(list)
    for key, row in raw[EntityKind.PLATFORM].items():
        if row.value("agent_up") is not None:
            beats[key.host_id].append(key.event_time)
    found: dict[tuple[str, str, int, int], tuple[str, str]] = {}
    for (host, gpu), seen in times.items():
        ordered = sorted(seen)
        for before, after in pairwise(ordered):
            if after - before > 4000:
                found[host, gpu, before + 1000, after] = (seen[before], seen[after])
    crowded = _crowded(found, {host for host, _ in times})
    shed = [event for tick in _ticks(stored) for event in tick.events if event.metric == "agent_shed"]
    return {gap: _reason(gap, boots, beats[gap[0]], shed, gap in crowded) for gap, boots in found.items()}


def _crowded(gaps: Iterable[tuple[str, str, int, int]], hosts: set[str]) -> set[tuple[str, str, int, int]]:
    """Return gaps that began in a minute in which those of more than half of a rack or of all hosts began."""
    crowded: set[tuple[str, str, int, int]] = set()
    all_gaps = list(gaps)
    for members in (hosts, *({h for h in hosts if rack_of(h) == rack} for rack in {rack_of(h) for h in hosts})):
        mine = [gap for gap in all_gaps if gap[0] in members]
        for _, _, start, _ in mine:
            minute = [gap for gap in mine if start <= gap[2] <= start + 60_000]
            if len(members) >= 3 and 2 * len({gap[0] for gap in minute}) > len(members):
                crowded.update(minute)
    return crowded


def _reason(
    gap: tuple[str, str, int, int], boots: tuple[str, str], beats: list[int], shed: list[Event], is_crowded: bool
) -> str:
    host, _, start_ms, end_ms = gap
    if boots[0] != boots[1]:
        return "host_restart"
    mine = [event for event in shed if event.entity == host]
    if 2 * sum(max(0, min(one.end_ms or 0, end_ms) - max(one.time_ms, start_ms)) for one in mine) > end_ms - start_ms:
        return "shed"
    edge_ms = min((end_ms - start_ms) // 4, 120_000)
    ordered = sorted(beats)
    inside = bisect_left(ordered, start_ms + edge_ms) < bisect_left(ordered, end_ms - edge_ms)
    if inside or is_crowded:
        return "network"
    return "collector_down"


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
