"""Turn the newest minute of rows into the state of every GPU in scope, and into sums over some of them."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from secondsight.access.scope import Scope
from secondsight.catalog.index import Catalog
from secondsight.catalog.metric import Metric
from secondsight.catalog.scale import physical_array
from secondsight.clock import Clock
from secondsight.errors import Rejected
from secondsight.model import EntityKind
from secondsight.query.coverage import Coverage, stretches_of
from secondsight.query.inventory import Inventory
from secondsight.query.plan import GRACE_MS, Span
from secondsight.query.progress import Progress, progress_of
from secondsight.query.request import Filters
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement
from secondsight.query.windows import raw_bounds
from secondsight.store.spec import quoted

NEWEST_MS = 60_000
AHEAD_MS = 5_000
REPORTING_MS = 30_000
REPORTING_SLOTS = 3
SILENT_MS = 300_000
STATE_SECONDS = 1.0
LAST_ROW_MS = 3_600_000
LAST_ROW_SECONDS = 15.0
LAST_ROWS_MAXIMUM = 1_000
"""Of so many GPUs that fell silent within the last hour it is looked up, to the second, since when."""

UTILIZATION, POWER, TEMPERATURE, MEMORY = NOW_METRICS = (
    "gpu_utilization_ratio",
    "gpu_power_watts",
    "gpu_temperature_celsius",
    "gpu_memory_used_bytes",
)
"""What is shown of every GPU."""

_OWNERS = ("job_id", "workload_id", "owner_team", "model_id")
_Row = dict[str, Any]


class Status(StrEnum):
    """What the age of a GPU's newest row says: up to 30 s, up to 5 min, longer, never seen."""

    REPORTING = "reporting"
    SILENT = "silent"
    LOST = "lost"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GpuNow:
    """The newest that is known of one GPU.

    Attributes:
        index: Position on its host, or None; never a key.
        values: Metric -> physical value, or None; only of a GPU that reports.
    """

    tenant_id: str
    cluster_id: str
    rack: str
    host_id: str
    gpu_id: str
    index: int | None
    gpu_model: str
    job_id: str
    workload_id: str
    owner_team: str
    model_id: str
    status: Status
    last_seen_ms: int | None
    values: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class FleetNow:
    """Every GPU of a scope, in order of cluster, host, index.

    Attributes:
        coverage: Of the newest minute whose samples are due.
    """

    gpus: tuple[GpuNow, ...]
    progress: Progress
    now_ms: int
    coverage: Coverage

    @property
    def freshness_ms(self) -> int | None:
        """Return the age of the newest row of any GPU, or None."""
        seen = [gpu.last_seen_ms for gpu in self.gpus] + [self.progress.newest_ms]
        newest = max((ms for ms in seen if ms is not None), default=None)
        return None if newest is None else max(self.now_ms - newest, 0)


@dataclass(frozen=True, slots=True)
class Summary:
    """Sums over some GPUs; figures are of those that report, None where none does."""

    counts: Mapping[Status, int]
    hosts: int
    clusters: int
    power_watts: float | None
    utilization_ratio: float | None
    hottest: GpuNow | None


