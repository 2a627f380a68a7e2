"""Turn state changes that a cloud announces for its instances into intervals: which host was in which state, how long.

Announcements come twice, late and out of order: each counts once, by its id, in order of the times that they state.
They are read from a file of one JSON object a line, which whoever receives them appends to.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from secondsight.agent.jobs.report import Means, Station
from secondsight.agent.jobs.settings import LifecycleConfig
from secondsight.contracts import Tick
from secondsight.errors import Retryable
from secondsight.mapping.cells import ContentBuilder, Gathered
from secondsight.model import EntityKind
from secondsight.wire.content import Event

logger = logging.getLogger(__name__)

FILE_MAXIMUM_BYTES = 8 << 20
RUNNING = "running"


@dataclass(frozen=True, slots=True)
class StateChange:
    """One announcement."""

    identifier: str
    instance: str
    state: str
    time_ms: int


@dataclass(frozen=True, slots=True)
class Stay:
    """An instance in one state from `start_ms` on; `end_ms` is None while it is.

    Attributes:
        version: How many changes of the instance are known: what is known better replaces what was known before.
    """

    instance: str
    state: str
    start_ms: int
    end_ms: int | None
    version: int


def changes_of(lines: Iterable[str]) -> tuple[list[StateChange], Counter[str]]:
    """Return the state changes that lines announce, and how many lines are none, by reason."""
    changes: list[StateChange] = []
    refused: Counter[str] = Counter()
    for line in lines:
        if not line.strip():
            continue
        try:
            change = _change(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError):
            refused["line"] += 1
            continue
        if change is None:
            refused["other"] += 1
        else:
            changes.append(change)
    return changes, refused


def stays_of(changes: Iterable[StateChange]) -> list[Stay]:
    """Return the stays that changes make, of each instance in order; a change to the same state starts nothing."""
    by_instance: dict[str, dict[str, StateChange]] = {}
    for change in changes:
        by_instance.setdefault(change.instance, {}).setdefault(change.identifier, change)
    stays: list[Stay] = []
    for instance, known in by_instance.items():
        ordered = sorted(known.values(), key=lambda change: (change.time_ms, change.identifier))
        starts = [each for each, before in zip(ordered, [None, *ordered], strict=False) if not _same(each, before)]
        ends = [*(each.time_ms for each in starts[1:]), None]
        stays += [
            Stay(instance, each.state, each.time_ms, end_ms, len(ordered))
            for each, end_ms in zip(starts, ends, strict=True)
        ]
    return stays


class LifecycleReader:
    """Reads one file of announcements; see `contracts.Reader`."""

    def __init__(self, config: LifecycleConfig, station: Station, means: Means) -> None:
        self.name = "lifecycle"
        self.interval_ms = config.interval_ms
        self._config = config
        self._counts = means.counts
        self._builder = ContentBuilder(station.host_id, station.rack)
        self._stamp: tuple[int, int] | None = None
        self._said: dict[tuple[str, int, str], Stay] = {}

    def read(self, tick_ms: int) -> Tick:  # noqa: ARG002 # announcements state their own times
        """Report what is new in the file.

        Raises:
            Retryable: It cannot be read.
        """
        gathered = Gathered()
        text = self._new_text(self._config.file)
        if text is not None:
            changes, refused = changes_of(text.splitlines())
            for reason, lines in refused.items():
                self._counts.add(f"job_unresolved:lifecycle_{reason}", lines)
            gathered.events += [(EntityKind.NODE, self._event(stay)) for stay in self._news(stays_of(changes))]
        return Tick(self._builder.build(gathered, 0), collector=self.name)

    def close(self) -> None:
        """Nothing is held."""

    def _news(self, stays: list[Stay]) -> list[Stay]:
        """Return what was not said yet; a stay that never was, as is known now, is said to have ended as it began."""
        now = {(stay.instance, stay.start_ms, stay.state): stay for stay in stays}
        versions = {stay.instance: stay.version for stay in stays}
        never = [
            replace(stay, end_ms=stay.start_ms, version=versions.get(stay.instance, stay.version))
            for key, stay in self._said.items()
            if key not in now and stay.instance in versions
        ]
        news = [stay for key, stay in now.items() if self._said.get(key) != stay]
        self._said = now
        return sorted([*news, *never], key=lambda stay: (stay.start_ms, stay.instance))

    def _new_text(self, path: Path) -> str | None:
        """Return the file's end, or None while it is as it was."""
        try:
            with path.open("rb") as file:
                size = file.seek(0, 2)
                stamp = (size, path.stat().st_mtime_ns)
                if stamp == self._stamp:
                    return None
                file.seek(max(size - FILE_MAXIMUM_BYTES, 0))
                data = file.read(FILE_MAXIMUM_BYTES)
        except OSError as error:
            raise Retryable(f"announcements in {path} cannot be read: {error.strerror}") from error
        self._stamp = stamp
        return data.decode(errors="replace")

    def _event(self, stay: Stay) -> Event:
        host = self._config.hosts.get(stay.instance, stay.instance)
        attributes = {"state": stay.state, "instance": stay.instance, "id": f"{stay.instance}:{stay.state}"}
        code = int(stay.state == RUNNING)
        return Event("node_lifecycle", host, "", stay.start_ms, code, stay.end_ms, stay.version, attributes)


def _same(change: StateChange, before: StateChange | None) -> bool:
    return before is not None and change.state == before.state


def _change(item: Any) -> StateChange | None:
    """Return the change of an announcement, or None of one that tells of something else."""
    detail = item["detail"]
    if not isinstance(detail.get("state"), str):
        return None
    moment = datetime.fromisoformat(item["time"])
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    return StateChange(str(item["id"]), str(detail["instance-id"]), detail["state"], round(moment.timestamp() * 1000))
