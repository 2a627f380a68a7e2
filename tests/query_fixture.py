"""Fill a real store with rows, and with 30 s rollups by the most literal reading of the definitions."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa

from secondsight.access.identity import Role
from secondsight.access.scope import Scope
from secondsight.catalog.load import Catalog, load_catalog
from secondsight.catalog.metric import RollupSet
from secondsight.clock import ManualClock
from secondsight.model import EntityKind
from secondsight.process.counters import starts_at_zero
from secondsight.query.answer import Answer
from secondsight.query.request import Filters, QueryText
from secondsight.rollup.run import SEEN_SECONDS, Roller
from secondsight.store.schema import table

T0 = 1_700_000_400_000
"""A full ten minutes and a full half minute, epoch ms."""
WINDOW_MS = 30_000


@dataclass(frozen=True)
class Row:
    """One raw row; `values` are stored integers."""

    t: int
    entity: str
    values: Mapping[str, float]
    tenant: str = "t1"
    region: str = "r1"
    cluster: str = "c1"
    host: str = "h1"
    part: str = ""
    interval: int = 1000
    collector: str = "agent-h1"
    rank: int = 0
    boot: str = "boot-1"
    job: str = ""
    team: str = ""
    model: str = ""
    late_ms: int = 300
    quality: Mapping[str, int] = field(default_factory=dict)

    @property
    def series(self) -> tuple[str, ...]:
        return (self.tenant, self.cluster, self.host, self.entity, self.part, self.collector)


def scope_of(*tenants: str, **fields: Any) -> Scope:
    whole: dict[str, Any] = {"clusters": None, "teams": None, "jobs": None, "denied_metrics": frozenset()}
    return Scope(tenants or ("t1",), **(whole | fields), subject="token:test", role=Role.VIEWER)


def insert_rows(store: Any, rows: Iterable[Row], kind: EntityKind = EntityKind.GPU) -> None:
    items = list(rows)
    names = sorted({name for row in items for name in row.values})
    columns = {
        **_place(items),
        "event_time": _times([row.t for row in items]),
        "interval_ms": pa.array([row.interval for row in items], pa.uint32()),
        "ingest_time": _times([row.t + row.late_ms for row in items]),
        "collector_id": _texts([row.collector for row in items]),
        "source_rank": pa.array([row.rank for row in items], pa.uint8()),
        "boot_id": _texts([row.boot for row in items]),
        "version_hi": pa.array([len(row.values) for row in items], pa.uint64()),
        "version_lo": pa.array([0 for _ in items], pa.uint64()),
        **_owners(items),
        "quality": pa.array([list(row.quality.items()) for row in items], pa.map_(pa.string(), pa.uint8())),
        **_cells(kind, names, [row.values for row in items]),
    }
    store.insert(f"{kind.value}_1s", pa.table(columns))


def insert_rollups(
    store: Any, rows: Iterable[Row], through_ms: int | None = None, kind: EntityKind = EntityKind.GPU
) -> None:
    """Insert the 30 s rows of every window that ends by `through_ms`."""
    rolled = [item for item in roll_up(rows, kind) if through_ms is None or item["window"] + WINDOW_MS <= through_ms]
    if not rolled:
        return
    items = [item["row"] for item in rolled]
    names = sorted({name for item in rolled for name in item["members"]})
    spec = table(load_catalog(), f"{kind.value}_30s")
    maps = ("covered_other", "increase_other", "resets", "changes", "state_ms")
    columns = {
        **_place(items),
        "collector_id": _texts([row.collector for row in items]),
        "source_rank": pa.array([row.rank for row in items], pa.uint8()),
        "window_start": pa.array([item["window"] // 1000 for item in rolled], pa.timestamp("s", "UTC")),
        "first_event_time": _times([item["first"] for item in rolled]),
        "last_event_time": _times([item["last"] for item in rolled]),
        "interval_ms": pa.array([row.interval for row in items], pa.uint32()),
        **_owners(items),
        "samples": pa.array([item["samples"] for item in rolled], pa.uint32()),
        "covered_ms": pa.array([item["covered"] for item in rolled], pa.uint32()),
        "version": pa.array([item["covered"] for item in rolled], pa.uint64()),
        **{name: _counts([item[name] for item in rolled]) for name in maps},
        **{
            name: pa.array([item["members"].get(name) for item in rolled], _arrow_type(spec.column(name).type))
            for name in names
        },
    }
    store.insert(f"{kind.value}_30s", pa.table(columns))


def roll_up(rows: Iterable[Row], kind: EntityKind = EntityKind.GPU) -> list[dict[str, Any]]:
    """Return one item per series, owner and window, metric by metric and sample by sample."""
    catalog = load_catalog()
    by_series: dict[Any, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.t):
        by_series[row.series].append(row)
    items: dict[Any, dict[str, Any]] = {}
    for found in by_series.values():
        for row, covered in covers(found):
            _count_row(items, row, covered)
        for name in sorted({name for row in found for name in row.values}):
            carrying = [row for row in found if name in row.values]
            _roll_metric(items, catalog, name, carrying)
    return list(items.values())


def covers(rows: list[Row]) -> list[tuple[Row, int]]:
    """Return how long each sample of one series counts in its 30 s window."""
    ends = [row.t // WINDOW_MS * WINDOW_MS + WINDOW_MS for row in rows]
    following = [row.t for row in rows[1:]] + [10**15]
    return [
        (row, min(row.interval, after - row.t, end - row.t))
        for row, after, end in zip(rows, following, ends, strict=True)
    ]


def increases(catalog: Catalog, name: str, rows: list[Row]) -> list[tuple[Row, int, int, bool]]:
    """Return (later row, increase, milliseconds, reset) of every pair that is known."""
    metric = catalog.get(name)
    pairs = []
    for before, row in pairwise(rows):
        apart, value, older = row.t - before.t, row.values[name], before.values[name]
        if apart > 3_600_000:
            continue
        booted = row.boot != before.boot
        if booted and not starts_at_zero(metric):
            continue
        reset = not booted and value < older
        step = value if booted or reset else value - older
        if metric.step_maximum and step > metric.step_maximum / metric.resolution * (apart / 1000 + 1):
            continue
        pairs.append((row, int(step), apart, reset))
    return pairs


def _count_row(items: dict[Any, dict[str, Any]], row: Row, covered: int) -> None:
    item = items.setdefault(_item_key(row), _empty_item(row))
    item["samples"] += 1
    item["covered"] += covered
    item["first"] = min(item["first"], row.t)
    item["last"] = max(item["last"], row.t)


def _roll_metric(items: dict[Any, dict[str, Any]], catalog: Catalog, name: str, rows: list[Row]) -> None:
    metric = catalog.get(name)
    covered: dict[Any, int] = defaultdict(int)
    for row, weight in covers(rows):
        covered[_item_key(row)] += weight
        members = items[_item_key(row)]["members"]
        members[f"{name}_last"] = row.values[name]
        if metric.rollup in (RollupSet.LEVEL, RollupSet.DISTRIBUTION):
            _add_gauge(members, name, row.values[name], weight)
    for key, weight in covered.items():
        if weight != items[key]["covered"]:
            items[key]["covered_other"][name] = weight
    if metric.rollup is RollupSet.INCREASE:
        _add_increases(items, catalog, name, rows)
    if metric.rollup is RollupSet.STATE:
        _add_changes(items, name, rows)


def _add_changes(items: dict[Any, dict[str, Any]], name: str, rows: list[Row]) -> None:
    for before, row in pairwise(rows):
        if row.values[name] != before.values[name]:
            changes = items[_item_key(row)]["changes"]
            changes[name] = changes.get(name, 0) + 1


def _add_gauge(members: dict[str, Any], name: str, value: float, weight: int) -> None:
    members[f"{name}_sum"] = members.get(f"{name}_sum", 0) + value * weight
    members[f"{name}_min"] = min(members.get(f"{name}_min", value), value)
    members[f"{name}_max"] = max(members.get(f"{name}_max", value), value)


def _add_increases(items: dict[Any, dict[str, Any]], catalog: Catalog, name: str, rows: list[Row]) -> None:
    spans: dict[Any, int] = defaultdict(int)
    for row, step, apart, reset in increases(catalog, name, rows):
        item = items[_item_key(row)]
        item["members"][f"{name}_increase"] = item["members"].get(f"{name}_increase", 0) + step
        spans[_item_key(row)] += apart
        if reset:
            item["resets"][name] = item["resets"].get(name, 0) + 1
    for key, milliseconds in spans.items():
        if milliseconds != items[key]["covered"]:
            items[key]["increase_other"][name] = milliseconds


def _item_key(row: Row) -> tuple[Any, ...]:
    return (row.series, row.job, row.team, row.model, row.t // WINDOW_MS)


def _empty_item(row: Row) -> dict[str, Any]:
    maps = {name: {} for name in ("covered_other", "increase_other", "resets", "changes", "state_ms")}
    start = row.t // WINDOW_MS * WINDOW_MS
    return {
        "row": row,
        "window": start,
        "samples": 0,
        "covered": 0,
        "first": row.t,
        "last": row.t,
        "members": {},
        **maps,
    }


def insert_entity(
    store: Any, row: Row, from_ms: int, kind: str = "gpu", gpu_model: str = "H100", index: str = "0"
) -> None:
    store.insert(
        "entities",
        pa.table(
            {
                **_place([row]),
                "kind": _texts([kind]),
                "gpu_model": _texts([gpu_model]),
                "attributes": pa.array([[("index", index)]], pa.map_(pa.string(), pa.string())),
                "collector_id": _texts([row.collector]),
                "interval_ms": pa.array([row.interval], pa.uint32()),
                "from_time": _times([from_ms]),
                "last_seen": _times([row.t]),
                "version": pa.array([1], pa.uint64()),
            }
        ),
    )


def insert_histograms(
    store: Any, at: Row, metric: str, samples: list[tuple[int, list[int], float]], bounds: Any, start_ms: int = T0
) -> None:
    """Store (second after the start, counts by bucket, sum) of one histogram of a serving engine."""
    times = _times([start_ms + 1000 * second for second, _, _ in samples])
    of_all = {"collector_id": at.collector, "boot_id": at.boot, "kind": "inference", "metric": metric}
    store.insert(
        "histograms_1s",
        pa.table(
            {
                **_place([at] * len(samples)),
                **{name: _texts([text] * len(samples)) for name, text in of_all.items()},
                "event_time": times,
                "ingest_time": times,
                "interval_ms": pa.array([at.interval] * len(samples), pa.uint32()),
                "source_rank": pa.array([at.rank] * len(samples), pa.uint8()),
                "bounds": pa.array([list(bounds)] * len(samples), pa.list_(pa.float64())),
                "buckets": pa.array([list(counts) for _, counts, _ in samples], pa.list_(pa.uint64())),
                "sum": pa.array([total for _, _, total in samples], pa.float64()),
                "version_hi": pa.array([1] * len(samples), pa.uint64()),
                "version_lo": pa.array([0] * len(samples), pa.uint64()),
            }
        ),
    )


def insert_plan(store: Any, row: Row, from_ms: int, to_ms: int | None = None, kind: str = "gpu") -> None:
    """Put on record that the row's collector was to read its entities from then on."""
    store.insert(
        "plans",
        pa.table(
            {
                "tenant_id": _texts([row.tenant]),
                "cluster_id": _texts([row.cluster]),
                "host_id": _texts([row.host]),
                "collector_id": _texts([row.collector]),
                "kind": _texts([kind]),
                "interval_ms": pa.array([row.interval], pa.uint32()),
                "from_time": _times([from_ms]),
                "to_time": pa.array([to_ms], pa.timestamp("ms", "UTC")),
                "version": pa.array([1], pa.uint64()),
            }
        ),
    )


