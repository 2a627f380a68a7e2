"""Read what is known of the time of gaps: events, states, declarations, refusals and heartbeats of their hosts."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from secondsight.access.maintenance import MaintenanceWindow
from secondsight.access.scope import Scope
from secondsight.model import EntityKind
from secondsight.process.cells import WINDOW_MS
from secondsight.process.deadletter import DEAD_LETTER, QUARANTINE
from secondsight.query.coverage import GAP_MS
from secondsight.query.gaps import Gap, Places, key_of, pair_of, places_of
from secondsight.query.inventory import OPEN_END_MS, Inventory
from secondsight.query.plan import Span
from secondsight.query.reasons import SLACK_MS, Beat, Evidence, Place, Range, Shed, agent_of
from secondsight.query.samples import Samples
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement, select
from secondsight.query.windows import IDENTITY, raw_bounds, rollup_bounds, time_bounds
from secondsight.store.schema import raw_table, rollup_table

BOOT, LIFECYCLE, DECLARATION, STATE = "node_boot", "node_lifecycle", "agent_shed", "node_schedulable"
DRAINED = 2
TIME_CODES = ("future_time", "too_old", "bad_time")
QUOTA_CODES = ("series_quota", "new_series_quota")
DELIVERY, OVER_QUOTA, OVERLOADED = "agent_delivery_state", 2, 3
BACK_MS = 7 * 86_400_000
"""How far back a state may have begun that still holds."""
OTHER_KINDS = (EntityKind.NODE, EntityKind.GPU, EntityKind.FABRIC_PORT, EntityKind.PLATFORM)

_HOST = ("tenant_id", "cluster_id", "host_id")


class EvidenceReader:
    """Reads evidence about the hosts of some gaps."""

    def __init__(self, inventory: Inventory, samples: Samples) -> None:
        self._inventory = inventory
        self._samples = samples

    def read(
        self, gaps: Sequence[Gap], kind: EntityKind, planned: Sequence[MaintenanceWindow], scope: Scope
    ) -> Evidence:
        """Return what is known of the time of some gaps, of which there is at least one.

        Raises:
            Retryable: The store is away or busy.
        """
        places = places_of(gap.key for gap in gaps)
        span = Span(min(gap.start_ms for gap in gaps), max(gap.end_ms for gap in gaps))
        events = self._rows(compile_events(places, span, scope))
        refused = self._rows(compile_refused(places, span, scope))
        rows = self._samples.rows
        node, platform = EntityKind.NODE, EntityKind.PLATFORM
        held = rows(platform, span, lambda part: compile_held(places, part, scope))
        return Evidence(
            maintenance=_maintenance(planned),
            terminated=_terminated(events),
            drained=_drained(rows(node, span, lambda part: compile_drained(places, part, scope))),
            boots=_boots(events),
            boot_ids=_boot_ids(gaps, rows(kind, span, lambda part: compile_boot_ids(kind, gaps, places, part, scope))),
            shed=_shed(events),
            quarantined=_times(refused, TIME_CODES),
            beyond_quota=_times(refused, QUOTA_CODES),
            over_quota=_held(held, OVER_QUOTA),
            overloaded=_held(held, OVERLOADED),
            beats=_beats(rows(platform, span, lambda part: compile_beats(places, part, scope))),
            others=_others([row for each in OTHER_KINDS for row in self._others(each, places, span, scope)]),
        )

    def _others(self, kind: EntityKind, places: Places, span: Span, scope: Scope) -> list[dict[str, Any]]:
        return self._samples.rows(kind, span, lambda part: compile_others(kind, places, part, scope))

    def _rows(self, statement: Statement) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._inventory.read(statement).to_pylist()
        return found


def compile_events(places: Places, span: Span, scope: Scope) -> Statement:
    """Return the statement for boots, states of instances and declarations that reach into a range."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    start, end = parameters.bind(span.from_ms, "Int64"), parameters.bind(span.to_ms + SLACK_MS, "Int64")
    back = parameters.bind(span.from_ms - BACK_MS, "Int64")
    hosts = parameters.bind_texts(places.hosts)
    columns = [
        *_HOST,
        "entity",
        "metric",
        "code",
        "toUnixTimestamp64Milli(event_time) AS start_ms",
        f"ifNull(toUnixTimestamp64Milli(end_time), {OPEN_END_MS}) AS end_ms",
        "attributes['kind'] AS of_kind",
        "attributes['host'] AS of_host",
    ]
    where = [
        f"metric IN {parameters.bind_texts((BOOT, LIFECYCLE, DECLARATION))}",
        f"cluster_id IN {parameters.bind_texts(places.clusters)}",
        f"(host_id IN {hosts} OR entity IN {hosts} OR attributes['host'] IN {hosts})",
        f"event_time >= fromUnixTimestamp64Milli({back}, 'UTC')",
        f"event_time < fromUnixTimestamp64Milli({end}, 'UTC')",
        f"(metric = '{BOOT}' AND event_time >= fromUnixTimestamp64Milli({start} - {SLACK_MS}, 'UTC') "
        f"OR metric != '{BOOT}' AND (isNull(end_time) OR end_time >= fromUnixTimestamp64Milli({start}, 'UTC')))",
    ]
    return Statement(tables.table("events", columns, where, final=True)[1:-1], parameters.values())


