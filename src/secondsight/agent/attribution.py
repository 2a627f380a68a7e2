"""Turn the workload labels of GPU samples into allocation intervals.

Labels say who has a GPU, not who had it: a missing label means unknown and ends nothing, another workload ends the one
before. Several workloads at once share the card; which of them a sample belongs to cannot be told, so none is given it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from secondsight.agent.cells import Key, plain_text
from secondsight.agent.identity import Workload
from secondsight.wire.content import Event

ALLOCATION = "job_gpu_allocation"
REMEMBERED = 10_000
TEXT_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class _Open:
    workload: Workload
    start_ms: int


class Allocations:
    """The open intervals of one target's GPUs and slices."""

    def __init__(self) -> None:
        self._open: dict[Key, _Open] = {}

    def see(self, workloads: Mapping[Key, set[Workload]], tick_ms: int) -> list[tuple[Key, Event]]:
        """Return the intervals that opened and closed with this scrape; an interval that closes is sent again whole."""
        events: list[tuple[Key, Event]] = []
        for key, found in workloads.items():
            before = self._open.get(key)
            if before is not None:
                if before.workload in found:
                    continue
                del self._open[key]
                events.append((key, _event(key, before, tick_ms)))
            if len(found) != 1:
                continue
            if len(self._open) >= REMEMBERED:
                self._open.clear()
            self._open[key] = _Open(next(iter(found)), tick_ms)
            events.append((key, _event(key, self._open[key], None)))
        return events


def _event(key: Key, interval: _Open, end_ms: int | None) -> Event:
    workload = interval.workload
    pod = "/".join(text for text in (workload.namespace, workload.pod) if text)
    named = {
        "job_id": workload.job or pod,
        "workload_id": "/".join(text for text in (pod, workload.container) if text),
        "owner_team": workload.namespace,
        "model_id": "",
        "via": "labels",
    }
    attributes = {name: plain_text(text, TEXT_CHARACTERS) for name, text in named.items()}
    version = 1 if end_ms is None else 2
    return Event(ALLOCATION, *key, interval.start_ms, 0, end_ms, version, attributes)
