"""Put on record what agents say that they sent and nobody has: one event for each hole, closed once it is filled.

A hole is a run of minutes of one agent. Its event begins with the first of them, grows with the run, and has an end
when everything came after all, or was declared lost. What is known of holes is read from `events`, so it outlives the
process, and several processors write the same. What is missing is asked of who reads the ledger.
"""

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.errors import SecondsightError
from secondsight.model import EntityKind
from secondsight.process.land import Row, hash64, row_table
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.spec import TableSpec

logger = logging.getLogger(__name__)

METRIC = "custody_loss"
CHECK_SECONDS = 300.0
MINUTE_MS = 60_000
REACH_MS = 30 * MINUTE_MS
"""How far back a look for new holes reaches."""
KEPT_MS = 7 * 86_400_000
"""For so long after its beginning an open hole is looked at again."""
AGAIN_MAXIMUM = 20
"""Open holes beyond the reach that are looked at in one go, newest first."""
_KNOWN = (
    "SELECT tenant_id, cluster_id, host_id, entity, toUnixTimestamp64Milli(event_time) AS from_ms, "
    "if(isNull(end_time), 1, 0) AS is_open, event_version AS version, "
    "toInt64OrZero(attributes['until_ms']) AS until_ms, toInt64OrZero(attributes['values']) AS missing "
    "FROM events FINAL WHERE metric = {metric:String} "
    "AND event_time >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')"
)


class Who(NamedTuple):
    """An agent."""

    tenant_id: str
    cluster_id: str
    host_id: str
    agent: str


class Missing(NamedTuple):
    """Values of a minute that an agent says and nobody has; they may wait in its spool still."""

    who: Who
    minute_ms: int
    values: int
    may_come: bool


class Looked(NamedTuple):
    """What is missing of a range; with `is_all` unset there is more."""

    missing: Sequence[Missing]
    is_all: bool


Ask = Callable[[int, int], Looked]
"""(from, to), epoch ms -> what is missing of the minutes that begin there, of all tenants."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Minutes [from, until) of one agent, and how many values of them nobody has."""

    who: Who
    from_ms: int
    until_ms: int
    values: int
    is_open: bool = True
    version: int = 1


class HoleWatch:
    """Looks every few minutes, in a thread of its own. `check` may be called by tests instead."""

    def __init__(self, store: Store, spec: TableSpec, clock: Clock, metrics: SelfMetrics, ask: Ask) -> None:
        self._store = store
        self._spec = spec
        self._clock = clock
        self._metrics = metrics
        self._ask = ask

    def run(self, stop: threading.Event) -> None:
        """Check until `stop` is set; a store that is away is waited out."""
        while not stop.wait(CHECK_SECONDS):
            try:
                self.check()
            except SecondsightError as error:
                logger.warning("what agents say was not compared with what came, it is tried again: %s", error)

    def check(self) -> list[Hole]:
        """Put on record the holes that are new or changed, and return them.

        Raises:
            SecondsightError: The store is busy or away.
        """
        now_ms = self._clock.now_ms()
        known = self._known(now_ms - KEPT_MS)
        since_ms = (now_ms - REACH_MS) // MINUTE_MS * MINUTE_MS
        older = [hole for hole in known if hole.is_open and hole.from_ms < since_ms]
        spans = [(hole.from_ms, hole.until_ms) for hole in sorted(older, key=lambda hole: -hole.from_ms)]
        looked = [(span, self._ask(*span)) for span in [(since_ms, now_ms), *spans[:AGAIN_MAXIMUM]]]
        whole = [span for span, found in looked if found.is_all]
        changed = changes(known, [one for _, found in looked for one in found.missing], whole)
        if changed:
            self._store.insert("events", row_table(self._spec, [event_of(hole, now_ms) for hole in changed]))
        for hole in changed:
            self._metrics.count("processor_custody_holes_total", state="open" if hole.is_open else "filled")
            (logger.error if hole.is_open else logger.info)("%s", words_of(hole))
        return changed

    def _known(self, from_ms: int) -> list[Hole]:
        rows = self._store.query(_KNOWN, {"metric": METRIC, "from": from_ms}).to_pylist()
        return [
            Hole(
                Who(row["tenant_id"], row["cluster_id"], row["host_id"], row["entity"]),
                row["from_ms"],
                row["until_ms"],
                row["missing"],
                bool(row["is_open"]),
                row["version"],
            )
            for row in rows
        ]