class FleetReader:
    """Reads the state of every GPU; one statement, kept for a second per scope. Safe from several threads."""

    def __init__(self, inventory: Inventory, catalog: Catalog, clock: Clock) -> None:
        self._inventory = inventory
        self._clock = clock
        self._metrics = tuple(catalog.get(name) for name in NOW_METRICS)

    def read(self, scope: Scope) -> FleetNow:
        """Return the state of the fleet in a scope.

        Raises:
            Retryable: The store is away or busy.
        """
        found: FleetNow = self._inventory.remember(("fleet", scope), STATE_SECONDS, lambda: self._read(scope))
        return found

    def gpu(self, gpu_id: str, scope: Scope) -> GpuNow:
        """Return one GPU.

        Raises:
            Rejected(not_found): There is none, or it is out of scope.
        """
        for gpu in self.read(scope).gpus:
            if gpu.gpu_id == gpu_id:
                return gpu
        raise not_found("GPU", gpu_id)

    def _read(self, scope: Scope) -> FleetNow:
        now_ms = self._clock.now_ms()
        expected = self._inventory.expected(EntityKind.GPU, Filters(), scope)
        metrics = [metric for metric in self._metrics if scope.shows(metric.name)]
        newest = self._inventory.read(compile_newest(metrics, now_ms, scope)).to_pylist()
        progress = progress_of(self._inventory.progress(scope), expected, now_ms)
        rows = self._with_last_rows(expected.to_pylist(), newest, now_ms, scope)
        gpus = gpus_of(rows, newest, metrics, now_ms)
        return FleetNow(tuple(gpus), progress, now_ms, coverage_now(expected, newest, now_ms))

    def _with_last_rows(self, expected: list[_Row], newest: list[_Row], now_ms: int, scope: Scope) -> list[_Row]:
        """Return expected rows of which those that fell silent lately say when, to the second.

        `entities` is told once a minute. Of a fleet that is silent as a whole it has to do.
        """
        told = {_key(row) for row in newest}
        silent = {
            _key(row)
            for row in expected
            if row["end_ms"] > now_ms and _key(row) not in told and now_ms - (row["last_seen_ms"] or 0) < LAST_ROW_MS
        }
        if not silent or len(silent) > LAST_ROWS_MAXIMUM:
            return expected

        def read() -> dict[tuple[str, ...], int]:
            found = self._inventory.read(compile_last_rows(silent, now_ms, scope)).to_pylist()
            return {_key(row): row["last_ms"] for row in found}

        last: dict[tuple[str, ...], int] = self._inventory.remember(
            ("last rows", scope, frozenset(silent)), LAST_ROW_SECONDS, read
        )
        return [row | {"last_seen_ms": max(row["last_seen_ms"] or 0, last.get(_key(row), 0))} for row in expected]


def compile_last_rows(gpus: Collection[tuple[str, ...]], now_ms: int, scope: Scope) -> Statement:
    """Return the statement for the time of the newest row of some GPUs, of which none has come for a minute."""
    parameters = Parameters()
    key = ["tenant_id", "cluster_id", "host_id", "entity"]
    named = zip(key, map(frozenset, zip(*gpus, strict=True)), strict=True)
    bounds = raw_bounds(Span(now_ms - LAST_ROW_MS - NEWEST_MS, now_ms + AHEAD_MS), parameters)
    where = [*bounds, "part = ''", *parameters.among(named)]
    columns = [*key, "toUnixTimestamp64Milli(max(event_time)) AS last_ms"]
    rows = ScopedTables(scope, parameters).table("gpu_1s", columns, where, tail=[f"GROUP BY {', '.join(key)}"])
    return Statement(rows[1:-1], parameters.values())


