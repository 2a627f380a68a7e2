"""Compare what agents say that they sent of each minute with what the log was found to hold of it.

An agent says a minute in its heartbeats, see `agent.spool.minutes`; what came is in the ledger, whatever became of it.
What an agent says and nobody has was lost between the two, unless it still waits in its spool, or was declared or
refused over a range of time that holds the minute. An agent that was started anew in a minute says less than it sent:
that is no loss. A minute is judged when the agent said later that nothing so old waits.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from secondsight.access.scope import Scope
from secondsight.model import EntityKind
from secondsight.process.deadletter import DEAD_LETTER, QUARANTINE
from secondsight.process.ledger import RECEIVED, SHED
from secondsight.query.inventory import Inventory
from secondsight.query.ledger import AGE_STEP_SECONDS, MINUTE_MS, Asked, Count
from secondsight.query.plan import Span
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement, select
from secondsight.query.windows import raw_bounds
from secondsight.store.coarse import FINEST, window_bounds
from secondsight.store.schema import raw_table

SAID_WITHIN_MS = 180_000
"""So long after its start a minute is said at the latest."""
JUDGED_AFTER_MS = 240_000
SHOWN_MAXIMUM = 1_000
_GIVEN_UP = f"outcome IN ('{SHED}', '{QUARANTINE}', '{DEAD_LETTER}') AND item != ''"
"""Rows of the ledger for what never came, by kind and range of time."""
_AGENT_OF = "splitByChar('/', collector_id)[1]"
_AGENT = ("tenant_id", "cluster_id", "host_id", "agent")
Agent = tuple[str, str, str, str]
"""Tenant, cluster, host, collector id of the agent itself."""


class State(StrEnum):
    """Why something that an agent says is not there."""

    LOST = "lost"
    WAITING = "waiting"
    DECLARED = "declared"


@dataclass(frozen=True, slots=True)
class Short:
    """A minute of which less came of an entity kind than an agent says, and how much."""

    agent: Agent
    kind: str
    minute_ms: int
    said: Count
    came: Count
    state: State


@dataclass(frozen=True, slots=True)
class Said:
    """Minutes of which less came, newest first; `minutes` counts all that agents said."""

    shorts: tuple[Short, ...]
    minutes: int

    @property
    def lost(self) -> int:
        """Return how many of them are lost."""
        return sum(one.state is State.LOST for one in self.shorts)


@dataclass(frozen=True, slots=True)
class Waits:
    """When an agent was heard last, and how old what then waited in its spool was."""

    told_ms: int
    oldest_ms: int


class SaidReader:
    """Reads what agents say of a scope. Safe from several threads."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def read(self, asked: Asked, scope: Scope, now_ms: int) -> Said:
        """Return the minutes of a range of which less came than agents say.

        Raises:
            Retryable: The store is away or busy.
        """
        found = self._rows(compile_shorts(asked, scope))
        (counted,) = self._rows(compile_minutes(asked, scope))
        minutes = int(counted["minutes"])
        if not found:
            return Said((), minutes)
        waits = {_agent(row): _waits(row) for row in self._rows(compile_waits(found, scope, now_ms))}
        ranges: dict[Agent, list[tuple[int, int]]] = defaultdict(list)
        for row in self._rows(compile_ranges(found, scope)):
            ranges[_agent(row)].append((row["first_ms"], row["last_ms"]))
        shorts = [_short(row, waits.get(_agent(row)), ranges[_agent(row)], now_ms) for row in found]
        return Said(tuple(shorts), minutes)

    def _rows(self, statement: Statement) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._inventory.read(statement).to_pylist()
        return found


def compile_shorts(asked: Asked, scope: Scope) -> Statement:
    """Return the statement for minutes of which less came of a kind than was said, newest first."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    joined = (
        f"{_said(asked, tables, parameters)} AS said LEFT JOIN {_came(asked, tables, parameters)} AS came "
        "USING (tenant_id, cluster_id, agent, minute_ms, of_kind)"
    )
    columns = [*_AGENT, "minute_ms", "of_kind", "said_rows", "said_values", "came_rows", "came_values"]
    both = select(columns, joined)
    where = ["(said_rows > came_rows OR said_values > came_values)"]
    tail = [f"ORDER BY minute_ms DESC, tenant_id, cluster_id, host_id, agent, of_kind LIMIT {SHOWN_MAXIMUM}"]
    return Statement(select(["*"], both, where=where, tail=tail)[1:-1], parameters.values())


def compile_minutes(asked: Asked, scope: Scope) -> Statement:
    """Return the statement for how many minutes agents said."""
    parameters = Parameters()
    said = _said(asked, ScopedTables(scope, parameters), parameters)
    counted = ["uniqExact((tenant_id, cluster_id, agent, minute_ms)) AS minutes"]
    return Statement(select(counted, said)[1:-1], parameters.values())


def compile_waits(rows: Sequence[Mapping[str, Any]], scope: Scope, now_ms: int) -> Statement:
    """Return the statement for when the agents of some rows were heard last, and how old what waited then was."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    since_ms = min(int(row["minute_ms"]) for row in rows)
    where = [
        *raw_bounds(Span(since_ms, now_ms + MINUTE_MS), parameters),
        f"cluster_id IN {parameters.bind_texts({row['cluster_id'] for row in rows})}",
        f"entity IN {parameters.bind_texts({row['agent'] for row in rows})}",
        "isNotNull(agent_spool_waiting_records)",
    ]
    columns = [
        "tenant_id",
        "cluster_id",
        "host_id",
        "entity",
        "part",
        "toUnixTimestamp64Milli(max(event_time)) AS told_ms",
        "toFloat64(argMax(if(agent_spool_waiting_records > 0, agent_spool_waiting_age_seconds, 0), event_time)) AS age",
    ]
    group = ["GROUP BY tenant_id, cluster_id, host_id, entity, part"]
    parts = tables.table(raw_table(EntityKind.PLATFORM), columns, where, tail=group)
    newest = [
        "tenant_id",
        "cluster_id",
        "host_id",
        "entity AS agent",
        "max(told_ms) AS told",
        "max(age) AS oldest_steps",
    ]
    tail = ["GROUP BY tenant_id, cluster_id, host_id, agent"]
    return Statement(select(newest, parts, tail=tail)[1:-1], parameters.values())