def compile_drained(places: Places, span: Span, scope: Scope) -> Statement:
    """Return the statement for windows in which a scheduler said that a host is drained."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    reach = Span(span.from_ms - SLACK_MS - WINDOW_MS, span.to_ms)
    hosts = parameters.bind_texts(places.hosts)
    where = [
        *rollup_bounds(reach, parameters),
        f"cluster_id IN {parameters.bind_texts(places.clusters)}",
        f"(host_id IN {hosts} OR entity IN {hosts})",
        f"{STATE}_last = {DRAINED}",
        "samples > 0",
    ]
    columns = [*_HOST, "entity", "toInt64(toUnixTimestamp(window_start)) * 1000 AS start_ms"]
    return Statement(tables.table(rollup_table(EntityKind.NODE), columns, where)[1:-1], parameters.values())


def compile_boot_ids(kind: EntityKind, gaps: Sequence[Gap], places: Places, span: Span, scope: Scope) -> Statement:
    """Return the statement for the boot ids of the samples on both sides of each gap."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    times = sorted({time for gap in gaps for time in (gap.start_ms - gap.interval_ms, gap.end_ms)})
    listed = parameters.bind_texts(map(str, times))
    where = [
        *raw_bounds(Span(span.from_ms - SLACK_MS, span.to_ms + 1), parameters),
        *places.predicates(parameters),
        "part = ''",
        "boot_id != ''",
        f"toString(toUnixTimestamp64Milli(event_time)) IN {listed}",
    ]
    columns = [*IDENTITY, "toUnixTimestamp64Milli(event_time) AS t", "any(boot_id) AS boot"]
    rows = tables.table(raw_table(kind), columns, where, tail=[f"GROUP BY {', '.join(IDENTITY)}, t"])
    return Statement(rows[1:-1], parameters.values())


def compile_refused(places: Places, span: Span, scope: Scope) -> Statement:
    """Return the statement for when rows of hosts were refused for their time or a quota of series, by second."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    where = [
        f"(stage = '{QUARANTINE}' AND code IN {parameters.bind_texts(TIME_CODES)} "
        f"OR stage = '{DEAD_LETTER}' AND code IN {parameters.bind_texts(QUOTA_CODES)})",
        *_hosts(places, parameters),
        *time_bounds("ingest_time", Span(span.from_ms, span.to_ms + SLACK_MS), parameters),
    ]
    columns = [*_HOST, "code", "intDiv(toUnixTimestamp64Milli(ingest_time), 1000) * 1000 AS t"]
    group = [f"GROUP BY {', '.join(_HOST)}, code, t"]
    return Statement(tables.table("dead_letters", columns, where, tail=group)[1:-1], parameters.values())


def compile_beats(places: Places, span: Span, scope: Scope) -> Statement:
    """Return the statement for heartbeats of the agents of hosts, by window; `holes` are pairs of beats around silence.

    A gap may lie between two heartbeats of one window.
    """
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    where = [
        *raw_bounds(span, parameters),
        *_hosts(places, parameters),
        "isNotNull(agent_up)",
    ]
    late = "toUnixTimestamp64Milli(ingest_time) - toUnixTimestamp64Milli(event_time) AS late"
    rows = tables.table(
        raw_table(EntityKind.PLATFORM), [*_HOST, "toUnixTimestamp64Milli(event_time) AS t", late], where
    )
    number = f"intDiv(t, {WINDOW_MS})"
    beats = f"PARTITION BY {', '.join(_HOST)}, {number} ORDER BY t ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"
    before = select(["*", f"lagInFrame(t, 1, 0) OVER ({beats}) AS before_ms"], rows)
    columns = [
        *_HOST,
        f"{number} AS number",
        "min(t) AS first_ms",
        "max(t) AS last_ms",
        "max(late) AS late_ms",
        f"arraySort(groupArrayIf((before_ms, t), before_ms > 0 AND t - before_ms > {GAP_MS})) AS holes",
    ]
    return Statement(select(columns, before, tail=[f"GROUP BY {', '.join(_HOST)}, number"])[1:-1], parameters.values())


def compile_held(places: Places, span: Span, scope: Scope) -> Statement:
    """Return the statement for windows in which agents of hosts were told to wait, and why."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    where = [
        *rollup_bounds(Span(span.from_ms - SLACK_MS - WINDOW_MS, span.to_ms), parameters),
        *_hosts(places, parameters),
        f"{DELIVERY}_last IN ({OVER_QUOTA}, {OVERLOADED})",
        "samples > 0",
    ]
    state = f"toInt64({DELIVERY}_last) AS state"
    columns = [*_HOST, state, "toInt64(toUnixTimestamp(window_start)) * 1000 AS start_ms"]
    return Statement(tables.table(rollup_table(EntityKind.PLATFORM), columns, where)[1:-1], parameters.values())


