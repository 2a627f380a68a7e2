"""Whose a row must be, by the facts that were told, whenever they came."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from chaos_rows import NOBODY, Owner, RowKey
from secondsight.model import EntityKind
from secondsight.wire.content import Event

LEAD_MS = 600_000
"""A job's own rows have its team from so long before its first GPU was given."""
FOREVER_MS = 1 << 62


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
        return {key: (event.end_ms, event.version, *stated(event)) for key, event in self._best.items()}

    def of_gpu(self, gpu: str, time_ms: int) -> Owner:
        force = [one for one in self._of_gpu[gpu] if one.time_ms <= time_ms < (one.end_ms or FOREVER_MS)]
        return stated(max(force, key=lambda one: (one.time_ms, one.version))) if force else NOBODY

    def of_job(self, job: str, time_ms: int) -> Owner:
        mine = self._of_job[job]
        if not mine or time_ms < min(one.time_ms for one in mine) - LEAD_MS:
            return (job, "", "", "")
        return agreed(map(stated, mine))

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
            stated(one)
            for one in self._of_model[model]
            if self._hosts[one.entity] == key.host_id and one.time_ms <= key.event_time < (one.end_ms or FOREVER_MS)
        ]
        return (*agreed(force)[:3], model)


def agreed(owners: Iterable[Owner]) -> Owner:
    """Return what all owners have in common."""
    fields = [set(values) for values in zip(*owners, strict=True)] or [set[str]()] * 4
    job, workload, team, model = (next(iter(values)) if len(values) == 1 else "" for values in fields)
    return job, workload, team, model


def stated(event: Event) -> Owner:
    told = event.attributes
    return told["job_id"], told["workload_id"], told["owner_team"], told["model_id"]
