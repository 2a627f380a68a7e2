"""Two tenants' GPUs over the turn of a year: a hot store, a lake that was filled from it, and questions to both."""

from dataclasses import replace
from pathlib import Path

from query_fixture import (
    Row,
    asked,
    insert_rewrite,
    insert_rollups,
    insert_rows,
    insert_seen,
    roll_coarse,
    scope_of,
    series_of,
)
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.lake.cold_config import ColdConfig
from secondsight.lake.cold_pool import ColdPool
from secondsight.lake.config import CatalogConfig
from secondsight.lake.export import Means, Pace, TableExporter
from secondsight.lake.layout import lake_tables
from secondsight.lake.rewrite import Bound
from secondsight.lake.tables import open_lake
from secondsight.mapping.grid import GRID_BOUNDS
from secondsight.model import EntityKind
from secondsight.query.cold import ColdTier
from secondsight.query.cold_gaps import TieredGaps
from secondsight.query.gapreader import GapReader
from secondsight.query.inventory import Inventory
from secondsight.query.plan import Span
from secondsight.query.request import Filters, parse_query
from secondsight.query.run import QueryRunner
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.blocks import newest_blocks
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate
from secondsight.store.schema import tables
from test_query_histograms import T0, put

CATALOG = load_catalog()
EDGE = 1_704_067_200_000
"""A new year: partitions of seconds, of rollups of 5 min and 1 h, and of 1 d meet here."""
FROM, END = EDGE - 3_600_000, EDGE + 3_600_000
NOW = END + 20 * 86_400_000
GAUGE, USED, COUNTER, STATE, MASK = (
    "gpu_utilization_ratio",
    "gpu_memory_used_bytes",
    "gpu_energy_joules_total",
    "gpu_performance_state",
    "gpu_clock_event_reasons",
)
PLACES = (
    ("t1", "c1", "h1", "GPU-a"),
    ("t1", "c1", "h1", "GPU-b"),
    ("t1", "c2", "h2", "GPU-c"),
    ("t2", "c1", "h9", "GPU-z"),
)


def rows() -> list[Row]:
    """Rows every 10 s, every second around the edge; resets, gaps, an owner that changes, one metric now and then."""
    made = []
    for number, (tenant, cluster, host, entity) in enumerate(PLACES):
        second = 0
        while FROM + 1000 * second < END:
            fast = 3_540 <= second < 3_660
            missing = 1_000 <= second < 1_400 or (number == 1 and 3_590 <= second < 3_650)
            values = {
                GAUGE: (second * 7 + number) % 10_000,
                USED: (80 << 30) + second,
                COUNTER: (1000 * second % 5_000_000 + number) * (1 if number != 2 else 1 << 41),
            }
            values |= {STATE: second // 1000 % 3} if second % 600 < 300 else {}
            values |= {MASK: (1 << 63) + second // 700}
            if not missing:
                made.append(
                    Row(
                        FROM + 1000 * second,
                        entity,
                        values,
                        tenant=tenant,
                        cluster=cluster,
                        host=host,
                        collector=f"agent-{host}",
                        interval=1000 if fast else 10_000,
                        boot="boot-1" if second < 5_000 else "boot-2",
                        team="red" if second < 3_600 else "blue",
                        late_ms=300 if second % 500 and not 3_580 <= second < 3_620 else 90_000,
                    )
                )
            second += 1 if fast else 10
    return made


def fill(store) -> None:
    """Write rows, their rollups of every resolution, and what is told of entities; some rows come twice."""
    migrate(store, CATALOG)
    mine = rows()
    insert_rows(store, mine[::50])
    insert_rows(store, mine)
    insert_rollups(store, mine, END)
    for tenant, cluster in {(row.tenant, row.cluster) for row in mine}:
        insert_rewrite(store, "gpu_1s", FROM, END, tenant, cluster)
    insert_seen(store, mine, FROM, END)
    roll_coarse(store, NOW, 5)
    put_histograms(store)


def put_histograms(store) -> None:
    """Write buckets of a serving engine every 15 s: a reset now and then, a boot, and nothing around the edge."""
    samples = []
    for number in range((END - FROM) // 15_000):
        if not 238 <= number < 243:
            counts = (number % 100, 3 * (number % 100), number % 100 // 2, number % 7)
            samples.append(((FROM - T0) // 1000 + 15 * number, counts, 0.5 * sum(counts)))
    coarser = [
        (
            second,
            [counts[0] + counts[1] if place == 81 + number // 8 % 3 else 0 for place in range(len(GRID_BOUNDS) + 1)],
            total,
        )
        for number, (second, counts, total) in enumerate(samples)
    ]
    put(store, "t1", coarser, host="h3", bounds=GRID_BOUNDS)
    put(store, "t1", samples[:300])
    put(store, "t1", samples[300:], boot="b2")


def fill_lake(store, data: Path, prefix: str = "gpu_") -> None:
    """Copy the tables that a name begins with into the lake, as the stage does."""
    lake = open_lake(CatalogConfig(), data)
    means = Means(store, lake, ManualClock(NOW), SelfMetrics(), Bound(1_000_000, 1 << 26), Pace(0, 0, 0, 300, 1 << 28))
    newest = newest_blocks(store)
    for shape in lake_tables(tables(CATALOG)).values():
        if shape.name in newest and shape.name.startswith(prefix):
            exporter = TableExporter(means, shape)
            exporter.look(shape, newest[shape.name], 0)
            exporter.copy(exporter.due(lambda *_: NOW), lambda: False)
    lake.close()


class Site:
    """A hot store, its lake, and floors that a test sets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = ChdbStore(folder / "hot", readers=4)
        fill(self.store)
        fill_lake(self.store, folder)
        fill_lake(self.store, folder, "histograms_")
        self.pool = ColdPool(ColdConfig(), folder)
        self.floors: dict[str, int] = {}

    def ask(self, metric, *, scope=None, now_ms=NOW, pool=None, by_bucket=None, **fields):
        query = parse_query(asked(metric, FROM, END, **fields), CATALOG, now_ms)
        if by_bucket:
            query = replace(query, selected=tuple(replace(one, aggregate=by_bucket) for one in query.selected))
        clock = ManualClock(now_ms)
        inventory = Inventory(self.store, clock)
        cold = ColdTier(pool or self.pool, lambda: self.floors, inventory)
        runner = QueryRunner(self.store, clock, inventory, cold=cold)
        scope = scope or scope_of("t1")
        is_ranking = fields.get("resolution") == "range" and fields.get("group_by") == "gpu"
        return runner.top(query, 9, scope) if is_ranking else runner.run(query, scope)

    def gaps(self, span=None, pool=None):
        """Return the gaps of one tenant's GPUs, and those that a backlog closed, with what is said of them."""
        clock = ManualClock(NOW)
        inventory = Inventory(self.store, clock)
        cold = ColdTier(pool or self.pool, lambda: self.floors, inventory)
        gaps = TieredGaps(GapReader(inventory, clock, lambda _scope, _span: ()), inventory, cold)
        asked = (EntityKind.GPU, Filters(), span or Span(FROM, END), scope_of("t1"))
        return gaps.read(*asked), gaps.filled(*asked)

    def close(self) -> None:
        self.pool.close()
        self.store.close()


def comparable(answer):
    """Return series with figures to 12 digits, and what the answer says of itself."""
    coverage = answer.coverage
    gaps = coverage.gaps
    counted = coverage.expected, coverage.stored, gaps, coverage.shed
    return series_of(answer), counted, answer.late_ratio, answer.span, answer.resolution_ms
