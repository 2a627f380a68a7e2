"""Keep a part's own counters and gauges, and render them as Prometheus text."""

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable
from itertools import accumulate

Labels = tuple[tuple[str, str], ...]


class SelfMetrics:
    """Counters and gauges of one process; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._gauges: dict[str, dict[Labels, float]] = defaultdict(dict)
        self._bounds: dict[str, tuple[float, ...]] = {}
        self._buckets: dict[str, dict[Labels, list[int]]] = defaultdict(dict)

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add `amount` >= 0 to the counter `name` (ends in `_total`) with these labels."""
        with self._lock:
            self._counters[name][_key(labels)] += amount

    def add(self, counts: Iterable[tuple[str, Labels, float]]) -> None:
        """Add to counters, each as (name, labels sorted by name, amount)."""
        with self._lock:
            for name, labels, amount in counts:
                self._counters[name][labels] += amount

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set the gauge `name` with these labels."""
        with self._lock:
            self._gauges[name][_key(labels)] = value

    def observe(self, name: str, value: float, bounds: tuple[float, ...], **labels: str) -> None:
        """Add a value to the histogram `name`, whose buckets end at `bounds` and beyond all of them."""
        key = _key(labels)
        with self._lock:
            self._bounds[name] = bounds
            counts = self._buckets[name].setdefault(key, [0] * (len(bounds) + 1))
            counts[bisect_left(bounds, value)] += 1
            self._counters[f"{name}_sum"][key] += value

    def value(self, name: str, **labels: str) -> float:
        """Return a counter's or gauge's value, 0 where it was never touched."""
        key = _key(labels)
        with self._lock:
            return self._counters.get(name, {}).get(key, self._gauges.get(name, {}).get(key, 0.0))

    def total(self, name: str) -> float:
        """Return the sum of a counter over all its labels."""
        with self._lock:
            return sum(self._counters.get(name, {}).values())

    def render(self, hidden: Collection[str] = ()) -> str:
        """Return the Prometheus text exposition (format 0.0.4) of everything, sorted, added up over hidden labels."""
        with self._lock:
            families = [(name, "counter", dict(series)) for name, series in self._counters.items()]
            families += [(name, "gauge", dict(series)) for name, series in self._gauges.items()]
            sums = {name: dict(self._counters[f"{name}_sum"]) for name in self._buckets}
            histograms = [
                _histogram(name, self._bounds[name], {key: list(counts) for key, counts in series.items()}, sums[name])
                for name, series in sorted(self._buckets.items())
            ]
        plain = [family for family in families if family[0].removesuffix("_sum") not in sums]
        shown = [(name, kind, _without(series, hidden) if hidden else series) for name, kind, series in plain]
        return "".join([*(_family(name, kind, series) for name, kind, series in sorted(shown)), *histograms])


def _key(labels: dict[str, str]) -> Labels:
    return tuple(sorted(labels.items())) if len(labels) > 1 else tuple(labels.items())


def _without(series: dict[Labels, float], hidden: Collection[str]) -> dict[Labels, float]:
    sums: dict[Labels, float] = defaultdict(float)
    for labels, value in series.items():
        sums[tuple(label for label in labels if label[0] not in hidden)] += value
    return dict(sums)


def _family(name: str, kind: str, series: dict[Labels, float]) -> str:
    lines = [f"# TYPE {name} {kind}\n"]
    for labels, value in sorted(series.items()):
        inner = ",".join(f'{key}="{_escape(text)}"' for key, text in labels)
        lines.append(f"{name}{{{inner}}} {value:.17g}\n" if inner else f"{name} {value:.17g}\n")
    return "".join(lines)


def _histogram(name: str, bounds: tuple[float, ...], series: dict[Labels, list[int]], sums: dict[Labels, float]) -> str:
    lines = [f"# TYPE {name} histogram\n"]
    for labels, counts in sorted(series.items()):
        inner = "".join(f'{key}="{_escape(text)}",' for key, text in labels)
        below = accumulate(counts)
        for end, count in zip((*map(repr, bounds), "+Inf"), below, strict=True):
            lines.append(f'{name}_bucket{{{inner}le="{end}"}} {count}\n')
        own = f"{{{inner.removesuffix(',')}}}" if inner else ""
        lines.append(f"{name}_sum{own} {sums[labels]:.17g}\n{name}_count{own} {sum(counts)}\n")
    return "".join(lines)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
