"""Turn counts of Xids into rows: what the kernel log told and what others told add up to one counter of a GPU and code.

A count is born as 0, so that its first increase is one.
"""

from collections.abc import Collection, Iterator, Mapping

from secondsight.agent.kmsg.untold import GpuXid, UntoldXids
from secondsight.catalog.load import Catalog
from secondsight.clock import Clock
from secondsight.contracts import Tick
from secondsight.mapping.cells import Cell, ContentBuilder, Gathered, part_text
from secondsight.model import Quality

COLLECTOR = "kernel"
NONE: Mapping[GpuXid, int] = {}


class XidCells:
    """The counter's rows.

    Args:
        born: What earlier runs of the agent in this boot have told.
    """

    def __init__(self, catalog: Catalog, untold: UntoldXids, born: Collection[GpuXid] = ()) -> None:
        self._metric = catalog.get("gpu_xid_errors_total")
        self._untold = untold
        self._born = {*born, *untold.counts()}

    def give(self, logged: Mapping[GpuXid, int] = NONE) -> Iterator[Cell]:
        """Give the counts, those of the log included."""
        untold = self._untold.counts()
        for entity, code in {**logged, **untold}:
            count = logged.get((entity, code), 0) + untold.get((entity, code), 0)
            value = count if (entity, code) in self._born else 0
            yield Cell(self._metric, entity, part_text([("xid", str(code))]), value, Quality.OK)
            self._born.add((entity, code))


class XidCountReader:
    """Tells the counts where the kernel log is not read; see `contracts.Reader`."""

    def __init__(self, cells: XidCells, builder: ContentBuilder, clock: Clock, interval_ms: int) -> None:
        self.name = "xid_counts"
        self.interval_ms = interval_ms
        self._cells = cells
        self._builder = builder
        self._clock = clock

    def read(self, tick_ms: int) -> Tick:
        """Return the counts."""
        gathered = Gathered(cells=list(self._cells.give()))
        return Tick(self._builder.build(gathered, self._clock.now_ms() - tick_ms), collector=COLLECTOR)

    def close(self) -> None:
        """Nothing is held."""
