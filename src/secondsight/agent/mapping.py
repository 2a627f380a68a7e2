"""Turn the samples of one scrape into cells, histogram points, events and infos, through the catalogue.

Of several samples that mean one cell (copies for each pod, an old and a new name of one figure) one counts: the name of
the better rank, then the newest own timestamp, then the first in the text. What does not become a value is counted by
reason; a name that the catalogue does not have is refused and counted by name.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from secondsight.agent import identity
from secondsight.agent.attribution import Allocations
from secondsight.agent.buckets import BUCKETS, CREATED, Histograms, bound_of, suffix_of
from secondsight.agent.cells import Attributes, Cell, Gathered, Key, count_discarded
from secondsight.agent.changes import Facts, LastValues
from secondsight.agent.derived import NAMES as DERIVED_FROM
from secondsight.agent.derived import Derived
from secondsight.agent.exposition import Exposition, Labels, Sample, type_of
from secondsight.agent.identity import Origin, Workload
from secondsight.agent.settle import Candidate, Settled, Slot
from secondsight.catalog.index import Binding, Catalog
from secondsight.catalog.metric import Metric, MetricType, Source
from secondsight.catalog.scale import Conversion, conversion, source_for_help
from secondsight.model import EntityKind, Quality
from secondsight.wire.content import Info

SERIES_CACHE_ENTRIES = 50_000
ENTITIES_MAXIMUM = 10_000
"""Entities and parts that one target may have in an hour; further ones are refused."""

HOUR_MS = 3_600_000
EVENT_CODE_MAXIMUM = 2**53


@dataclass(slots=True)
class Mapped:
    """What one scrape held.

    Attributes:
        hosts: Host -> what was read of it; the agent's own host unless the target is remote.
        unknown: Sample name -> samples refused because the catalogue does not have it.
        workloads: (entity, part) -> every workload that its samples name; several mean that a card is shared.
        samples: Samples that became a cell, a histogram, an event or a fact.
    """

    hosts: dict[str, Gathered] = field(default_factory=dict)
    unknown: Counter[str] = field(default_factory=Counter)
    workloads: dict[Key, set[Workload]] = field(default_factory=dict)
    samples: int = 0

    def of(self, host: str) -> Gathered:
        """Return what was read of a host, empty at first."""
        gathered = self.hosts.get(host)
        if gathered is None:
            gathered = self.hosts[host] = Gathered()
        return gathered


class Mapper:
    """Maps the scrapes of one target, remembering its series; not shared between threads."""

    def __init__(self, catalog: Catalog, origin: Origin) -> None:
        self._catalog = catalog
        self._origin = origin
        self._slots: dict[tuple[str, Labels], tuple[Slot, ...] | str] = {}
        self._conversion = lru_cache(maxsize=2048)(conversion)
        self._events = LastValues()
        self._facts = Facts()
        self._allocations = Allocations()
        self._host_of_fact: dict[str, str] = {}
        self._attributes: dict[Key, Attributes] = {}
        self._last_times: dict[tuple[str, str, str], int] = {}
        self._derived = Derived(catalog, origin)
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
        settled = Settled()
        histograms = Histograms(exposition)
        for sample in exposition.samples:
            for slot in self._slots_of(sample.name, sample.labels, exposition, mapped):
                if slot.suffix:
                    histograms.add(slot, sample)
                else:
                    settled.add(self._candidate(slot, sample, exposition, stale_before_ms))
        for blank in exposition.blanks:
            for slot in self._slots_of(blank.name, blank.labels, exposition, mapped):
                if not slot.suffix:
                    settled.add(Candidate(slot, None, blank.quality, None))
        self._take_cells(settled, mapped, tick_ms)
        self._note_unmeasured(histograms.take(mapped.of))
        self._derived.add(exposition.samples, mapped.hosts)
        self._take_facts(mapped, tick_ms)
        if self._origin.attribution:
            self._take_allocations(mapped, tick_ms)
        return mapped

    def _renew(self, tick_ms: int) -> None:
        """Forget all series once an hour, so that those long gone take no room."""
        if tick_ms // HOUR_MS != self._hour:
            self._hour = tick_ms // HOUR_MS
            self._slots.clear()
            self._attributes.clear()
            self._host_of_fact.clear()

    def _slots_of(self, name: str, labels: Labels, exposition: Exposition, mapped: Mapped) -> tuple[Slot, ...]:
        key = (name, labels)
        slots = self._slots.get(key)
        if slots is None:
            if len(self._slots) >= SERIES_CACHE_ENTRIES:
                self._slots.clear()
            slots = self._slots[key] = self._resolve(name, labels, exposition)
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
        if code not in ("created", "derived"):
            mapped.of(self._origin.host_id).discarded[code] += 1

    def _resolve(self, name: str, labels: Labels, exposition: Exposition) -> tuple[Slot, ...] | str:
        """Return where the samples of a series go, or the code of why they go nowhere."""
        known = identity.lowered(labels)
        suffix, bindings = self._bindings(name)
        if name in DERIVED_FROM:
            return "derived"
        if not bindings:
            is_created = name.endswith(CREATED) and type_of(exposition, name) != "gauge"
            return "created" if is_created else "unknown_metric"
        if "quantile" in known:
            return "summary_quantile"
        found: list[Slot] = []
        for metric, source in bindings:
            if all(known.get(label.lower()) == value for label, value in source.match):
                slot = self._slot(metric, source, known, suffix)
                if isinstance(slot, str):
                    return slot
                found.append(slot)
        self._learn_facts(labels, known)
        return tuple(found) if found else "unknown_metric"

    def _bindings(self, name: str) -> tuple[str, tuple[Binding, ...]]:
        """Return what a name is to a histogram, and the metrics that it feeds."""
        for spelling in _spellings(name):
            bindings = self._catalog.exposition(spelling)
            if bindings:
                return (suffix_of(spelling) if bindings[0][0].type is MetricType.HISTOGRAM else ""), bindings
            base = spelling.removesuffix(CREATED)
            if base != spelling and self._catalog.exposition(base + BUCKETS):
                return CREATED, self._catalog.exposition(base + BUCKETS)
        return "", ()

    def _slot(self, metric: Metric, source: Source, labels: dict[str, str], suffix: str) -> Slot | str:
        host = identity.host_of(labels, self._origin)
        entity = identity.entity_of(metric.kind, labels, self._origin, host)
        if not identity.is_usable(entity) or not identity.is_usable(host):
            return "no_identity"
        try:
            part = identity.part_of(metric, source, labels)
        except ValueError as error:
            return str(error)
        if suffix == BUCKETS and "le" not in labels:
            return "parse"
        if len(self._attributes) >= ENTITIES_MAXIMUM and (entity, part) not in self._attributes:
            return "entities_limit"
        attributes = self._attributes.setdefault((entity, part), identity.attributes_of(metric.kind, labels, part))
        on_slice = metric.kind is EntityKind.GPU and identity.is_on_slice(labels)
        refused = Quality.ABSENT_NOT_SUPPORTED if on_slice and metric.name in identity.NOT_ON_SLICES else None
        bound = bound_of(labels["le"]) if suffix == BUCKETS else math.nan
        attributed = metric.kind is EntityKind.GPU and on_slice == bool(part)
        workload = identity.workload_of(labels) if attributed else Workload("", "", "")
        fixed = metric.type not in (MetricType.INFO, MetricType.HISTOGRAM) and not source.help_scales
        return Slot(
            metric,
            source,
            host,
            entity,
            part,
            attributes,
            workload,
            suffix,
            bound,
            refused,
            self._conversion(metric, source) if fixed else None,
            (metric.name, entity, part, source.rank),
        )

    def _candidate(self, slot: Slot, sample: Sample, exposition: Exposition, stale_before_ms: int) -> Candidate:
        if slot.quality is not None:
            return Candidate(slot, None, slot.quality, sample.time_ms)
        convert = slot.convert
        if convert is None:
            if slot.metric.type is MetricType.INFO:
                self._learn_info(slot, sample.labels)
                return Candidate(slot, None, Quality.NONE, None)
            convert = self._converter(slot, sample.name, exposition)
        value, quality = convert.one(sample.value)
        if sample.time_ms is not None and sample.time_ms < stale_before_ms:
            value, quality = None, Quality.STALE
        return Candidate(slot, value, quality, sample.time_ms)

    def _converter(self, slot: Slot, name: str, exposition: Exposition) -> Conversion:
        return self._conversion(slot.metric, source_for_help(slot.source, exposition.helps.get(name, "")))

    def _take_cells(self, settled: Settled, mapped: Mapped, tick_ms: int) -> None:
        for candidate in settled.winners():
            slot, gathered = candidate.slot, mapped.of(candidate.slot.host)
            if slot.metric.type is MetricType.EVENT:
                self._take_event(candidate, gathered, tick_ms)
            elif slot.metric.type is MetricType.INFO:
                continue
            elif candidate.time_ms is not None and self._is_repeated(candidate):
                gathered.discarded["duplicate"] += 1
            else:
                gathered.cells.append(Cell(slot.metric, slot.entity, slot.part, candidate.value, candidate.quality))
                gathered.attributes[slot.entity, slot.part] = slot.attributes
        own = mapped.of(self._origin.host_id)
        own.discarded.update(settled.discarded)
        for gathered in mapped.hosts.values():
            count_discarded(gathered)
        self._events.look_done()

    def _is_repeated(self, candidate: Candidate) -> bool:
        """Tell whether a reading with a timestamp of its own was there already; a stale one stays visible as such."""
        if candidate.quality is Quality.STALE or candidate.time_ms is None:
            return False
        key = (candidate.slot.metric.name, candidate.slot.entity, candidate.slot.part)
        if len(self._last_times) >= SERIES_CACHE_ENTRIES:
            self._last_times.clear()
        before = self._last_times.get(key)
        self._last_times[key] = candidate.time_ms
        return before == candidate.time_ms

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

    def _learn_facts(self, labels: Labels, known: dict[str, str]) -> None:
        """Learn what labels say of an entity where the catalogue knows the label as a fact."""
        host = identity.host_of(known, self._origin)
        for name, value in labels:
            for metric, source in self._catalog.exposition(name) or self._catalog.exposition(name.upper()):
                if metric.type is MetricType.INFO and value and not value.startswith("<<<"):
                    self._learn(
                        metric, source, (host, identity.entity_of(metric.kind, known, self._origin, host)), value
                    )
        gpu = identity.entity_of(EntityKind.GPU, known, self._origin, host)
        if identity.is_usable(gpu) and identity.GPU_ID_LABELS[0] in known:
            named = {"gpu_model": "name", "index": "index", "pci_bus_id": "pci_bus_id"}
            facts = {named[name]: value for name, value in identity.attributes_of(EntityKind.GPU, known, "")}
            self._facts.learn("gpu_info", gpu, facts | {"uuid": gpu}, named=True)
            self._host_of_fact[gpu] = host

    def _learn(self, metric: Metric, source: Source, whom: tuple[str, str], value: str) -> None:
        host, entity = whom
        attribute = dict(source.part).get("attribute")
        if identity.is_usable(entity) and attribute:
            self._facts.learn(metric.name, entity, {attribute: value}, named=True)
            self._host_of_fact[entity] = host

    def _learn_info(self, slot: Slot, labels: Labels) -> None:
        """Learn what the labels of an info sample say; where the catalogue names the facts, others are refused."""
        named = {dict(source.part).get("attribute") for source in slot.metric.sources} - {None}
        identifying = {*identity.GPU_ID_LABELS, "model_name", "engine", *identity.HOST_LABELS}
        facts = {name: value for name, value in labels if value and name.lower() not in identifying}
        if named:
            facts = {name: value for name, value in facts.items() if name in named}
        self._facts.learn(slot.metric.name, slot.entity, facts, named=bool(named))
        self._host_of_fact[slot.entity] = slot.host

    def _take_facts(self, mapped: Mapped, tick_ms: int) -> None:
        for fact in self._facts.take(tick_ms):
            info = self._of_engine(fact)
            host = self._host_of_fact.get(fact.entity, self._origin.host_id)
            mapped.of(host).infos.append((self._catalog.get(info.metric).kind, info))
        if self._facts.refused:
            mapped.of(self._origin.host_id).discarded["label_reading"] += self._facts.refused
            self._facts.refused = 0

    def _note_unmeasured(self, found: dict[str, str]) -> None:
        """Make it a fact of an engine which of its latencies were not measured, and that they are again."""
        for entity in found.keys() | self._unmeasured.keys():
            told = {"no_latency_measured": found.get(entity, "none")}
            self._facts.learn("inference_engine_info", entity, told, named=True)
        self._unmeasured = found

    def _take_allocations(self, mapped: Mapped, tick_ms: int) -> None:
        for (entity, _), event in self._allocations.see(mapped.workloads, tick_ms):
            host = self._host_of_fact.get(entity, self._origin.host_id)
            mapped.of(host).events.append((EntityKind.PROCESS_JOB, event))

    def _of_engine(self, info: Info) -> Info:
        """Return an info that names no model as one of the only engine behind its port."""
        if not info.entity.endswith("/"):
            return info
        engines = {entity for entity, _ in self._attributes if entity.startswith(info.entity) and entity != info.entity}
        return replace(info, entity=engines.pop()) if len(engines) == 1 else info


def _spellings(name: str) -> Iterable[str]:
    """Give the spellings of a name to look up: as it is, in upper case for DCGM, and as engines behind Ray have it."""
    yield name
    if name.startswith("dcgm_"):
        yield name.upper()
    plain = name.removeprefix("ray_")
    for engine in ("vllm", "sglang", "trtllm"):
        if plain.startswith((engine + "_", engine + ":")):
            own = f"{engine}{'_' if engine == 'trtllm' else ':'}{plain[len(engine) + 1 :]}"
            yield own
            yield own + "_total"