def changes(known: Iterable[Hole], missing: Iterable[Missing], whole: Sequence[tuple[int, int]]) -> list[Hole]:
    """Return the holes that are new, or other than what is known of them.

    Args:
        known: Those on record.
        missing: What is missing of the ranges that were looked at.
        whole: Of these ranges those of which everything that is missing was told.
    """
    minutes: defaultdict[Who, dict[int, int]] = defaultdict(dict)
    waits: set[tuple[Who, int]] = set()
    for one in missing:
        if one.may_come:
            waits.add((one.who, one.minute_ms))
        else:
            minutes[one.who][one.minute_ms] = one.values
    changed = []
    for hole in sorted(known, key=lambda hole: hole.from_ms):
        now = _as_it_is(hole, minutes[hole.who], whole, waits)
        if now != hole:
            changed.append(replace(now, version=hole.version + 1))
    for who, left in minutes.items():
        changed += [
            Hole(who, start, end, sum(left[at] for at in range(start, end, MINUTE_MS))) for start, end in _runs(left)
        ]
    return changed


def _as_it_is(hole: Hole, lost: dict[int, int], whole: Sequence[tuple[int, int]], waits: set[tuple[Who, int]]) -> Hole:
    """Return a hole as it is now, and take its minutes out of those that are lost."""
    until_ms = hole.until_ms
    while until_ms in lost:
        until_ms += MINUTE_MS
    mine = range(hole.from_ms, until_ms, MINUTE_MS)
    values = sum(lost.pop(minute_ms, 0) for minute_ms in mine)
    is_seen = any(first <= hole.from_ms and hole.until_ms <= end for first, end in whole)
    if values:
        return replace(hole, until_ms=until_ms, values=max(values, 0 if is_seen else hole.values), is_open=True)
    if not hole.is_open or not is_seen or any((hole.who, minute_ms) in waits for minute_ms in mine):
        return hole
    return replace(hole, values=0, is_open=False)


def _runs(minutes: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return runs of minutes, [start, end)."""
    starts = [minute_ms for minute_ms in sorted(minutes) if minute_ms - MINUTE_MS not in minutes]
    ends = [minute_ms + MINUTE_MS for minute_ms in sorted(minutes) if minute_ms + MINUTE_MS not in minutes]
    return list(zip(starts, ends, strict=True))


def words_of(hole: Hole) -> str:
    """Return what an operator is told."""
    who = hole.who
    begin, end = (datetime.fromtimestamp(at_ms / 1000, UTC) for at_ms in (hole.from_ms, hole.until_ms))
    of = f"agent {who.agent} on host {who.host_id}: the minutes from {begin:%Y-%m-%d %H:%M} to {end:%H:%M} UTC"
    if not hole.is_open:
        return f"{of}, which were missing, came after all or were declared lost"
    return (
        f"{of} are short of {hole.values} values that it says it sent; they do not wait in its spool, and nobody has "
        f"them: look at what is between the agent and the log; `secondsight ledger --host {who.host_id}` lists them"
    )


def event_of(hole: Hole, now_ms: int) -> Row:
    """Return the row of `events` of a hole; it has an end once it is filled."""
    who = hole.who
    return {
        "tenant_id": who.tenant_id,
        "region": "",
        "cluster_id": who.cluster_id,
        "host_id": who.host_id,
        "entity": who.agent,
        "part": "",
        "kind": EntityKind.PLATFORM.value,
        "metric": METRIC,
        "event_time": hole.from_ms,
        "end_time": None if hole.is_open else hole.until_ms,
        "code": (hole.until_ms - hole.from_ms) // MINUTE_MS,
        "severity": "error" if hole.is_open else "info",
        "text_hash": hash64(METRIC, who.agent),
        "event_version": hole.version,
        "attributes": {"until_ms": str(hole.until_ms), "values": str(hole.values), "message": words_of(hole)},
        "ingest_time": now_ms,
        "collector_id": "processor",
        "source": "processor",
    }