def compile_others(kind: EntityKind, places: Places, span: Span, scope: Scope) -> Statement:
    """Return the statement for when hosts were seen by whom, by window."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    where = [*rollup_bounds(span, parameters), *_hosts(places, parameters), "samples > 0"]
    columns = [
        *_HOST,
        "collector_id",
        "window_start",
        "toUnixTimestamp64Milli(min(first_event_time)) AS first_ms",
        "toUnixTimestamp64Milli(max(last_event_time)) AS last_ms",
    ]
    group = [f"GROUP BY {', '.join(_HOST)}, collector_id, window_start"]
    rows = tables.table(rollup_table(kind), columns, where, tail=group)
    return Statement(rows[1:-1], parameters.values())


def _hosts(places: Places, parameters: Parameters) -> list[str]:
    return [
        f"cluster_id IN {parameters.bind_texts(places.clusters)}",
        f"host_id IN {parameters.bind_texts(places.hosts)}",
    ]


def _place(row: dict[str, Any], host: str = "") -> Place:
    return row["tenant_id"], row["cluster_id"], host or row["host_id"]


def _maintenance(planned: Sequence[MaintenanceWindow]) -> dict[Place, list[Range]]:
    found: defaultdict[Place, list[Range]] = defaultdict(list)
    for window in planned:
        found[window.tenant_id, window.cluster_id, window.host_id].append((window.start_ms, window.to_ms))
    return found


def _terminated(events: Sequence[dict[str, Any]]) -> dict[Place, list[Range]]:
    found: defaultdict[Place, list[Range]] = defaultdict(list)
    for row in events:
        if row["metric"] == LIFECYCLE and row["code"] == 0 and row["end_ms"] > row["start_ms"]:
            found[_place(row, row["entity"])].append((row["start_ms"], row["end_ms"]))
    return found


def _boots(events: Sequence[dict[str, Any]]) -> dict[Place, list[int]]:
    found: defaultdict[Place, list[int]] = defaultdict(list)
    for row in events:
        if row["metric"] == BOOT:
            found[_place(row, row["entity"])].append(row["start_ms"])
    return found


def _shed(events: Sequence[dict[str, Any]]) -> dict[Place, list[Shed]]:
    found: defaultdict[Place, list[Shed]] = defaultdict(list)
    for row in events:
        if row["metric"] == DECLARATION:
            end_ms = row["start_ms"] if row["end_ms"] == OPEN_END_MS else row["end_ms"]
            found[_place(row, row["of_host"])].append(Shed(row["of_kind"], (row["start_ms"], end_ms)))
    return found


def _drained(rows: Sequence[dict[str, Any]]) -> dict[Place, list[Range]]:
    found: defaultdict[Place, list[Range]] = defaultdict(list)
    for row in rows:
        for host in {row["host_id"], row["entity"]}:
            found[_place(row, host)].append((row["start_ms"], row["start_ms"] + WINDOW_MS + SLACK_MS))
    return found


def _times(rows: Sequence[dict[str, Any]], codes: Sequence[str]) -> dict[Place, list[int]]:
    found: defaultdict[Place, list[int]] = defaultdict(list)
    for row in rows:
        if row["code"] in codes:
            found[_place(row)].append(row["t"])
    return found


def _held(rows: Sequence[dict[str, Any]], state: int) -> dict[Place, list[Range]]:
    found: defaultdict[Place, list[Range]] = defaultdict(list)
    for row in rows:
        if row["state"] == state:
            found[_place(row)].append((row["start_ms"], row["start_ms"] + WINDOW_MS))
    return found


def _beats(rows: Sequence[dict[str, Any]]) -> dict[Place, list[Beat]]:
    found: defaultdict[Place, list[Beat]] = defaultdict(list)
    for row in rows:
        holes_ms = (edge_ms for hole in row["holes"] for edge_ms in pair_of(hole))
        edges_ms = [row["first_ms"], *holes_ms, row["last_ms"]]
        runs = zip(edges_ms[::2], edges_ms[1::2], strict=True)
        found[_place(row)] += [Beat(first_ms, last_ms, row["late_ms"]) for first_ms, last_ms in runs]
    return found


def _others(rows: Sequence[dict[str, Any]]) -> dict[Place, list[tuple[str, int, int]]]:
    found: defaultdict[Place, list[tuple[str, int, int]]] = defaultdict(list)
    for row in rows:
        found[_place(row)].append((agent_of(row["collector_id"]), row["first_ms"], row["last_ms"]))
    return found


def _boot_ids(gaps: Sequence[Gap], rows: Sequence[dict[str, Any]]) -> dict[tuple[str, int], tuple[str, str]]:
    at = {(key_of(row), row["t"]): row["boot"] for row in rows}
    return {
        (gap.key, gap.start_ms): (
            at.get((gap.key, gap.start_ms - gap.interval_ms), ""),
            at.get((gap.key, gap.end_ms), ""),
        )
        for gap in gaps
    }
