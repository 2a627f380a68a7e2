"""A real store with two tenants' rows, behind its socket as the platform has it, and what answers SQL over it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from query_fixture import T0, Row, insert_entity, insert_progress, insert_rollups, insert_rows
from secondsight.access.metadata import open_metadata
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.guard.budget import Budget
from secondsight.guard.execute import Executor
from secondsight.guard.floor import Floors
from secondsight.guard.quality import QualityReader
from secondsight.guard.register import Register
from secondsight.guard.service import SqlService
from secondsight.query.inventory import Inventory
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.chdb import ChdbStore
from secondsight.store.client import FlightStore
from secondsight.store.migrate import migrate
from secondsight.store.schema import DATABASE
from secondsight.store.serve import ADDRESS_FILE, start_store_server
from secondsight.store.views import tables_below

CATALOG = load_catalog()
SECONDS = 600
NOW_MS = T0 + SECONDS * 1000
FOREIGN = "foreign-host"
DURING = "event_time >= '2023-11-14 22:20:00' AND event_time < '2023-11-14 22:30:00'"
"""The ten minutes of the rig, in UTC."""
EVERY_ROW: Mapping[str, int] = {}
RUNNING = "SELECT count() AS n FROM system.processes WHERE query LIKE '%gpu_telemetry%' AND query NOT LIKE '%LIKE%'"


def rows() -> list[Row]:
    """Rows of mine on c1 and c2, of the same tenant on c3, and of another tenant on a cluster that is called c1 too."""
    places = (
        ("t1", "c1", "h1", "GPU-a"),
        ("t1", "c2", "h2", "GPU-b"),
        ("t1", "c3", "h3", "GPU-c"),
        ("t2", "c1", FOREIGN, "GPU-x"),
    )
    return [
        Row(
            T0 + 1000 * second,
            entity,
            {"gpu_power_watts": (100 + 100 * place) * 1000, "gpu_energy_joules_total": 1000 * second},
            tenant=tenant,
            cluster=cluster,
            host=host,
            team="ml" if place else "vision",
        )
        for place, (tenant, cluster, host, entity) in enumerate(places)
        for second in range(SECONDS)
    ]


@dataclass
class Rig:
    """What tests talk to."""

    store: ChdbStore
    reached: FlightStore
    metadata: Engine
    clock: ManualClock
    metrics: SelfMetrics

    def service(self, budget: Budget | None = None, floors: Mapping[str, int] = EVERY_ROW) -> SqlService:
        """Return a service of its own; `floors` say what the hot store let go of."""
        spent = budget or Budget()
        return SqlService(
            Executor(self.reached, spent, tables_below(CATALOG, DATABASE)),
            Register(self.metadata, spent, self.clock, self.metrics),
            QualityReader(Inventory(self.reached, self.clock), self.clock),
            Floors(CATALOG, DATABASE, lambda: floors),
            CATALOG,
            self.clock,
        )

    def running(self) -> int:
        """Return how many statements over the views the engine runs."""
        found: list[dict[str, Any]] = self.store.query(RUNNING).to_pylist()
        return int(found[0]["n"])


@contextmanager
def rig(folder: Path, clock: Any = None, questions: int = 2) -> Iterator[Rig]:
    """Give a rig in a folder."""
    store = ChdbStore(folder / "hot", questions=questions)
    migrate(store, CATALOG)
    mine = rows()
    insert_rows(store, mine)
    insert_rollups(store, mine)
    for row in mine[::SECONDS]:
        insert_entity(store, row, T0, gpu_model="secret" if row.tenant == "t2" else "H100")
        insert_progress(store, row, NOW_MS, NOW_MS)
    store.query(f"SYSTEM RELOAD DICTIONARY {DATABASE}.gpu_products")
    server = start_store_server(store, folder / "run")
    reached = FlightStore(folder / "run" / ADDRESS_FILE)
    metadata = open_metadata(str(folder / "metadata.sqlite"))
    try:
        yield Rig(store, reached, metadata, clock or ManualClock(NOW_MS), SelfMetrics())
    finally:
        metadata.dispose()
        reached.close()
        server.close()
        store.close()
