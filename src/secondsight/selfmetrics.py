"""Keep a part's own counters and gauges, and render them as Prometheus text."""

import threading
from collections import defaultdict

Labels = tuple[tuple[str, str], ...]


class SelfMetrics:
    """Counters and gauges of one process; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._gauges: dict[str, dict[Labels, float]] = defaultdict(dict)

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add `amount` >= 0 to the counter `name` (ends in `_total`) with these labels."""
        with self._lock:
            self._counters[name][_key(labels)] += amount

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set the gauge `name` with these labels."""
        with self._lock:
            self._gauges[name][_key(labels)] = value

    def value(self, name: str, **labels: str) -> float:
        """Return a counter's or gauge's value, 0 where it was never touched."""
        key = _key(labels)
        with self._lock:
            return self._counters.get(name, {}).get(key, self._gauges.get(name, {}).get(key, 0.0))

    def total(self, name: str) -> float:
        """Return the sum of a counter over all its labels."""
        with self._lock:
            return sum(self._counters.get(name, {}).values())

    def render(self) -> str:
        """Return the Prometheus text exposition (format 0.0.4) of everything, sorted."""
        with self._lock:
            families = [(name, "counter", dict(series)) for name, series in self._counters.items()]
            families += [(name, "gauge", dict(series)) for name, series in self._gauges.items()]
        return "".join(_family(name, kind, series) for name, kind, series in sorted(families))


def _key(labels: dict[str, str]) -> Labels:
    return tuple(sorted(labels.items())) if len(labels) > 1 else tuple(labels.items())


def _family(name: str, kind: str, series: dict[Labels, float]) -> str:
    lines = [f"# TYPE {name} {kind}\n"]
    for labels, value in sorted(series.items()):
        inner = ",".join(f'{key}="{_escape(text)}"' for key, text in labels)
        lines.append(f"{name}{{{inner}}} {value:.17g}\n" if inner else f"{name} {value:.17g}\n")
    return "".join(lines)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