def insert_progress(
    store: Any, row: Row, newest_ms: int, rollup_through_ms: int, *, idle: bool = False, version: int = 1
) -> None:
    store.insert(
        "progress",
        pa.table(
            {
                "tenant_id": _texts([row.tenant]),
                "cluster_id": _texts([row.cluster]),
                "host_id": _texts([row.host]),
                "collector_id": _texts([row.collector]),
                "watermark": _times([newest_ms - 10_000]),
                "newest_event_time": _times([newest_ms]),
                "last_ingest_time": _times([newest_ms + 300]),
                "idle": pa.array([int(idle)], pa.uint8()),
                "rollup_through": pa.array([rollup_through_ms // 1000], pa.timestamp("s", "UTC")),
                "version": pa.array([version], pa.uint64()),
            }
        ),
    )


def insert_allocation(store: Any, row: Row, start_ms: int, end_ms: int | None = None) -> None:
    place = {name: column for name, column in _place([row]).items() if name != "region"}
    store.insert(
        "allocations",
        pa.table(
            {
                **place,
                **_owners([row]),
                "start_time": _times([start_ms]),
                "end_time": pa.array([end_ms], pa.timestamp("ms", "UTC")),
                "version": pa.array([1], pa.uint32()),
            }
        ),
    )


def insert_seen(store: Any, rows: Iterable[Row], from_ms: int, to_ms: int) -> None:
    """Tell of every series that it is an entity with an owner, and of every host that all of it is here."""
    items = list(rows)
    for row in {row.series: row for row in items}.values():
        insert_entity(store, row, from_ms)
        insert_allocation(store, row, from_ms)
    for row in {row.host: row for row in items}.values():
        insert_progress(store, row, to_ms - 1000, to_ms)


def roll_coarse(store: Any, now_ms: int, steps: int) -> None:
    """Let the rollups of 5 min and more be made of those of 30 s."""
    clock = ManualClock(now_ms)
    roller = Roller(store, load_catalog(), clock)
    for _ in range(steps):
        roller.step()
        clock.move(SEEN_SECONDS)


def asked(metric: str, from_ms: int, to_ms: int, **fields: Any) -> QueryText:
    """Return a question; of its fields, those that filter are told apart."""
    filters = {name: value for name, value in fields.items() if name in Filters.__slots__}
    rest = {name: value for name, value in fields.items() if name not in filters}
    return QueryText(metric, filters, **({"from_": str(from_ms), "to": str(to_ms)} | rest))


def series_of(answer: Answer) -> list[Any]:
    """Return the series of an answer with figures to 12 digits, in one order."""
    return sorted(
        (sorted(one.labels.items()), one.times_ms.tolist(), [f"{value:.12g}" for value in one.values.tolist()])
        for one in answer.series
    )


def insert_rewrite(
    store: Any, table_name: str, from_ms: int, to_ms: int, tenant: str = "t1", cluster: str = "c1"
) -> None:
    _insert_rewrites(store, table_name, [(from_ms, to_ms)], tenant, cluster)


def insert_rewrites(store: Any, table_name: str, windows_ms: Iterable[int], tenant: str = "t1") -> None:
    """Note one rewrite per 30 s window, by its start."""
    _insert_rewrites(store, table_name, [(start, start + WINDOW_MS) for start in windows_ms], tenant, "c1")


def _insert_rewrites(store: Any, table_name: str, ranges_ms: list[tuple[int, int]], tenant: str, cluster: str) -> None:
    store.insert(
        "rewrites",
        pa.table(
            {
                "table_name": _texts([table_name] * len(ranges_ms)),
                "tenant_id": _texts([tenant] * len(ranges_ms)),
                "cluster_id": _texts([cluster] * len(ranges_ms)),
                "from_time": _times([start for start, _ in ranges_ms]),
                "to_time": _times([end for _, end in ranges_ms]),
                "written_at": _times([end for _, end in ranges_ms]),
            }
        ),
    )


def _place(rows: list[Row]) -> dict[str, Any]:
    names = {
        "tenant_id": "tenant",
        "region": "region",
        "cluster_id": "cluster",
        "host_id": "host",
        "entity": "entity",
        "part": "part",
    }
    return {column: _texts([getattr(row, name) for row in rows]) for column, name in names.items()}


def _owners(rows: list[Row]) -> dict[str, Any]:
    names = {"job_id": "job", "owner_team": "team", "model_id": "model"}
    return {column: _texts([getattr(row, name) for row in rows]) for column, name in names.items()}


def _cells(kind: EntityKind, names: list[str], values: list[Mapping[str, float]]) -> dict[str, Any]:
    spec = table(load_catalog(), f"{kind.value}_1s")
    return {name: pa.array([row.get(name) for row in values], _arrow_type(spec.column(name).type)) for name in names}


def _arrow_type(clickhouse_type: str) -> Any:
    plain = clickhouse_type.removeprefix("Nullable(").removesuffix(")").lower()
    return {"float64": pa.float64()}.get(plain) or getattr(pa, plain)()


def _texts(values: list[str]) -> Any:
    return pa.array(values, pa.string())


def _times(values: list[int]) -> Any:
    return pa.array(values, pa.timestamp("ms", "UTC"))


def _counts(values: list[Mapping[str, int]]) -> Any:
    return pa.array([list(value.items()) for value in values], pa.map_(pa.string(), pa.uint32()))
