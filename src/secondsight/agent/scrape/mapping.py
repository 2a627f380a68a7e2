"""Turn the samples of one scrape into cells, histogram points, events and infos, through the catalogue.

Of several samples that mean one cell (copies for each pod, an old and a new name of one figure) one counts: the name of
the better rank, then the newest own timestamp, then the first in the text. What does not become a value is counted by
reason; a name that the catalogue does not have is refused and counted by name.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from secondsight.agent.scrape.attribution import Allocations
from secondsight.agent.scrape.buckets import Histograms
from secondsight.agent.scrape.contradictions import Contradictions
from secondsight.agent.scrape.derived import NAMES as DERIVED_FROM
from secondsight.agent.scrape.derived import Derived
from secondsight.agent.scrape.exposition import CACHE_SPARE, Exposition, Sample, type_of
from secondsight.agent.scrape.settle import Candidate, Settled
from secondsight.catalog.index import Catalog
from secondsight.catalog.metric import MetricType
from secondsight.catalog.scale import Conversion, source_for_help
from secondsight.mapping.buckets import began_ms
from secondsight.mapping.cells import Attributes, Cell, Gathered, Key, count_discarded
from secondsight.mapping.changes import LastValues
from secondsight.mapping.identity import Labels, Origin, Workload
from secondsight.mapping.resolve import CREATED, Resolver, Slot
from secondsight.model import EntityKind, Quality
from secondsight.wire.content import Info

SERIES_CACHE_ENTRIES = 50_000
TOTAL = "_total"
HOUR_MS = 3_600_000
EARLIER_MS = HOUR_MS
"""Points of a series that came with several are kept if they are not older than this."""
FUTURE_MS = 300_000
"""Samples whose own timestamp is further ahead of the tick are refused."""
START_MS = 300_000
"""The first value of a counter counts if it began within this."""
EVENT_CODE_MAXIMUM = 2**53
COUNTING_TYPES = frozenset({"counter", "histogram", "summary"})


@dataclass(slots=True)
class Mapped:
    """What one scrape held.

    Attributes:
        hosts: Host -> what was read of it; the agent's own host unless the target is remote.
        unknown: Sample name -> samples refused because the catalogue does not have it.
        workloads: (entity, part) -> every workload that its samples name; several mean that a card is shared.
        samples: Samples that became a cell, a histogram, an event or a fact.
        unnamed: Samples that the catalogue knows, of entities that their labels do not name.
        earlier: Epoch ms -> host -> points of instants before the newest, of series that came with several.
    """

    hosts: dict[str, Gathered] = field(default_factory=dict)
    unknown: Counter[str] = field(default_factory=Counter)
    workloads: dict[Key, set[Workload]] = field(default_factory=dict)
    samples: int = 0
    unnamed: int = 0
    earlier: dict[int, dict[str, Gathered]] = field(default_factory=dict)

    def add_earlier(self, time_ms: int, host: str, cell: Cell, attributes: Attributes) -> None:
        """Add a reading of an instant before the newest."""
        gathered = self.earlier.setdefault(time_ms, {}).setdefault(host, Gathered())
        gathered.cells.append(cell)
        gathered.attributes[cell.entity, cell.part] = attributes

    def of(self, host: str) -> Gathered:
        """Return what was read of a host, empty at first."""
        gathered = self.hosts.get(host)
        if gathered is None:
            gathered = self.hosts[host] = Gathered()
        return gathered


class Mapper:
    """Maps the scrapes of one target, remembering its series; not shared between threads."""

    def __init__(self, catalog: Catalog, origin: Origin, allocations: Allocations | None = None) -> None:
        self._catalog = catalog
        self._origin = origin
        self._slots: dict[tuple[str, Labels], tuple[Slot, ...] | str] = {}
        self._resolver = Resolver(catalog, origin)
        self._events = LastValues()
        self._allocations = allocations or Allocations()
        self._starts: dict[tuple[str, str, str], int] = {}
        self._last_times: dict[tuple[str, str, str], int] = {}
        self._derived = Derived(catalog, origin)
        self._contradictions = Contradictions(catalog)
        self._unmeasured: dict[str, str] = {}
        self._hour = 0

    def map(self, exposition: Exposition, tick_ms: int, stale_before_ms: int = 0) -> Mapped:
        """Return what the samples of one scrape say.

        Args:
            exposition: The scrape.
            tick_ms: Instant of the tick; events that carry no time of their own get it.
            stale_before_ms: Samples whose own timestamp is older are stale.
        """
        self._renew(tick_ms)
        mapped = Mapped()
        own = mapped.of(self._origin.host_id)
        own.discarded.update("parse" for rejection in exposition.rejections if rejection.code != "value_missing")
        settled = Settled(stale_before_ms, tick_ms + FUTURE_MS)
        histograms = Histograms(exposition)
        for sample in exposition.samples:
            for slot in self._slots_of(sample.name, sample.labels, exposition, mapped):
                if slot.is_start:
                    self._take_start(slot, sample, mapped, tick_ms)
                elif slot.suffix:
                    histograms.add(slot, sample)
                else:
                    settled.add(self._candidate(slot, sample, exposition))
        self._take_blanks(exposition, settled, mapped)
        self._take_cells(settled, mapped, tick_ms)
        self._note_unmeasured(histograms.take(mapped.of))
        self._derived.add(exposition.samples, mapped.hosts)
        self._take_facts(mapped, tick_ms)
        if self._origin.attribution:
            self._take_allocations(mapped, tick_ms)
        if len(self._slots) > 2 * len(exposition.samples) + CACHE_SPARE:
            self._slots.clear()
        return mapped

    def _take_blanks(self, exposition: Exposition, settled: Settled, mapped: Mapped) -> None:
        for blank in exposition.blanks:
            for slot in self._slots_of(blank.name, blank.labels, exposition, mapped):
                if not slot.suffix:
                    settled.add(Candidate(slot, None, blank.quality, None))

    def _renew(self, tick_ms: int) -> None:
        """Forget all series once an hour, so that those long gone take no room."""
        if tick_ms // HOUR_MS != self._hour:
            self._hour = tick_ms // HOUR_MS
            self._slots.clear()
            self._resolver.forget()

    def _slots_of(self, name: str, labels: Labels, exposition: Exposition, mapped: Mapped) -> tuple[Slot, ...]:
        key = (name, labels)
        slots = self._slots.get(key)
        if slots is None:
            if len(self._slots) >= SERIES_CACHE_ENTRIES:
                self._slots.clear()
            slots = self._resolve(name, labels, exposition)
            if slots != "no_identity":
                self._slots[key] = slots
        if isinstance(slots, str):
            self._refuse(slots, name, mapped)
            return ()
        mapped.samples += 1
        for slot in slots:
            if slot.workload.is_known:
                mapped.workloads.setdefault((slot.entity, slot.part), set()).add(slot.workload)
        return slots

    def _refuse(self, code: str, name: str, mapped: Mapped) -> None:
        if code == "unknown_metric":
            mapped.unknown[name] += 1
        mapped.unnamed += code == "no_identity"
        if code not in ("created", "derived"):
            mapped.of(self._origin.host_id).discarded[code] += 1

    def _resolve(self, name: str, labels: Labels, exposition: Exposition) -> tuple[Slot, ...] | str:
        """Return where the samples of a series go, or the code of why they go nowhere."""
        if name in DERIVED_FROM:
            return "derived"
        return self._resolver.resolve(name, labels, is_start=_is_start(name, exposition))

    def _candidate(self, slot: Slot, sample: Sample, exposition: Exposition) -> Candidate:
        if slot.quality is not None:
            return Candidate(slot, None, slot.quality, sample.time_ms)
        convert = slot.convert
        if convert is None:
            if slot.metric.type is MetricType.INFO:
                self._resolver.learn_info(slot, sample.labels)
                return Candidate(slot, None, Quality.NONE, None)
            convert = self._converter(slot, sample.name, exposition)
        return Candidate(slot, *convert.one(sample.value), sample.time_ms)

    def _converter(self, slot: Slot, name: str, exposition: Exposition) -> Conversion:
        return self._resolver.converted_by(slot.metric, source_for_help(slot.source, exposition.helps.get(name, "")))

    def _take_cells(self, settled: Settled, mapped: Mapped, tick_ms: int) -> None:
        for candidate in settled.winners():
            slot, gathered = candidate.slot, mapped.of(candidate.slot.host)
            if slot.metric.type is MetricType.EVENT:
                self._take_event(candidate, gathered, tick_ms)
            elif slot.metric.type is MetricType.INFO:
                continue
            elif candidate.time_ms is not None and self._is_known(candidate, settled, mapped, tick_ms):
                gathered.discarded["duplicate"] += 1
            else:
                gathered.cells.append(_cell(candidate))
                gathered.attributes[slot.entity, slot.part] = slot.attributes
        own = mapped.of(self._origin.host_id)
        own.discarded.update(settled.discarded)
        for gathered in mapped.hosts.values():
            count_discarded(gathered)
            gathered.cells, withdrawn = self._contradictions.judge(gathered.cells, tick_ms)
            gathered.discarded.update({"contradicted": withdrawn} if withdrawn else {})
        self._events.look_done()

    def _is_known(self, candidate: Candidate, settled: Settled, mapped: Mapped, tick_ms: int) -> bool:
        """Tell whether a reading with a timestamp of its own is not newer than the last; a stale one stays visible.

        Points of the series before the newest are taken here, as far as they are new.
        """
        if candidate.quality is Quality.STALE or candidate.time_ms is None:
            return False
        key = candidate.slot.key[:3]
        if len(self._last_times) >= SERIES_CACHE_ENTRIES:
            self._last_times.clear()
        before = self._last_times.get(key)
        self._last_times[key] = max(candidate.time_ms, before or 0)
        for point in settled.earlier_of(candidate):
            time_ms = point.time_ms or 0
            if (before or tick_ms - EARLIER_MS) < time_ms < tick_ms and point.value is not None:
                mapped.add_earlier(time_ms, point.slot.host, _cell(point), point.slot.attributes)
            else:
                mapped.of(point.slot.host).discarded["duplicate"] += 1
        return before is not None and candidate.time_ms <= before

    def _take_start(self, slot: Slot, sample: Sample, mapped: Mapped, tick_ms: int) -> None:
        """Make a point of 0 of the instant at which a counter began, so that what it has counted since is counted.

        One that began long ago has counted in windows that are over: its first value adds nothing.
        """
        start_ms = began_ms(sample.value)
        key = slot.key[:3]
        if len(self._starts) >= SERIES_CACHE_ENTRIES:
            self._starts.clear()
        before = self._starts.get(key)
        self._starts[key] = start_ms
        if before != start_ms and tick_ms - START_MS < start_ms < tick_ms:
            cell = Cell(slot.metric, slot.entity, slot.part, 0, Quality.OK)
            mapped.add_earlier(start_ms, slot.host, cell, slot.attributes)

    def _take_event(self, candidate: Candidate, gathered: Gathered, tick_ms: int) -> None:
        slot = candidate.slot
        time_ms = tick_ms if candidate.time_ms is None else candidate.time_ms
        if candidate.value is None and candidate.quality is not Quality.ABSENT_SOURCE_BLANK:
            return
        if candidate.value is not None and abs(candidate.value) > EVENT_CODE_MAXIMUM:
            gathered.discarded["out_of_range"] += 1
            return
        event = self._events.see(slot.metric.name, slot.entity, slot.part, candidate.value, time_ms)
        if event is not None:
            gathered.events.append((slot.metric.kind, event))

    def _take_facts(self, mapped: Mapped, tick_ms: int) -> None:
        for fact in self._resolver.facts.take(tick_ms):
            info = self._of_engine(fact)
            host = self._resolver.host_of_fact.get(fact.entity, self._origin.host_id)
            mapped.of(host).infos.append((self._catalog.get(info.metric).kind, info))
        if self._resolver.facts.refused:
            mapped.of(self._origin.host_id).discarded["label_reading"] += self._resolver.facts.refused
            self._resolver.facts.refused = 0

    def _note_unmeasured(self, found: dict[str, str]) -> None:
        """Make it a fact of an engine which of its latencies were not measured, and that they are again."""
        for entity in found.keys() | self._unmeasured.keys():
            told = {"no_latency_measured": found.get(entity, "none")}
            self._resolver.facts.learn("inference_engine_info", entity, told, named=True)
        self._unmeasured = found

    def _take_allocations(self, mapped: Mapped, tick_ms: int) -> None:
        for event in self._allocations.see(mapped.workloads, tick_ms):
            host = self._resolver.host_of_fact.get(event.entity, self._origin.host_id)
            mapped.of(host).events.append((EntityKind.PROCESS_JOB, event))

    def _of_engine(self, info: Info) -> Info:
        """Return an info that names no model as one of the only engine behind its port."""
        if not info.entity.endswith("/"):
            return info
        engines = {
            entity
            for entity, _ in self._resolver.attributes
            if entity.startswith(info.entity) and entity != info.entity
        }
        return replace(info, entity=engines.pop()) if len(engines) == 1 else info


def _is_start(name: str, exposition: Exposition) -> bool:
    """Tell whether a name is of starts of counters: some clients declare these as gauges of their own."""
    base = name.removesuffix(CREATED)
    declared = {exposition.types.get(base), exposition.types.get(base + TOTAL)}
    return base != name and (type_of(exposition, name) != "gauge" or bool(declared & COUNTING_TYPES))


def _cell(candidate: Candidate) -> Cell:
    slot = candidate.slot
    return Cell(slot.metric, slot.entity, slot.part, candidate.value, candidate.quality)
