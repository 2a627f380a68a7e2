"""Find metrics by name, alias, kind or source name.

A catalogue never changes once built. Names and aliases are unique over all of it; a source name may feed several
metrics, as a foreign system does not cut its figures as we do.
"""

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from secondsight.catalog.metric import Metric, MetricType, Source
from secondsight.errors import Rejected
from secondsight.model import EntityKind

HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")
"""What an exposition appends to the name of a histogram."""

NOT_EXPOSED = frozenset({"nvml", "smi"})
"""Systems whose names are no names of samples."""

Binding = tuple[Metric, Source]


@dataclass(frozen=True, slots=True)
class Catalog:
    """All metrics, in the order of their files. Build one with `build`; safe to share between threads.

    Attributes:
        metrics: Every metric; within a kind the order is that of the columns.
    """

    metrics: tuple[Metric, ...]
    _by_name: Mapping[str, Metric] = field(repr=False, compare=False)
    _by_word: Mapping[str, tuple[str, ...]] = field(repr=False, compare=False)
    _by_kind: Mapping[EntityKind, tuple[Metric, ...]] = field(repr=False, compare=False)
    _by_sample: Mapping[str, tuple[Binding, ...]] = field(repr=False, compare=False)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def get(self, name: str) -> Metric:
        """Return the metric of exactly this name.

        Raises:
            Rejected: `unknown_metric`, with close names as hint.
        """
        metric = self._by_name.get(name)
        if metric is None:
            raise self._unknown(name)
        return metric

    def resolve(self, word: str) -> Metric:
        """Return the metric that a name, an alias or a DCGM name stands for.

        Raises:
            Rejected: `unknown_metric`, with close names as hint; `ambiguous_metric` where several metrics have it.
        """
        names = (word,) if word in self._by_name else self._by_word.get(word, ())
        if len(names) > 1:
            raise Rejected("ambiguous_metric", f"{word} feeds several metrics", f"name one of {', '.join(names)}")
        return self.get(names[0] if names else word)

    def of_kind(self, kind: EntityKind) -> tuple[Metric, ...]:
        """Return the metrics of one entity kind, in the order of the file."""
        return self._by_kind.get(kind, ())

    def scalars(self, kind: EntityKind) -> tuple[Metric, ...]:
        """Return the metrics of one kind that have a column, in the frozen order of the columns."""
        return tuple(metric for metric in self.of_kind(kind) if metric.is_scalar)

    def exposition(self, name: str) -> tuple[Binding, ...]:
        """Return the metrics that a sample of this name may feed, preferred source first; empty if unknown.

        Names of DCGM, of other exporters and our own are known. A histogram is found by its name with or without
        `_bucket`, `_sum` and `_count`. The caller tests `match` of each source against the labels of the sample.
        """
        return self._by_sample.get(name, ())

    def nvml(self) -> tuple[Binding, ...]:
        """Return every NVML field and call that gives a metric; of several for one metric the lowest rank is best."""
        return self.of_system("nvml")

    def of_system(self, system: str) -> tuple[Binding, ...]:
        """Return every source of one system with its metric; of several for one metric the lowest rank is best."""
        return tuple((m, source) for m in self.metrics for source in m.sources if source.system == system)

    def _unknown(self, word: str) -> Rejected:
        close = difflib.get_close_matches(word, [*self._by_name, *self._by_word], n=3, cutoff=0.6)
        hint = f"did you mean {', '.join(close)}?" if close else "`secondsight metrics list` names all metrics"
        return Rejected("unknown_metric", f"there is no metric {word}", hint)


def build(metrics: Sequence[Metric]) -> Catalog:
    """Return the catalogue of these metrics.

    Raises:
        Rejected: `bad_catalog` where two metrics share a name or an alias.
    """
    by_name = _names(metrics)
    _check_sources(metrics)
    by_kind: dict[EntityKind, list[Metric]] = defaultdict(list)
    for metric in metrics:
        by_kind[metric.kind].append(metric)
    return Catalog(
        metrics=tuple(metrics),
        _by_name=by_name,
        _by_word=_aliases(metrics, by_name) | _dcgm_words(metrics),
        _by_kind={kind: tuple(members) for kind, members in by_kind.items()},
        _by_sample=_samples(metrics),
    )


def _names(metrics: Iterable[Metric]) -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    for metric in metrics:
        if metric.name in found:
            raise _clash(f"metric {metric.name} is there twice", "a file adds metrics, it cannot redefine them")
        found[metric.name] = metric
    return found


def _aliases(metrics: Iterable[Metric], by_name: Mapping[str, Metric]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for metric in metrics:
        for alias in metric.aliases:
            if alias in by_name or alias in found:
                other = alias if alias in by_name else found[alias][0]
                raise _clash(f"alias {alias} of {metric.name} already stands for {other}", "choose another alias")
            found[alias] = (metric.name,)
    return found


def _check_sources(metrics: Iterable[Metric]) -> None:
    found: dict[tuple[object, ...], tuple[str, bool]] = {}
    for metric in metrics:
        for source in metric.sources:
            key = (source.system, source.name, source.match)
            other, shared = found.setdefault(key, (metric.name, source.shared))
            if other != metric.name and not (shared and source.shared):
                hint = "tell them apart by match, or say shared=true in both where one value feeds both"
                raise _clash(f"{source.name} feeds both {other} and {metric.name}", hint)


def _dcgm_words(metrics: Iterable[Metric]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for metric in metrics:
        for source in metric.sources:
            if source.system == "dcgm":
                found[source.name][metric.name] = None
    return {word: tuple(names) for word, names in found.items()}


def _samples(metrics: Iterable[Metric]) -> dict[str, tuple[Binding, ...]]:
    """Return the bindings by sample name; our own name counts where no source has claimed it."""
    claimed: dict[str, list[Binding]] = defaultdict(list)
    own: dict[str, list[Binding]] = {}
    for metric in metrics:
        for source in metric.sources:
            if source.system not in NOT_EXPOSED:
                claimed[source.name].append((metric, source))
        own[metric.name] = [(metric, _own_source(metric))]
    bases = own | claimed
    suffixed: dict[str, list[Binding]] = defaultdict(list)
    for name, bindings in bases.items():
        for binding in bindings:
            if binding[0].type is MetricType.HISTOGRAM:
                for suffix in HISTOGRAM_SUFFIXES:
                    suffixed[name + suffix].append(binding)
    return {name: tuple(sorted(found, key=_rank)) for name, found in (suffixed | bases).items()}


def _own_source(metric: Metric) -> Source:
    return Source(system="prometheus", name=metric.name, rename=tuple((label, label) for label in metric.labels))


def _rank(binding: Binding) -> int:
    return binding[1].rank


def _clash(message: str, hint: str) -> Rejected:
    return Rejected("bad_catalog", message, hint)
