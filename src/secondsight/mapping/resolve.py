"""Turn the name and labels of a series into the cells that its samples feed, through the catalogue.

Where a series goes depends on its name, its labels and where it came from, never on its values or on what came before:
agents and gateways that see the same series agree about it. What a label says of an entity is learnt on the way.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from secondsight.catalog.index import Binding, Catalog
from secondsight.catalog.metric import Metric, MetricType, Source
from secondsight.catalog.scale import Conversion, conversion
from secondsight.mapping import identity
from secondsight.mapping.buckets import BUCKETS, bound_of, suffix_of
from secondsight.mapping.cells import Attributes, Key
from secondsight.mapping.changes import Facts
from secondsight.mapping.identity import Labels, Origin, Workload
from secondsight.mapping.names import FACT_NAMES, is_blank_word, spellings
from secondsight.mapping.partitions import is_never_read
from secondsight.model import EntityKind, Quality

CREATED = "_created"
"""What the name of a sample ends with that says when a counter or a histogram began."""
TOTAL = "_total"
ENTITIES_MAXIMUM = 10_000
"""Entities and parts that one target may have in an hour; further ones are refused."""

OF_HOSTS = frozenset({EntityKind.GPU, EntityKind.NODE, EntityKind.FABRIC_PORT, EntityKind.INFERENCE})
"""Kinds whose rows need a host by name; of others, the origin stands for one that is not named."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where samples of one series go, for one of the metrics that they feed.

    Attributes:
        suffix: What the series is to a histogram (`_bucket`, `_sum`, `_count`, `_created`), "" for all else.
        bound: Upper bound of a bucket.
        quality: Set if a value can never be one here, whatever it is.
        convert: Makes cells of values; None where that depends on the scrape, or no cell is made.
        key: (metric, entity, part, rank): what samples of one meaning share, and the rank that they differ in.
    """

    metric: Metric
    source: Source
    host: str
    entity: str
    part: str
    attributes: Attributes
    workload: Workload
    suffix: str = ""
    bound: float = math.nan
    quality: Quality | None = None
    convert: Conversion | None = None
    key: tuple[str, str, str, int] = ("", "", "", 0)

    @property
    def is_start(self) -> bool:
        """Tell whether samples say when a counter began, not what it counts."""
        return self.suffix == CREATED and self.metric.type is MetricType.COUNTER


class Resolver:
    """Resolves the series of one target or sender; not shared between threads.

    Args:
        catalog: What metrics there are.
        origin: Where the series come from.
        entities_maximum: Entities and parts that there may be; series of further ones are refused.
        allows_host: Tells whether the origin may speak of a host; nothing is learnt of others.

    Attributes:
        attributes: Facts for the entity table of every entity and part seen.
        facts: What labels have said of entities.
        host_of_fact: Entity -> host, of those that facts are known of.
    """

    def __init__(
        self,
        catalog: Catalog,
        origin: Origin,
        entities_maximum: int = ENTITIES_MAXIMUM,
        allows_host: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._catalog = catalog
        self._origin = origin
        self._entities_maximum = entities_maximum
        self._allows_host = allows_host
        self._conversion = lru_cache(maxsize=2048)(conversion)
        self.attributes: dict[Key, Attributes] = {}
        self.facts = Facts()
        self.host_of_fact: dict[str, str] = {}

    def forget(self) -> None:
        """Forget all entities, so that those long gone take no room."""
        self.attributes.clear()
        self.host_of_fact.clear()

    def resolve(
        self, name: str, labels: Labels, *, is_start: bool = False, is_histogram: bool = False
    ) -> tuple[Slot, ...] | str:
        """Return where the samples of a series go, or the code of why they go nowhere.

        Args:
            name: Of the sample.
            labels: Of the sample.
            is_start: Samples are known to say when something began, whatever that is.
            is_histogram: A sample is a whole histogram, and no number.
        """
        known = identity.lowered(labels)
        suffix, bindings = self._bindings(name)
        if is_histogram:
            if any(metric.type is not MetricType.HISTOGRAM for metric, _ in bindings):
                return "no_histogram"
            suffix = ""
        if not bindings:
            return "created" if is_start else "unknown_metric"
        if "quantile" in known:
            return "summary_quantile"
        found: list[Slot] = []
        for metric, source in bindings:
            if all(known.get(label.lower(), "") == value for label, value in source.match):
                slot = self._slot(metric, source, known, suffix)
                if isinstance(slot, str):
                    return "created" if suffix == CREATED else slot
                found.append(slot)
        self._learn_facts(labels, known)
        return tuple(found) if found else "unknown_metric"

    def converted_by(self, metric: Metric, source: Source) -> Conversion:
        """Return how values of a source become cells of a metric."""
        return self._conversion(metric, source)

    def whose(self, metric: Metric, labels: Labels) -> tuple[str, str]:
        """Return host and entity that the labels of a series of a metric name, "" where they do not tell."""
        known = identity.lowered(labels)
        host = self._host(metric, known)
        return host, identity.entity_of(metric.kind, known, self._origin, host)

    def bindings(self, name: str) -> tuple[Binding, ...]:
        """Return the metrics that a name may feed."""
        return self._bindings(name)[1]

    def learn_info(self, slot: Slot, labels: Labels) -> None:
        """Learn what the labels of an info sample say; where the catalogue names the facts, others are refused."""
        named = {dict(source.part).get("attribute") for source in slot.metric.sources} - {None}
        identifying = {*identity.GPU_ID_LABELS, "model_name", "engine", *identity.HOST_LABELS}
        given = ((name, value) for name, value in labels if not is_blank_word(value))
        facts = {FACT_NAMES.get(name, name): value for name, value in given if name.lower() not in identifying}
        if named:
            facts = {name: value for name, value in facts.items() if name in named}
        self.facts.learn(slot.metric.name, slot.entity, facts, named=bool(named))
        self.host_of_fact[slot.entity] = slot.host

    def _bindings(self, name: str) -> tuple[str, tuple[Binding, ...]]:
        """Return what a name is to a histogram, and the metrics that it feeds."""
        for spelling in spellings(name):
            bindings = self._catalog.exposition(spelling)
            if bindings:
                return (suffix_of(spelling) if bindings[0][0].type is MetricType.HISTOGRAM else ""), bindings
            base = spelling.removesuffix(CREATED)
            if base != spelling:
                for begun in (base + BUCKETS, base, base + TOTAL):
                    bindings = self._catalog.exposition(begun)
                    if bindings and (begun != base or bindings[0][0].type is MetricType.COUNTER):
                        return CREATED, bindings
        return "", ()

    def _slot(self, metric: Metric, source: Source, labels: dict[str, str], suffix: str) -> Slot | str:
        host = self._host(metric, labels)
        entity = identity.entity_of(metric.kind, labels, self._origin, host)
        if not identity.is_usable(entity) or not identity.is_usable(host):
            return "no_identity"
        if not self._allows_host(host):
            return "host_not_allowed"
        try:
            part = identity.part_of(metric, source, labels)
        except ValueError as error:
            return str(error)
        if suffix == BUCKETS and "le" not in labels:
            return "parse"
        if len(self.attributes) >= self._entities_maximum and (entity, part) not in self.attributes:
            return "entities_limit"
        attributes = self.attributes.setdefault((entity, part), identity.attributes_of(metric.kind, labels, part))
        on_slice = metric.kind is EntityKind.GPU and identity.is_on_slice(labels)
        never = (on_slice and metric.name in identity.NOT_ON_SLICES) or is_never_read(metric.name, source.name, labels)
        refused = Quality.ABSENT_NOT_SUPPORTED if never else None
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

    def _host(self, metric: Metric, labels: Mapping[str, str]) -> str:
        host = identity.host_of(labels, self._origin)
        return host if host or metric.kind in OF_HOSTS else self._origin.target

    def _learn_facts(self, labels: Labels, known: Mapping[str, str]) -> None:
        """Learn what labels say of an entity where the catalogue knows the label as a fact."""
        host = identity.host_of(known, self._origin)
        for name, value in labels:
            for metric, source in self._catalog.exposition(name) or self._catalog.exposition(name.upper()):
                if metric.type is MetricType.INFO and not is_blank_word(value):
                    self._learn(
                        metric, source, (host, identity.entity_of(metric.kind, known, self._origin, host)), value
                    )
        gpu = identity.entity_of(EntityKind.GPU, known, self._origin, host)
        if identity.is_usable(gpu) and identity.GPU_ID_LABELS[0] in known:
            named = {"gpu_model": "name", "index": "index", "pci_bus_id": "pci_bus_id"}
            facts = {named[name]: value for name, value in identity.attributes_of(EntityKind.GPU, known, "")}
            self.facts.learn("gpu_info", gpu, facts | {"uuid": gpu}, named=True)
            self.host_of_fact[gpu] = host

    def _learn(self, metric: Metric, source: Source, whom: tuple[str, str], value: str) -> None:
        host, entity = whom
        attribute = dict(source.part).get("attribute")
        if identity.is_usable(entity) and attribute:
            self.facts.learn(metric.name, entity, {attribute: value}, named=True)
            self.host_of_fact[entity] = host
