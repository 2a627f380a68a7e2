"""Take out of memory what collectors that fell silent left there; when one comes back it goes on as after a restart.

A collector is let go when nothing of it is open, late or unwritten and it was silent for longer than any pair of
samples counts. Its series go when there are many such: what is left is numbered anew, in memory and nowhere else.
"""

import numpy as np
from numpy.typing import NDArray

from secondsight.process.findingbook import FindingBook
from secondsight.process.kinds import KindState
from secondsight.process.patterns import LOOKBACK_MS
from secondsight.process.series import CLUSTER, COLLECTOR, REGION, TENANT
from secondsight.process.stamps import Stamps
from secondsight.process.world import World

SILENT_MS = 2 * LOOKBACK_MS
"""Log time without a record after which a collector is let go."""
LEAST_SERIES = 4096
GONE_SHARE = 0.25
"""Series are numbered anew when so large a share of them, and `LEAST_SERIES` at least, are of nobody."""


class Evictor:
    """Keeps the memory of a processor to what is alive. One thread uses it, between steps.

    Args:
        world: Everything of it is written.
        findings: Those that last keep their series.
        silent_ms: See `SILENT_MS`.
        least_series: See `LEAST_SERIES`.
    """

    def __init__(
        self, world: World, findings: FindingBook, silent_ms: int = SILENT_MS, least_series: int = LEAST_SERIES
    ) -> None:
        self._world = world
        self._silent_ms = silent_ms
        self._findings = findings
        self._least_series = least_series

    def run(self) -> int:
        """Let silent collectors go; return how many went."""
        world = self._world
        gone = self._silent()
        if gone:
            world.release(gone)
            world.metrics.count("processor_collectors_released_total", len(gone))
        for state in world.kinds.values():
            if len(state.series) >= self._least_series:
                self._compact(state)
        return len(gone)

    def _silent(self) -> list[int]:
        world = self._world
        busy = {key[2] for keys in (world.spans.open, world.spans.closing, world.late.items) for key in keys}
        return [
            code
            for code, progress in world.progress.items()
            if world.log_ms(progress.partition) - progress.seen_ms >= self._silent_ms
            and not progress.changed
            and code not in busy
        ]

    def _compact(self, state: KindState) -> None:
        kept = self._of_somebody(state)
        kept[list(self._findings.series_of(state.kind))] = True
        gone = kept.size - int(np.count_nonzero(kept))
        if gone < max(self._least_series, GONE_SHARE * kept.size):
            return
        world = self._world
        renumbered = state.compact(kept)
        world.stamps[state.kind] = Stamps(world.owners, state.kind, state.series)
        world.late.renumber(state.kind, renumbered)
        self._findings.renumber(state.kind, renumbered)
        world.metrics.count("processor_series_released_total", gone, kind=state.kind.value)

    def _of_somebody(self, state: KindState) -> NDArray[np.bool_]:
        """Tell which series are of collectors that are known."""
        fields = np.stack([state.series.codes(field) for field in (TENANT, REGION, CLUSTER, COLLECTOR)], axis=1)
        distinct, which = np.unique(fields, axis=0, return_inverse=True)
        tables = [state.series.names[field].items for field in (TENANT, REGION, CLUSTER, COLLECTOR)]
        alive = []
        for tenant, region, cluster, name in distinct.tolist():
            key = (tables[0][tenant], tables[1][region], tables[2][cluster], tables[3][name])
            alive.append(self._world.collectors.known(key) in self._world.progress)
        found: NDArray[np.bool_] = np.array(alive, np.bool_)[which.reshape(-1)]
        return found
