"""Count what the agent did, from any thread."""

import threading
from collections import Counter
from collections.abc import Mapping


class Counts:
    """Monotonic counts by name; `name:label` counts belong to the label of a metric. Safe to call from threads."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, name: str, by: int = 1) -> None:
        """Count `by` more of a thing."""
        with self._lock:
            self._counts[name] += by

    def add_discarded(self, reasons: Mapping[str, int]) -> None:
        """Count values that a reader refused, by reason."""
        for reason, values in reasons.items():
            self.add(f"discarded:{reason}", values)

    def get(self, name: str) -> int:
        """Return the count of one thing."""
        with self._lock:
            return self._counts[name]

    def labelled(self, name: str) -> dict[str, int]:
        """Return label -> count of every `name:label`."""
        with self._lock:
            prefix = name + ":"
            return {key.removeprefix(prefix): count for key, count in self._counts.items() if key.startswith(prefix)}
