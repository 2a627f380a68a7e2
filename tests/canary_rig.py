"""The canary over a real processor, rollups, lake and read side, on a clock that is moved by hand."""

from pathlib import Path
from random import Random
from threading import Event

from process_rig import Rig
from secondsight.canary.check import Checker
from secondsight.canary.config import CanaryConfig
from secondsight.canary.frames import Framer
from secondsight.canary.kept import load_kept
from secondsight.canary.run import Canary, Outlet, Pace
from secondsight.canary.serve import EVERYTHING_MS, BriefPool
from secondsight.canary.tiers import CLUSTER, COLD, TENANT, Readers
from secondsight.catalog.load import load_catalog
from secondsight.lake.config import LakeConfig
from secondsight.lake.serve import stage_of
from secondsight.lake.tables import open_lake
from secondsight.query.cold import ColdTier
from secondsight.query.inventory import Inventory
from secondsight.query.run import QueryRunner
from secondsight.rollup.run import Roller
from secondsight.selfmetrics import SelfMetrics
from secondsight.wire.frame import split

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000 // DAY_MS * DAY_MS - 600_000
"""Ten minutes before a day begins."""
STEP_S, STEPS_AT_ONCE = 300, 12


class Site:
    """Everything between the canary and what it reads back."""

    def __init__(self, store, folder: Path) -> None:
        catalog, self.folder = load_catalog(), folder
        self.rig = Rig(store, START_MS)
        self.clock = self.rig.clock
        self.roller = Roller(store, catalog, self.clock)
        self.pool = BriefPool(CanaryConfig(folder, "", folder))
        inventory = Inventory(store, self.clock)
        lake = ColdTier(self.pool, lambda: {tier.table: EVERYTHING_MS for tier in COLD}, inventory)
        hot, cold = (QueryRunner(store, self.clock, inventory, cold=each) for each in (None, lake))
        self.readers = Readers(catalog, self.clock, hot, cold, dict)
        self.kept = load_kept(folder / "canary.json")
        self.metrics, self.events = SelfMetrics(), []
        self.checker = Checker(self.readers, self.kept, self.events.append, self.clock, self.metrics, Random(1))
        outlet = Outlet(Framer(catalog, 7), self.deliver)
        self.canary = Canary(outlet, self.kept, self.checker, self.clock, self.metrics, Pace(10, 1e9, 0))

    def deliver(self, body: bytes) -> None:
        """Put frames into the log, as a gateway does."""
        heads = split(body)
        ends = [*(head.start for head in heads[1:]), len(body)]
        for head, end in zip(heads, ends, strict=True):
            self.rig.send(body[head.start : end], tenant=TENANT, cluster=CLUSTER)

    def live(self, seconds: int) -> None:
        """Let time pass while the canary sends and everything is stored."""
        for step in range(1, seconds // STEP_S + 1):
            self.clock.move(STEP_S)
            self.canary.send()
            if step % STEPS_AT_ONCE == 0:
                self.rig.processor.drain()

    def settle(self) -> None:
        """Let rollups and the lake take over what there is."""
        self.rig.settle()
        for pause_seconds in (60, DAY_MS / 1000, 60):
            self.roller.step()
            self.clock.move(pause_seconds)
            self.rig.processor.step()
        config = LakeConfig(self.folder, settle_seconds=0, recheck_seconds=0.001, compact_hours=0)
        lake = open_lake(config.catalog, self.folder)
        stage_of(config, self.rig.store, lake, self.clock, SelfMetrics()).step(Event())
        lake.close()
        self.clock.move(60)
