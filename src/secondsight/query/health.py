"""Say how each GPU is, and by what evidence: one function over its newest row, its events, figures and planned work.

The first that fits: unavailable, degraded, unknown, healthy. Every verdict but healthy names what it rests on.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from secondsight.access.maintenance import MaintenanceWindow
from secondsight.access.scope import Scope
from secondsight.catalog.health import Health, HealthRule, Lasts, health_rules
from secondsight.catalog.index import Catalog
from secondsight.clock import Clock
from secondsight.model import EntityKind
from secondsight.query.figures import Figures, Sign, compile_figures, figures_of, metrics_of_rules, signs_of
from secondsight.query.fleet import FleetNow, GpuNow, Status
from secondsight.query.gapreader import Planned
from secondsight.query.inventory import Inventory
from secondsight.query.plan import Span
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement
from secondsight.query.windows import time_bounds

KEPT_SECONDS = 2.0
SIGNS_SECONDS = 15.0
"""What figures of five minutes say is good for so long."""
BACK_MS = 31 * 86_400_000
LATELY_MS = 300_000
SHARE = 0.1
ROWS_MAXIMUM = 100_000
RESET, BOOT = "gpu_counter_reset", "node_boot"
SILENT, PLANNED, NEVER = "no_telemetry", "planned_work", "never_seen"

Key = tuple[str, str, str, str]
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a verdict rests on; `rule` is a line of the catalogue, or one of the names above."""

    rule: str
    since_ms: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a GPU is."""

    health: Health
    evidence: tuple[Evidence, ...] = ()


class HealthReader:
    """Gives verdicts. Safe from several threads.

    Args:
        planned: Returns the planned work of a scope in a range.
    """

    def __init__(self, inventory: Inventory, catalog: Catalog, clock: Clock, planned: Planned) -> None:
        self._inventory = inventory
        self._catalog = catalog
        self._clock = clock
        self._planned = planned

    def read(self, fleet: FleetNow, scope: Scope) -> dict[Key, Verdict]:
        """Return the verdict of every GPU of a fleet.

        Raises:
            Retryable: The store is away or busy.
        """
        key = ("verdicts", scope, fleet.now_ms)
        found: dict[Key, Verdict] = self._inventory.remember(key, KEPT_SECONDS, lambda: self._read(fleet, scope))
        return found

    def _read(self, fleet: FleetNow, scope: Scope) -> dict[Key, Verdict]:
        now_ms = self._clock.now_ms()
        rows: list[Row] = self._inventory.remember(
            ("health", scope), KEPT_SECONDS, lambda: self._inventory.read(compile_health(scope, now_ms)).to_pylist()
        )
        signs: dict[Key, list[Sign]] = self._inventory.remember(
            ("signs", scope), SIGNS_SECONDS, lambda: signs_of(fleet.gpus, self._figures(scope, now_ms), now_ms)
        )
        planned = self._planned(scope, Span(now_ms, now_ms + 1))
        return verdicts_of(fleet.gpus, rows, planned, now_ms, signs)

    def _figures(self, scope: Scope, now_ms: int) -> dict[Key, Figures]:
        metrics = metrics_of_rules(self._catalog, scope)
        if not metrics:
            return {}
        return figures_of(self._inventory.read(compile_figures(metrics, now_ms, scope)), metrics)


def compile_health(scope: Scope, now_ms: int) -> Statement:
    """Return the statement for events of the last month that say something of health, oldest first."""
    parameters = Parameters()
    names = {rule.event for rule in health_rules()} | {RESET, BOOT}
    where = [
        *time_bounds("event_time", Span(now_ms - BACK_MS, now_ms + LATELY_MS), parameters),
        f"metric IN {parameters.bind_texts(names)}",
        f"kind IN {parameters.bind_texts((EntityKind.GPU.value, EntityKind.NODE.value))}",
        "NOT mapContains(attributes, 'retracted')",
    ]
    columns = [
        *("tenant_id", "cluster_id", "host_id", "entity", "metric", "code", "severity"),
        "toUnixTimestamp64Milli(event_time) AS time_ms",
        "if(isNull(end_time), NULL, toUnixTimestamp64Milli(assumeNotNull(end_time))) AS end_ms",
        "attributes['message'] AS message",
    ]
    tail = [f"ORDER BY time_ms DESC LIMIT {ROWS_MAXIMUM}"]
    rows = ScopedTables(scope, parameters).table("events", columns, where, final=True, tail=tail)
    return Statement(rows[1:-1], parameters.values())


def verdicts_of(
    gpus: Iterable[GpuNow],
    rows: Sequence[Row],
    planned: Sequence[MaintenanceWindow],
    now_ms: int,
    signs: Mapping[Key, Sequence[Sign]] = MappingProxyType({}),
) -> dict[Key, Verdict]:
    """Return the verdicts of some GPUs from events about them and their hosts, and from what their figures say."""
    by_gpu: dict[Key, list[Row]] = defaultdict(list)
    fresh: dict[tuple[str, ...], int] = defaultdict(int)
    for row in rows:
        key = (row["tenant_id"], row["cluster_id"], row["host_id"], row["entity"])
        if row["metric"] in (RESET, BOOT):
            of = key if row["metric"] == RESET else key[:3]
            fresh[of] = max(fresh[of], row["time_ms"])
        else:
            by_gpu[key].append(row)
    quiet = {(one.tenant_id, one.cluster_id, one.host_id) for one in planned}
    found = {}
    for gpu in gpus:
        key = (gpu.tenant_id, gpu.cluster_id, gpu.host_id, gpu.gpu_id)
        reset_ms = max(fresh[key], fresh[key[:3]])
        is_quiet = key[:3] in quiet or (*key[:2], "") in quiet
        told = [(rule, row) for row in by_gpu.get(key, ()) if (rule := _rule_of(row))]
        counted = [(rule, row) for rule, row in told if _counts(rule, row, reset_ms, now_ms)]
        found[key] = verdict_of(gpu, counted, signs.get(key, ()), is_planned=is_quiet)
    return found


def verdict_of(
    gpu: GpuNow, told: Sequence[tuple[HealthRule, Row]], signs: Sequence[Sign], *, is_planned: bool
) -> Verdict:
    """Return how one GPU is, from events that still count and from what its figures say."""
    evidence = {(sign.health, sign.rule): Evidence(sign.rule, sign.since_ms, sign.text) for sign in signs}
    for rule, row in told:
        known = evidence.get((rule.verdict, rule.name))
        if known is None or row["time_ms"] > (known.since_ms or 0):
            evidence[rule.verdict, rule.name] = Evidence(rule.name, row["time_ms"], row["message"] or rule.what)
    if gpu.status in (Status.SILENT, Status.LOST):
        name = PLANNED if is_planned else SILENT
        health = Health.UNKNOWN if is_planned else Health.UNAVAILABLE
        text = "planned work is under way" if is_planned else "it was to send samples and does not"
        evidence[health, name] = Evidence(name, gpu.last_seen_ms, text)
    if gpu.status is Status.UNKNOWN:
        evidence[Health.UNKNOWN, NEVER] = Evidence(NEVER, None, "no sample of it ever came")
    for health in Health:
        mine = tuple(one for (each, _), one in evidence.items() if each is health)
        if mine:
            return Verdict(health, mine)
    return Verdict(Health.HEALTHY)


def _rule_of(row: Row) -> HealthRule | None:
    return next((rule for rule in health_rules() if rule.fits(row["metric"], row["code"], row["severity"])), None)


def _counts(rule: HealthRule, row: Row, reset_ms: int, now_ms: int) -> bool:
    """Tell whether an event still says something."""
    began, ended = row["time_ms"], row["end_ms"]
    match rule.lasts:
        case Lasts.OPEN:
            return ended is None
        case Lasts.RESET:
            return bool(began >= reset_ms)
        case Lasts.RECENT:
            return bool(max(began, ended or 0) > now_ms - LATELY_MS)
        case Lasts.SHARE:
            covered = min(ended or now_ms, now_ms) - max(began, now_ms - LATELY_MS)
            return bool(covered > SHARE * LATELY_MS)