def compile_newest(metrics: Sequence[Metric], now_ms: int, scope: Scope) -> Statement:
    """Return the statement for the newest row and values of each GPU in the last minute."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    shown = {metric.name: tables.shown("gpu_1s", metric.name) for metric in metrics}
    key = ["tenant_id", "cluster_id", "host_id", "entity"]
    slot = "intDiv(toUnixTimestamp64Milli(event_time), greatest(interval_ms, 1))"
    within = f"toUnixTimestamp64Milli(event_time) < {parameters.bind(now_ms - GRACE_MS, 'Int64')}"
    columns = [
        *key,
        "toUnixTimestamp64Milli(max(event_time)) AS newest_ms",
        f"toInt64(uniqExactIf({slot}, {within})) AS slots",
        *(f"argMax({owner}, event_time) AS newest_{owner}" for owner in _OWNERS),
        *(f"toFloat64(argMax({column}, event_time)) AS {quoted(name)}" for name, column in shown.items()),
    ]
    bounds = raw_bounds(Span(now_ms - NEWEST_MS, now_ms + AHEAD_MS), parameters)
    rows = tables.table("gpu_1s", columns, [*bounds, "part = ''"], tail=[f"GROUP BY {', '.join(key)}"])
    return Statement(rows[1:-1], parameters.values())


def gpus_of(expected: list[_Row], newest: list[_Row], metrics: Sequence[Metric], now_ms: int) -> list[GpuNow]:
    """Join what is expected now with what came in the last minute."""
    known = {_key(row): row for row in newest}
    owned = {_key(row): row for row in expected if row["end_ms"] > now_ms}
    rows = [(known.get(key), row) for key, row in owned.items()]
    rows += [
        (row, row | {"rack": "", "gpu_model": "", "gpu_index": ""}) for key, row in known.items() if key not in owned
    ]
    gpus = (_gpu(fresh, row, metrics, now_ms) for fresh, row in rows)
    return sorted(gpus, key=lambda gpu: (gpu.tenant_id, gpu.cluster_id, gpu.host_id, gpu.index or 0, gpu.gpu_id))


def coverage_now(expected: Any, newest: list[_Row], now_ms: int) -> Coverage:
    """Return how much of the newest minute that is due is stored, over GPUs as a whole.

    Of a GPU that no list knows yet just what it has is expected.
    """
    span = Span(now_ms - NEWEST_MS, now_ms - GRACE_MS)
    held = {"\0".join([*_key(row), ""]): row["slots"] for row in newest}
    stretches = {key: one for key, one in stretches_of(expected, span, span.to_ms).items() if key.endswith("\0")}
    wanted = {key: one.slots for key, one in stretches.items()}
    wanted |= {key: slots for key, slots in held.items() if key not in wanted}
    stored = (min(held.get(key, 0), slots) for key, slots in wanted.items())
    return Coverage(sum(wanted.values()), sum(stored), gaps=None)


def status_of(last_seen_ms: int | None, now_ms: int, cadence_ms: int = 1000) -> Status:
    """Return the status that the age of the newest row means; three rows may be missing, and 30 s."""
    if not last_seen_ms:
        return Status.UNKNOWN
    age_ms = now_ms - last_seen_ms
    if age_ms <= max(REPORTING_MS, REPORTING_SLOTS * cadence_ms):
        return Status.REPORTING
    return Status.SILENT if age_ms <= SILENT_MS else Status.LOST


def summarise(gpus: Iterable[GpuNow]) -> Summary:
    """Sum up some GPUs."""
    items = list(gpus)
    live = [gpu for gpu in items if gpu.status is Status.REPORTING]
    power = [watts for gpu in live if (watts := gpu.values.get(POWER)) is not None]
    busy = [ratio for gpu in live if (ratio := gpu.values.get(UTILIZATION)) is not None]
    warm = [gpu for gpu in live if gpu.values.get(TEMPERATURE) is not None]
    counted = Counter(gpu.status for gpu in items)
    return Summary(
        counts={status: counted[status] for status in Status},
        hosts=len({(gpu.tenant_id, gpu.cluster_id, gpu.host_id) for gpu in items}),
        clusters=len({(gpu.tenant_id, gpu.cluster_id) for gpu in items}),
        power_watts=float(np.sum(power)) if power else None,
        utilization_ratio=float(np.mean(busy)) if busy else None,
        hottest=max(warm, key=lambda gpu: gpu.values[TEMPERATURE] or 0.0, default=None),
    )


def grouped(gpus: Iterable[GpuNow], field: str) -> dict[tuple[str, str], list[GpuNow]]:
    """Group GPUs by (tenant, value of a field), in their order."""
    groups: dict[tuple[str, str], list[GpuNow]] = defaultdict(list)
    for gpu in gpus:
        groups[gpu.tenant_id, getattr(gpu, field)].append(gpu)
    return dict(groups)


def not_found(what: str, name: str) -> Rejected:
    """Return the refusal for what is not there and for what is out of scope alike."""
    return Rejected("not_found", f"there is no {what} {name[:100]!r} that you may see", "check the id and your grant")


def _gpu(fresh: _Row | None, row: _Row, metrics: Sequence[Metric], now_ms: int) -> GpuNow:
    seen = [ms for ms in (fresh and fresh["newest_ms"], row.get("last_seen_ms")) if ms]
    last_seen_ms = max(seen, default=None)
    owner = fresh or {}
    index = row["gpu_index"] or ""
    return GpuNow(
        tenant_id=row["tenant_id"],
        cluster_id=row["cluster_id"],
        rack=row["rack"],
        host_id=row["host_id"],
        gpu_id=row["entity"],
        index=int(index) if index.isdecimal() else None,
        gpu_model=row["gpu_model"],
        **{name: owner.get(f"newest_{name}") or "" for name in _OWNERS},
        status=status_of(last_seen_ms, now_ms, row.get("cadence_ms") or 1000),
        last_seen_ms=last_seen_ms,
        values={metric.name: _physical(metric, owner.get(metric.name)) for metric in metrics},
    )


def _physical(metric: Metric, stored: float | None) -> float | None:
    return None if stored is None else float(physical_array(metric, np.array([stored]))[0])


def _key(row: _Row) -> tuple[str, ...]:
    return (row["tenant_id"], row["cluster_id"], row["host_id"], row["entity"])
