"""Stand between readers and spool: apply the plan to what was read.

Without a plan, or where it asks for every second of every metric, ticks pass as they are. Else columns that are not
enabled are left out, and what is asked for every 30 s goes through a `Stream`. Readers that cost are not called at
ticks whose samples nobody would ship.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from secondsight.agent.plan.cut import Columns, happenings, select
from secondsight.agent.plan.model import FULL_MS, NOTHING, WINDOW_MS, Plan, Selection
from secondsight.agent.plan.ring import Ring
from secondsight.agent.plan.stream import Shipped, Stream
from secondsight.catalog.load import Catalog
from secondsight.catalog.metric import RollupSet
from secondsight.contracts import Reader, Tick
from secondsight.model import EntityKind
from secondsight.wire.content import Content, Event
from secondsight.wire.header import Stamp

logger = logging.getLogger(__name__)

ALLOCATION = "job_gpu_allocation"
JOBS_MAXIMUM = 10_000
HEARTBEAT = frozenset({"agent_up"})
HEARTBEAT_MS = 5000
OF_JOBS = (EntityKind.PROCESS_JOB, EntityKind.TRAINING)

Write = Callable[[Reader, int, Tick], None]


class LaneKey(NamedTuple):
    """What the ticks of one stream have in common; `collector` and `source` are as in `Tick`."""

    reader: str
    collector: str
    source: str
    kind: EntityKind
    host_id: str

    def tick(self, item: Shipped) -> Tick:
        """Return a tick of this stream."""
        return Tick((item.content,), self.collector, self.source, interval_ms=item.interval_ms)


@dataclass(frozen=True, slots=True)
class StageParts:
    """What a stage works with.

    Attributes:
        write: Takes what is shipped.
        correction_ms: Returns what the host's clock is corrected by now.
    """

    write: Write
    ring: Ring
    catalog: Catalog
    correction_ms: Callable[[], int]


class Jobs:
    """Which entities the jobs of this host run on, as far as allocation events of its readers tell."""

    def __init__(self) -> None:
        self._entities: dict[str, dict[str, int]] = {}

    def learn(self, events: Iterable[Event]) -> None:
        """Take allocations that began or ended."""
        for event in events:
            job = event.attributes.get("job_id", "")
            if event.metric != ALLOCATION or not job:
                continue
            if event.end_ms is None:
                if len(self._entities) >= JOBS_MAXIMUM:
                    self._entities.clear()
                self._entities.setdefault(job, {})[event.entity] = event.time_ms
            else:
                self._end(job, event)

    def of(self, kind: EntityKind, jobs: frozenset[str]) -> Selection:
        """Return the entities of a kind that some jobs have."""
        if not jobs:
            return NOTHING
        if kind in OF_JOBS:
            return Selection(entities=jobs)
        if kind is not EntityKind.GPU:
            return NOTHING
        return Selection(entities=frozenset(entity for job in jobs for entity in self._entities.get(job, ())))

    def _end(self, job: str, event: Event) -> None:
        known = self._entities.get(job, {})
        if known.get(event.entity, event.time_ms) <= event.time_ms:
            known.pop(event.entity, None)
        if not known:
            self._entities.pop(job, None)


@dataclass(slots=True)
class _Lane:
    """One stream with what was last shipped of it.

    Attributes:
        full_ms: Start of the last window of which every second was shipped.
        thin_ms: Start of the last window of which one tick was shipped.
    """

    stream: Stream | None = None
    full_ms: int = -1
    thin_ms: int = -1


class Stage:
    """Applies the plan in force. Safe to call from the threads of readers; the plan may be replaced at any time."""

    def __init__(self, parts: StageParts, sender: tuple[str, str, str]) -> None:
        """Make a stage that passes everything on.

        Args:
            parts: What it works with.
            sender: Collector, host and boot, as in the stamps of frames.
        """
        self._parts = parts
        self._sender = sender
        self._lock = threading.Lock()
        self._plan = Plan()
        self._columns = Columns()
        self._jobs = Jobs()
        self._lanes: dict[LaneKey, _Lane] = {}
        self._kinds: dict[str, set[EntityKind]] = {}
        self._read_ms: dict[str, int] = {}
        self._full_ms: dict[str, int] = {}

    @property
    def plan(self) -> Plan:
        """Return the plan in force."""
        return self._plan

    def apply(self, plan: Plan) -> None:
        """Put a plan in force."""
        with self._lock:
            self._plan = plan

    def deliver(self, reader: Reader, tick_ms: int, tick: Tick) -> None:
        """Take what a reader took, and write what the plan wants of it."""
        with self._lock:
            shipped = self._shipped(reader, tick_ms, tick)
        for at_ms, part in shipped:
            self._parts.write(reader, at_ms, part)

    def wants(self, name: str, interval_ms: int, tick_ms: int) -> bool:
        """Tell whether a reader that costs is to be called at a tick."""
        with self._lock:
            kinds, window_ms = self._kinds.get(name), self._window_ms(tick_ms)
            coarse = bool(kinds) and all(self._is_coarse(kind, interval_ms, tick_ms) for kind in kinds or ())
            first = self._read_ms.get(name) != window_ms
            self._read_ms[name] = window_ms
            return first or not coarse or self._full_ms.get(name) == window_ms

    def close(self) -> None:
        """Ship the summaries of windows that are open."""
        with self._lock:
            lanes, self._lanes = self._lanes, {}
        for key, lane in lanes.items():
            for item in lane.stream.close() if lane.stream else ():
                self._parts.write(named_reader(key.reader), item.tick_ms, key.tick(item))

    def _shipped(self, reader: Reader, tick_ms: int, tick: Tick) -> list[tuple[int, Tick]]:
        passed: list[Content] = []
        others: list[tuple[int, Tick]] = []
        for content in tick.contents:
            kind = content.schema.kind
            self._jobs.learn(content.events)
            self._kinds.setdefault(reader.name, set()).add(kind)
            left = self._enabled(content)
            if left is None:
                continue
            key = LaneKey(reader.name, tick.collector, tick.source, kind, content.entities.host_id)
            if self._plan.kind(kind).is_coarse(reader.interval_ms):
                others += self._coarse(key, reader, tick_ms, left)
            else:
                others += self._whole(key, tick_ms)
                passed.append(left)
        if passed or tick.earlier:
            others.append((tick_ms, replace(tick, contents=tuple(passed), earlier=self._earlier(tick))))
        return others

    def _enabled(self, content: Content) -> Content | None:
        enabled = self._plan.kind(content.schema.kind).metrics
        return content if enabled is None else self._columns.keep(content, enabled)

    def _earlier(self, tick: Tick) -> tuple[tuple[int, tuple[Content, ...]], ...]:
        found = ((at_ms, [self._enabled(content) for content in contents]) for at_ms, contents in tick.earlier)
        return tuple((at_ms, tuple(each for each in contents if each is not None)) for at_ms, contents in found)

    def _whole(self, key: LaneKey, tick_ms: int) -> list[tuple[int, Tick]]:
        """Note that every second is shipped; what a stream still holds of its window is shipped first."""
        lane = self._lanes.setdefault(key, _Lane())
        stream, lane.stream = lane.stream, None
        lane.full_ms = self._full_ms[key.reader] = self._window_ms(tick_ms)
        left = stream.leave(tick_ms, self._parts.correction_ms()) if stream else ()
        return [(item.tick_ms, key.tick(item)) for item in left]

    def _coarse(self, key: LaneKey, reader: Reader, tick_ms: int, content: Content) -> list[tuple[int, Tick]]:
        correction_ms = self._parts.correction_ms()
        session = self._session(key.kind, tick_ms + correction_ms)
        lane = self._lanes.setdefault(key, _Lane())
        if reader.interval_ms != FULL_MS or isinstance(reader, Gated):
            thin = self._thin(lane, tick_ms, content, session)
            return [] if thin is None else [(tick_ms, key.tick(thin))]
        if lane.stream is None:
            lane.stream = Stream(self._rollup_of, lane.full_ms)
        shipped, kept = lane.stream.take(tick_ms, content, correction_ms, session)
        if kept is not None:
            self._parts.ring.append(self._stamp(key, tick_ms), kept)
            shipped += self._heartbeat(tick_ms, kept, shipped)
        return [(item.tick_ms, key.tick(item)) for item in shipped]

    def _heartbeat(self, tick_ms: int, kept: Content, shipped: Sequence[Shipped]) -> list[Shipped]:
        """Return a sign of life, where nothing else is shipped of the agent itself: answers to it tell of new plans."""
        if shipped or tick_ms // HEARTBEAT_MS == (tick_ms - FULL_MS) // HEARTBEAT_MS:
            return []
        sign = self._columns.keep(replace(kept, histograms=()), HEARTBEAT)
        return [] if sign is None else [Shipped(tick_ms, sign, WINDOW_MS)]

    def _thin(self, lane: _Lane, tick_ms: int, content: Content, session: Selection) -> Shipped | None:
        """Return the first tick of a window, else what is in a session, where no summary can be made."""
        window_ms = self._window_ms(tick_ms)
        if session.everything or lane.full_ms == window_ms:
            return Shipped(tick_ms, content, 0)
        first, lane.thin_ms = lane.thin_ms != window_ms, window_ms
        if first:
            return Shipped(tick_ms, content, WINDOW_MS)
        wanted = select(content, session) if session else happenings(content)
        return None if wanted is None else Shipped(tick_ms, wanted, 0)

    def _session(self, kind: EntityKind, now_ms: int) -> Selection:
        return self._plan.in_session(kind, now_ms) | self._jobs.of(kind, self._plan.jobs)

    def _is_coarse(self, kind: EntityKind, interval_ms: int, tick_ms: int) -> bool:
        coarse = self._plan.kind(kind).is_coarse(interval_ms)
        return coarse and not self._session(kind, tick_ms + self._parts.correction_ms())

    def _window_ms(self, tick_ms: int) -> int:
        return (tick_ms + self._parts.correction_ms()) // WINDOW_MS * WINDOW_MS

    def _rollup_of(self, metric: str) -> RollupSet:
        return self._parts.catalog.get(metric).rollup

    def _stamp(self, key: LaneKey, tick_ms: int) -> Stamp:
        collector, host, boot = self._sender
        ticks = np.array([tick_ms], np.int64)
        return Stamp(_joined(collector, key.collector), host, key.source or key.reader, 0, 0, 0, ticks, FULL_MS, boot)


@dataclass(slots=True)
class _Named:
    """Stands for a reader whose ticks come from elsewhere."""

    name: str
    interval_ms: int

    def read(self, tick_ms: int) -> Tick:  # noqa: ARG002 - it never reads
        """Return nothing."""
        return Tick(())

    def close(self) -> None:
        """Nothing is held."""


def named_reader(name: str) -> Reader:
    """Return a reader that only says whose ticks they are."""
    return _Named(name, FULL_MS)


class Gated:
    """A reader that costs: it is called at a tick only where the plan ships something of it."""

    def __init__(self, reader: Reader, wants: Callable[[str, int, int], bool]) -> None:
        self.name = reader.name
        self.interval_ms = reader.interval_ms
        self._reader = reader
        self._wants = wants

    def read(self, tick_ms: int) -> Tick:
        """Read, or return an empty tick."""
        return self._reader.read(tick_ms) if self._wants(self.name, self.interval_ms, tick_ms) else Tick(())

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()


def _joined(collector: str, suffix: str) -> str:
    return collector + (f"/{suffix}" if suffix else "")
