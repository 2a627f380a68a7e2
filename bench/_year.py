"""Turn a store that holds 15 minutes of 32 simulated hosts into one that is shaped like a year of a fleet.

The platform is stopped; its store is opened here. Rows that its own stages made of what the simulator sent are put down
again and again, under other hosts and times: 1 s rows for an hour, 30 s for a day, 5 min for a day, 1 h and 1 d for
three months, and those of clusters. An hour of 1 s rows of one cluster, from 30 days ago, is in the lake alone. Which
host follows which template changes with every hour. An hour is twelve times its 5 minutes and a day 288 times, so
counts, sums and sketches weigh what they would. A tenth of the newest rows is there twice, and not merged.
"""

import hashlib
import resource
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from threading import Event

import pyarrow as pa

import _fleet
from secondsight.access.metadata import open_metadata
from secondsight.access.retention import raise_floor
from secondsight.catalog.load import Catalog, load_catalog
from secondsight.catalog.members import Merge, keeps_sketch, members
from secondsight.clock import ManualClock, SystemClock
from secondsight.contracts import Store
from secondsight.lake.config import LakeConfig
from secondsight.lake.serve import stage_of
from secondsight.lake.tables import open_lake
from secondsight.model import EntityKind
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.blocks import newest_blocks
from secondsight.store.chdb import ChdbStore
from secondsight.store.clusters import pooled_members
from secondsight.store.coarse import LEVELS, MAPS, sketch_columns
from secondsight.store.spec import quoted