def compile_ranges(rows: Sequence[Mapping[str, Any]], scope: Scope) -> Statement:
    """Return the statement for ranges of time of which agents, gateways or the processor gave something up."""
    parameters = Parameters()
    minutes = [int(row["minute_ms"]) for row in rows]
    end = parameters.bind((max(minutes) + MINUTE_MS) // 1000, "UInt32")
    start = parameters.bind(min(minutes), "Int64")
    columns = [
        "tenant_id",
        "cluster_id",
        "host_id",
        f"{_AGENT_OF} AS agent",
        "toInt64(toUnixTimestamp(window_start)) * 1000 AS first_ms",
        "toUnixTimestamp64Milli(last_time) AS last_ms",
    ]
    where = [
        _GIVEN_UP,
        f"window_start < toDateTime({end}, 'UTC')",
        f"last_time >= fromUnixTimestamp64Milli({start}, 'UTC')",
        f"cluster_id IN {parameters.bind_texts({row['cluster_id'] for row in rows})}",
        f"{_AGENT_OF} IN {parameters.bind_texts({row['agent'] for row in rows})}",
    ]
    found = ScopedTables(scope, parameters).table("ledger", columns, where, final=True)
    return Statement(found[1:-1], parameters.values())


def _said(asked: Asked, tables: ScopedTables, parameters: Parameters) -> str:
    """Return the subquery of what agents said of each minute and entity kind."""
    start, end = (parameters.bind(time_ms // 1000, "UInt64") for time_ms in (_first(asked), asked.span.to_ms))
    where = [
        *raw_bounds(Span(_first(asked), asked.span.to_ms + SAID_WITHIN_MS), parameters),
        "isNotNull(agent_minute_start_seconds)",
        f"agent_minute_start_seconds >= {start}",
        f"agent_minute_start_seconds < {end}",
    ]
    agents = {name.partition("/")[0] for name in asked.collectors}
    where += parameters.among((("cluster_id", asked.clusters), ("host_id", asked.hosts), ("entity", agents)))
    columns = [
        "tenant_id",
        "cluster_id",
        "host_id",
        "entity",
        "part",
        "toInt64(agent_minute_start_seconds) * 1000 AS minute_ms",
        "toInt64(max(agent_minute_rows)) AS said_rows",
        "toInt64(max(agent_minute_values)) AS said_values",
    ]
    group = ["GROUP BY tenant_id, cluster_id, host_id, entity, part, minute_ms"]
    parts = tables.table(raw_table(EntityKind.PLATFORM), columns, where, tail=group)
    names = ["tenant_id", "cluster_id", "host_id", "entity AS agent", "minute_ms", "said_rows", "said_values"]
    return select([*names, f"substring(part, {len('kind=') + 1}) AS of_kind"], parts)


def _came(asked: Asked, tables: ScopedTables, parameters: Parameters) -> str:
    """Return the subquery of what came of each minute, by the agent whose it is."""
    start, end = (
        f"toDateTime({parameters.bind(time_ms // 1000, 'UInt32')}, 'UTC')"
        for time_ms in (_first(asked), asked.span.to_ms + MINUTE_MS)
    )
    columns = [
        "tenant_id",
        "cluster_id",
        f"{_AGENT_OF} AS agent",
        "toString(kind) AS of_kind",
        f"intDiv(toInt64(toUnixTimestamp(window_start)) * 1000, {MINUTE_MS}) * {MINUTE_MS} AS minute_ms",
        "toInt64(sum(rows)) AS came_rows",
        "toInt64(sum(`values`)) AS came_values",
    ]
    where = [
        f"(outcome = '{RECEIVED}' OR {_GIVEN_UP})",
        *window_bounds(FINEST, start, end),
        *parameters.among([("cluster_id", asked.clusters)]),
    ]
    tail = ["GROUP BY tenant_id, cluster_id, agent, of_kind, minute_ms"]
    return tables.table("ledger", columns, where, final=True, tail=tail)


def _first(asked: Asked) -> int:
    """Return the start of the first whole minute of a range."""
    return -(-asked.span.from_ms // MINUTE_MS) * MINUTE_MS


def _short(row: Mapping[str, Any], waits: Waits | None, ranges: Sequence[tuple[int, int]], now_ms: int) -> Short:
    minute_ms = int(row["minute_ms"])
    said, came = Count(row["said_rows"], row["said_values"]), Count(row["came_rows"], row["came_values"])
    end_ms = minute_ms + MINUTE_MS
    state = State.LOST
    if waits is None or now_ms - minute_ms < JUDGED_AFTER_MS or waits.oldest_ms < end_ms + MINUTE_MS:
        state = State.WAITING
    elif any(first_ms < end_ms and last_ms >= minute_ms for first_ms, last_ms in ranges):
        state = State.DECLARED
    return Short(_agent(row), row["of_kind"], minute_ms, said, came, state)


def _waits(row: Mapping[str, Any]) -> Waits:
    told_ms = int(row["told"])
    return Waits(told_ms, told_ms - round(row["oldest_steps"] * AGE_STEP_SECONDS * 1000))


def _agent(row: Mapping[str, Any]) -> Agent:
    return row["tenant_id"], row["cluster_id"], row["host_id"], row["agent"]
