"""Tell how the agent is: every few seconds in its status file, and every half minute as platform rows.

It is a reader like others, so an agent whose sampler hangs falls silent. The rows are a collector of their own, as they
come more rarely than those of the agent itself.
"""

import logging
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from secondsight.agent.health.gather import Insight, State, shed_values, state_of
from secondsight.agent.health.lives import before, lives
from secondsight.agent.health.statefile import StateFile
from secondsight.catalog.load import Catalog
from secondsight.catalog.metric import Source
from secondsight.catalog.scale import Conversion, conversion
from secondsight.contracts import Tick
from secondsight.mapping.cells import Cell, ContentBuilder, Gathered, part_text
from secondsight.mapping.changes import Facts
from secondsight.model import EntityKind
from secondsight.release import VERSION
from secondsight.wire.content import Event

logger = logging.getLogger(__name__)

COLLECTOR = "health"
STATE_MS = 5000
ROWS_MS = 30_000
FAILS, OVER_QUOTA, OVERLOADED = 1, 2, 3
"""States of delivery."""


class HeartbeatReader:
    """Reads the health of one agent; see `contracts.Reader`. `look_at` before the first read."""

    def __init__(self, catalog: Catalog, collector_id: str, host_id: str) -> None:
        self.name = COLLECTOR
        self.interval_ms = STATE_MS
        self._catalog = catalog
        self._collector_id = collector_id
        self._builder = ContentBuilder(host_id, "")
        self._conversion = lru_cache(maxsize=64)(self._new_conversion)
        self._facts = Facts()
        self._insight: Insight | None = None
        self._file: StateFile | None = None
        self._lives: tuple[Event, ...] = ()
        self._window = -1
        self._complaint = ""

    def look_at(self, insight: Insight) -> None:
        """Take the parts of the agent, which are put together after its readers."""
        self._insight = insight
        self._lives = lives(self._collector_id, before(insight.config.spool_dir), VERSION, insight.started_ms)
        self._file = StateFile(insight.config.spool_dir)
        self._say({})

    def read(self, tick_ms: int) -> Tick:
        """Write the status file, and give the rows when they are due."""
        insight = self._insight
        if insight is None:
            return Tick(())
        state = state_of(insight)
        self._write(state)
        window = tick_ms // ROWS_MS
        if window == self._window:
            return Tick(())
        self._window = window
        cells = [*self._cells(insight, state), *self._minute_cells(insight, tick_ms)]
        gathered = Gathered(cells=cells)
        self._facts.learn("agent_info", self._collector_id, _facts_of(state), named=True)
        gathered.events = [(EntityKind.PLATFORM, event) for event in self._lives]
        self._lives = ()
        gathered.infos = [(EntityKind.PLATFORM, info) for info in self._facts.take(tick_ms)]
        contents = self._builder.build(gathered, insight.clock.now_ms() - tick_ms)
        return Tick(contents, collector=COLLECTOR, source="self", interval_ms=ROWS_MS)

    def say_ended(self) -> None:
        """Leave word that the agent ended on purpose, and what it left behind."""
        if self._insight is not None:
            self._say({"endedMs": self._insight.clock.now_ms()})
        self.close()

    def close(self) -> None:
        """Close the status file; it is opened again where more is written."""
        if self._file is not None:
            self._file.close()

    def _say(self, more: State) -> None:
        """Write the status file outside of a read; whatever goes wrong, the agent starts and ends."""
        try:
            if self._insight is not None:
                self._write({**state_of(self._insight), **more})
        except Exception:
            logger.exception("how the agent is could not be told")

    def _write(self, state: State) -> None:
        try:
            if self._file is not None:
                self._file.write(state)
        except OSError as error:
            if str(error) != self._complaint:
                logger.warning("`secondsight agent status` will be out of date, its file cannot be written: %s", error)
            self._complaint = str(error)
        else:
            self._complaint = ""

    def _cell(self, metric: str, physical: float, **labels: str) -> Cell:
        value, quality = self._conversion(metric).one(physical)
        return Cell(self._catalog.get(metric), self._collector_id, part_text(labels.items()), value, quality)

    def _new_conversion(self, metric: str) -> Conversion:
        return conversion(self._catalog.get(metric), Source("agent", metric))

    def _cells(self, insight: Insight, state: State) -> Iterator[Cell]:
        yield from self._spool_cells(insight, state["spool"])
        yield from self._delivery_cells(state["delivery"])
        for one in state["readers"]:
            if one["failed"]:
                yield self._cell("agent_read_failures_total", one["failed"], source=one["name"])
            if one["timedOut"]:
                yield self._cell("agent_read_timeouts_total", one["timedOut"], source=one["name"])
        yield from self._part_cells(state["parts"])
        yield from self._process_cells(state["cost"])
        yield self._cell("agent_sampling_mode", int(state["plan"]["mode"] != "full"))
        yield self._cell("agent_debug_sessions", state["plan"]["sessionCount"])
        if state["clock"]["offsetMs"] is not None:
            yield self._cell("agent_clock_offset_seconds", state["clock"]["offsetMs"] / 1000)
            yield self._cell("agent_clock_uncertainty_seconds", state["clock"]["uncertaintyMs"] / 1000)

    def _spool_cells(self, insight: Insight, spool: State) -> Iterator[Cell]:
        yield self._cell("agent_held_ticks", spool["heldTicks"])
        for name, one in spool["classes"].items():
            label = {"class": name.replace(" ", "_")}
            yield self._cell("agent_spool_waiting_bytes", one["bytes"], **label)
            yield self._cell("agent_spool_waiting_records", one["records"], **label)
            yield self._cell("agent_spool_waiting_age_seconds", one["oldestAgeSeconds"] or 0.0, **label)
        for priority, tally in insight.spools.spooled.items():
            for kind, count in tally.items():
                labels = {"class": f"P{priority.value}", "kind": kind.value}
                yield self._cell("agent_spooled_values_total", count.values, **labels)
                yield self._cell("agent_spooled_rows_total", count.rows, **labels)
        for name, reasons in shed_values(insight.counts).items():
            for reason, values in reasons.items():
                yield self._cell("agent_shed_values_total", values, **{"class": name, "reason": reason})

    def _minute_cells(self, insight: Insight, tick_ms: int) -> Iterator[Cell]:
        """Give what was spooled of the newest minute that is over; every minute is said at two beats."""
        now = insight.clock.monotonic_seconds()
        minute = insight.spools.said_at(tick_ms + insight.offset.correction_ms(now))
        for kind, count in minute.tally.items():
            yield self._cell("agent_minute_start_seconds", minute.start_ms // 1000, kind=kind.value)
            yield self._cell("agent_minute_rows", count.rows, kind=kind.value)
            yield self._cell("agent_minute_values", count.values, kind=kind.value)

    def _delivery_cells(self, delivery: State) -> Iterator[Cell]:
        yield self._cell("agent_delivery_state", _delivery_state(delivery))
        yield self._cell("agent_ship_requests_total", delivery["requestsTotal"])
        yield self._cell("agent_ship_failures_total", delivery["failedTotal"])
        yield self._cell("agent_shipped_bytes_total", delivery["bytesTotal"])
        if delivery["lastAgeSeconds"] is not None:
            yield self._cell("agent_ship_success_age_seconds", delivery["lastAgeSeconds"])
        for code, times in sorted(delivery["rejected"].items()):
            yield self._cell("agent_ship_rejected_total", times, code=code)

    def _part_cells(self, parts: Mapping[str, Mapping[str, Any]]) -> Iterator[Cell]:
        for name, facts in sorted(parts.items()):
            if facts.get("restarts") is not None:
                yield self._cell("agent_child_restarts_total", facts["restarts"], process=name)
            if facts.get("latencySeconds") is not None:
                yield self._cell("agent_driver_latency_seconds", facts["latencySeconds"])

    def _process_cells(self, cost: State) -> Iterator[Cell]:
        for one in cost["processes"]:
            yield self._cell("agent_process_cpu_seconds_total", one["cpuSeconds"], process=one["name"])
            if one["pssBytes"] is not None:
                yield self._cell("agent_process_memory_bytes", one["pssBytes"], process=one["name"])


def _delivery_state(delivery: State) -> int:
    """Return the state of delivery, as the catalogue has it."""
    if delivery["heldBy"]:
        return OVER_QUOTA if delivery["heldBy"] == "over_quota" else OVERLOADED
    return FAILS if delivery["failures"] else 0


def _facts_of(state: State) -> dict[str, str]:
    """Return what the agent is, for `agent_info`."""
    return {
        "version": state["version"],
        "python": state["python"],
        "plan": state["plan"]["version"],
        "mode": state["plan"]["mode"],
        "enrolled": str(state["identity"]["enrols"]).lower(),
        "readers": ",".join(one["name"] for one in state["readers"]),
    }