HOUR_S, DAY_S, STEP_S = 3_600, 86_400, 300
HOSTS_OF_CLUSTER = 32
AT_ONCE = 24
COLD_DAYS = 30
KIND = EntityKind.GPU
SOURCES = ("gpu_1s", "gpu_30s", "gpu_5m", "gpu_cluster_5m", "entities", "progress")
KEPT = frozenset({"schema_version", *(f"old_{name}" for name in SOURCES)})
SETTINGS = {
    "max_execution_time": 900,
    "max_insert_threads": 2,
    "max_partitions_per_insert_block": 1000,
    "max_threads": 2,
    "prefer_column_name_to_alias": 1,
    "query_plan_join_swap_table": "false",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """How much of each resolution there is, all of it ending at the newest sample."""

    hosts: int
    raw_seconds: int
    fine_seconds: int
    days: int


YEAR = Shape(hosts=125, raw_seconds=HOUR_S, fine_seconds=DAY_S, days=90)
QUICK = Shape(hosts=32, raw_seconds=900, fine_seconds=2 * HOUR_S, days=30)


@dataclass(frozen=True, slots=True)
class Filled:
    """What was filled, in epoch ms: where its newest rows end, and where the hour of the lake begins."""

    end_ms: int
    cold_ms: int


def kept_folder(shape: Shape) -> Path:
    """Return where a filled folder of a shape is kept for the next run; another program or catalogue has another."""
    here = Path(__file__).parent
    sources = [(here / name).read_bytes() for name in ("_year.py", "_fleet.py")]
    facts = [repr(shape), version("chdb-core"), repr(load_catalog().metrics)]
    digest = hashlib.blake2b(b"".join([*sources, *map(str.encode, facts)]), digest_size=8).hexdigest()
    return here.parent / ".build" / "bench-query" / digest


def keep(folder: Path, filled: Filled, kept: Path) -> None:
    """Keep a filled folder of a stopped platform, and no other one of this benchmark."""
    shutil.rmtree(kept.parent, ignore_errors=True)
    waiting = kept.with_suffix(".new")
    _copy(folder, waiting)
    (waiting / "filled").write_text(f"{filled.end_ms} {filled.cold_ms}")
    waiting.rename(kept)


def take(kept: Path, folder: Path) -> Filled:
    """Put a kept folder down where a platform can run on it, and say what is in it."""
    _copy(kept, folder)
    end_ms, cold_ms = map(int, (kept / "filled").read_text().split())
    return Filled(end_ms, cold_ms)


def _copy(source: Path, target: Path) -> None:
    """Copy a data folder; parts of tables and files of the lake never change, and are linked."""

    def put(from_: str, to: str) -> None:
        path = Path(from_)
        is_fixed = path.suffix in (".bin", ".cmrk4", ".cmrk3", ".cmrk2", ".mrk4", ".mrk3", ".parquet", ".cidx")
        if is_fixed:
            Path(to).hardlink_to(path)
        else:
            shutil.copy2(path, to)

    shutil.copytree(source, target, copy_function=put, symlinks=True, dirs_exist_ok=True)


def grow(data: Path, shape: Shape) -> Filled:
    """Fill the store and the lake of a stopped platform.

    Args:
        data: Its folder, whose store holds the templates.
        shape: What it is to hold.
    """
    clock = SystemClock()
    store = ChdbStore(data / "hot", clock=clock, deadline_seconds=900)
    try:
        made = _Year(store, load_catalog(), shape, clock.now_ms() // 1000 // STEP_S * STEP_S)
        cold_s = made.cold_s
        steps = (made.begin, made.cold, lambda: _to_lake(store, data, cold_s), made.raw, made.fine, made.coarse)
        for step in (*steps, made.clusters, made.known):
            began, used = time.monotonic(), _cpu_seconds()
            step()
            name, took = getattr(step, "__name__", "lake"), time.monotonic() - began
            print(f"made: {name}, {took:.0f} s, {_cpu_seconds() - used:.0f} s of CPU", flush=True)
        print(made.summary(), flush=True)
        shutil.rmtree(data / "log")  # the next processor would read the end of the templates again
        return Filled(made.end_s * 1000, cold_s * 1000)
    finally:
        store.close()


def _to_lake(store: Store, data: Path, cold_s: int) -> None:
    """Have the lake's own stage copy the hour that is there, and take it out of the hot store."""
    end_ms = (cold_s + HOUR_S) * 1000
    config = LakeConfig(data, settle_seconds=0, recheck_seconds=0.001, compact_hours=0, tables=("gpu_1s",))
    lake, metadata = open_lake(config.catalog, data), open_metadata(str(data / "metadata.sqlite"))
    try:
        copied = stage_of(config, store, lake, ManualClock(end_ms + DAY_S * 1000), SelfMetrics()).step(Event())
        if not copied:
            raise SystemExit("nothing came into the lake")
        raise_floor(metadata, "gpu_1s", end_ms + DAY_S * 1000, end_ms)
    finally:
        metadata.dispose()
        lake.close()
    store.query("TRUNCATE TABLE gpu_1s")


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class _Year:
    """Puts template rows down again; times in epoch s."""

    def __init__(self, store: Store, catalog: Catalog, shape: Shape, end_s: int) -> None:
        self._store = store
        self._catalog = catalog
        self._shape = shape
        self.end_s = end_s
        at = "toInt64(toUnixTimestamp(window_start))"
        whole = store.query(f"SELECT min({at}) AS low, max({at}) AS high FROM gpu_5m WHERE samples = 300").to_pylist()
        self._begin_s = int(whole[0]["low"])
        self._windows = (int(whole[0]["high"]) - self._begin_s) // STEP_S + 1
        self._tile_s = self._windows * STEP_S
        self._templates: list[str] = []
        self.cold_s = (end_s - min(COLD_DAYS, shape.days - 1) * DAY_S) // HOUR_S * HOUR_S
        self._hosts = shape.hosts

    def begin(self) -> None:
        """Put templates aside, and empty all tables."""
        for name in SOURCES:
            self._run(f"CREATE TABLE old_{name} AS {name}")
            self._run(f"INSERT INTO old_{name} SELECT * FROM {name} FINAL")
        known = self._store.query("SELECT DISTINCT entity FROM old_gpu_5m WHERE part = '' ORDER BY entity")
        self._templates = known["entity"].to_pylist()
        self._run(
            "CREATE TABLE grown (template String, start Int64, cluster String, host String, gpu String) ENGINE = Memory"
        )
        listed = "SELECT name FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree'"
        for row in self._store.query(listed).to_pylist():
            if row["name"] not in KEPT:
                self._run(f"TRUNCATE TABLE {quoted(row['name'])}")

    def cold(self) -> None:
        """Put down an hour of 1 s rows of the first cluster, long ago."""
        self._hosts = min(HOSTS_OF_CLUSTER, self._shape.hosts)
        self._seconds("gpu_1s", self.cold_s, self.cold_s + HOUR_S)
        self._hosts = self._shape.hosts

    def raw(self) -> None:
        """Put down 1 s rows, and a tenth of the newest ten minutes once more."""
        self._seconds("gpu_1s", self.end_s - self._shape.raw_seconds, self.end_s)
        self._again("gpu_1s", "event_time", 600)

    def fine(self) -> None:
        """Put down 30 s rows, and a tenth of the newest hour once more."""
        names = ("window_start", "first_event_time", "last_event_time")
        replaced = [f"{name} + g.start - {self._begin_s} AS {name}" for name in names]
        from_s = self.end_s - self._shape.fine_seconds
        self._tiled("gpu_30s", replaced, "toUnixTimestamp(t.window_start)", from_s, self.end_s)
        self._again("gpu_30s", "window_start", HOUR_S)

    def coarse(self) -> None:
        """Put down rows of 5 min, 1 h and 1 d."""
        for name, width_s in (("gpu_5m", STEP_S), ("gpu_1h", HOUR_S), ("gpu_1d", DAY_S)):
            replaced = [*_window("g.start", width_s), *self._widened(width_s // STEP_S)]
            where = f"toUnixTimestamp(t.window_start) = {self._template_window('g.start', width_s)}"
            for starts in _some(self._starts(width_s)):
                self._put(name, "gpu_5m", replaced, where, starts, width_s)

    def clusters(self) -> None:
        """Put down rows of clusters."""
        for name, width_s in (("gpu_cluster_5m", STEP_S), ("gpu_cluster_1h", HOUR_S), ("gpu_cluster_1d", DAY_S)):
            factor = width_s // STEP_S
            replaced = [*_window("s.start", width_s), *self._widened(factor, pooled=True), "g.cluster AS cluster_id"]
            where = f"toUnixTimestamp(t.window_start) = {self._template_window('s.start', width_s)}"
            clusters = "(SELECT DISTINCT cluster FROM grown) AS g"
            for starts in _some(self._starts(width_s)):
                self._run(
                    f"INSERT INTO {name} SELECT t.* REPLACE ({', '.join(replaced)}) FROM old_gpu_cluster_5m AS t "
                    f"CROSS JOIN {_listed(starts)} AS s CROSS JOIN {clusters} WHERE {where}"
                )

    def known(self) -> None:
        """Write what else the platform keeps: entities, progress, duplicates, and what rollups were made of."""
        first_s, end_s = self.end_s - self._shape.days * DAY_S, self.end_s
        stay = [f"{_time(first_s)} AS from_time", f"{_time(end_s)} AS last_seen", "NULL AS to_time"]
        self._put("entities", "entities", stay, "t.kind = 'gpu'", [0], STEP_S)
        seen = ("watermark", "newest_event_time", "last_ingest_time")
        replaced = [f"{_time(end_s - 1)} AS {name}" for name in seen]
        replaced += [f"toDateTime({end_s}, 'UTC') AS {name}" for name in ("rollup_through", "begun_through")]
        replaced += ["g.cluster AS cluster_id", "g.host AS host_id", "g.host AS collector_id"]
        self._run(
            f"INSERT INTO progress SELECT t.* REPLACE ({', '.join(replaced)}) "
            "FROM (SELECT * FROM old_progress LIMIT 1) AS t CROSS JOIN (SELECT DISTINCT cluster, host FROM grown) AS g"
        )
        tenant = "(SELECT any(tenant_id) FROM old_progress)"
        for name, span in (("gpu_1s", 600), ("gpu_30s", HOUR_S)):
            reach = f"{_time(end_s - span)}, {_time(end_s)}, now64(3, 'UTC')"
            self._run(f"INSERT INTO rewrites SELECT DISTINCT '{name}', {tenant}, cluster, {reach} FROM grown")
        for level in LEVELS:
            width_s = level.width_ms // 1000
            through = f"toDateTime({end_s // width_s * width_s}, 'UTC'), 1"
            start = f"toStartOfInterval(window_start, INTERVAL {width_s} SECOND, 'UTC')"
            source = f"count(), sumWithOverflow(version), now64(3, 'UTC'), 1 FROM gpu_{level.source} FINAL"
            for name in (f"gpu_{level.name}", f"gpu_cluster_{level.name}"):
                into = f"INSERT INTO rollups_through SELECT DISTINCT '{name}', {tenant}, cluster"
                self._run(f"{into}, {through} FROM grown")
                columns = f"'{name}', tenant_id, cluster_id, {start} AS start, {source}"
                self._run(f"INSERT INTO rollups_made SELECT {columns} GROUP BY tenant_id, cluster_id, start")
        blocks = newest_blocks(self._store)
        for level in LEVELS:
            self._run(f"INSERT INTO rollups_seen VALUES ('gpu_{level.name}', {blocks[f'gpu_{level.source}']}, 1)")
        for name in (*KEPT - {"schema_version"}, "grown"):
            self._run(f"DROP TABLE {name}")

    def summary(self) -> str:
        """Say what there is."""
        rows = self._store.query(
            "SELECT table, sum(rows) AS n, count() AS parts, sum(bytes_on_disk) AS bytes FROM system.parts "
            "WHERE active AND database = currentDatabase() AND table LIKE 'gpu_%' GROUP BY table ORDER BY table"
        ).to_pylist()
        texts = (
            f"{row['table']} {row['n']:,} rows, {row['parts']} parts, {row['bytes'] / 1e6:,.0f} MB" for row in rows
        )
        return f"data: {'; '.join(texts)}"

    def _starts(self, width_s: int) -> list[int]:
        """Return the starts of the windows of a width that there are to be."""
        reach_s = self._shape.fine_seconds if width_s == STEP_S else self._shape.days * DAY_S
        last = self.end_s // width_s * width_s
        return list(range(last - reach_s // width_s * width_s, last, width_s))

    def _template_window(self, start: str, width_s: int) -> str:
        """Return the expression for the start of the template window that a window follows."""
        return f"{self._begin_s} + intDiv({start}, {width_s}) % {self._windows} * {STEP_S}"

    def _seconds(self, table: str, from_s: int, to_s: int) -> None:
        replaced = [f"{name} + g.start - {self._begin_s} AS {name}" for name in ("event_time", "ingest_time")]
        self._tiled(table, replaced, "toUnixTimestamp(t.event_time)", from_s, to_s)

    def _tiled(self, table: str, replaced: Sequence[str], at: str, from_s: int, to_s: int) -> None:
        """Put down all template rows again and again in [from, to)."""
        inside = f"{at} >= {self._begin_s} AND {at} < {self._begin_s + self._tile_s}"
        ends = f"{at} + g.start - {self._begin_s} < {to_s}"
        for start in range(from_s, to_s, self._tile_s):
            self._put(table, table, replaced, f"{inside} AND {ends}", [start], HOUR_S)

    def _put(
        self, table: str, source: str, replaced: Sequence[str], where: str, starts: Sequence[int], width_s: int
    ) -> None:
        """Put down the rows of the templates that every GPU follows in its turn, at some starts."""
        own = ["g.cluster AS cluster_id", "g.host AS host_id", "g.gpu AS entity", "g.host AS collector_id"]
        self._grow(starts, width_s)
        self._run(
            f"INSERT INTO {table} SELECT t.* REPLACE ({', '.join([*own, *replaced])}) FROM old_{source} AS t "
            f"INNER JOIN grown AS g ON g.template = t.entity WHERE {where}"
        )

    def _grow(self, starts: Sequence[int], width_s: int) -> None:
        """Write which template each GPU follows at some starts."""
        rows = [
            (self._templates[(number * 7 + start // width_s * 13) % len(self._templates)], start, number)
            for start in starts
            for number in range(self._hosts * _fleet.GPUS)
        ]
        hosts = [number // _fleet.GPUS for _, _, number in rows]
        columns = {
            "template": pa.array([template for template, _, _ in rows]),
            "start": pa.array([start for _, start, _ in rows], pa.int64()),
            "cluster": pa.array([f"bench-{host // HOSTS_OF_CLUSTER}" for host in hosts]),
            "host": pa.array([_fleet.host_name(host) for host in hosts]),
            "gpu": pa.array([_fleet.gpu_id(number // _fleet.GPUS, number % _fleet.GPUS) for _, _, number in rows]),
        }
        self._run("TRUNCATE TABLE grown")
        self._store.insert("grown", pa.table(columns))

    def _again(self, table: str, column: str, seconds: int) -> None:
        """Put a tenth of the newest rows down a second time, under a higher version."""
        where = f"toUnixTimestamp({column}) >= {self.end_s - seconds} AND cityHash64(entity, {column}) % 10 = 0"
        self._run(f"INSERT INTO {table} SELECT * REPLACE (version + 1 AS version) FROM {table} WHERE {where}")

    def _widened(self, factor: int, *, pooled: bool = False) -> list[str]:
        """Return the columns that add up over time, so many times as large."""
        if factor == 1:
            return []
        whole = ("samples", "covered_ms", *(["expected_ms"] if pooled else []))
        sums = [_times(name, f"t.{name} * {factor}") for name in whole]
        sums += [_times(name, f"mapApply((k, v) -> (k, v * {factor}), t.{name})") for name in MAPS]
        for metric in self._catalog.scalars(KIND):
            kept = pooled_members(metric) if pooled else members(metric)
            names = [member.column(metric) for member in kept if member.merge is Merge.SUM]
            stored = [name for name in names if name.endswith(("_sum", "_increase"))]
            sums += [_times(name, f"t.{name} * {factor}") for name in stored]
            if keeps_sketch(metric):
                weights = sketch_columns(metric)[1]
                sums.append(_times(weights, f"arrayMap(x -> x * {factor}, t.{weights})"))
        return sums

    def _run(self, sql: str) -> None:
        self._store.query(sql, None, SETTINGS)


def _some(starts: Sequence[int]) -> Iterator[Sequence[int]]:
    return (starts[first : first + AT_ONCE] for first in range(0, len(starts), AT_ONCE))


def _listed(starts: Sequence[int]) -> str:
    return f"(SELECT toInt64(arrayJoin({list(starts)})) AS start)"


def _window(start: str, width_s: int) -> list[str]:
    first = f"toDateTime64({start}, 3, 'UTC')"
    return [
        f"toDateTime({start}, 'UTC') AS window_start",
        f"{first} AS first_event_time",
        f"{first} + {width_s - 1} AS last_event_time",
    ]


def _time(at_s: int) -> str:
    return f"toDateTime64({at_s}, 3, 'UTC')"


def _times(name: str, expression: str) -> str:
    return f"CAST({expression}, toTypeName(t.{name})) AS {name}"
