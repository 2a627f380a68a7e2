"""Say up to when all rollups of a cluster are made, so that readers know where coarse ones end.

What a window is made of must be written (progress of the processor, or the finer rollups), and no window that changed
may still lack its first row. A window that is made again is no hole: it says what it said a moment ago.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from secondsight.contracts import Store
from secondsight.model import EntityKind
from secondsight.rollup.load import Work
from secondsight.rollup.watch import Place
from secondsight.store.clusters import CLUSTER_KINDS, cluster_resolution
from secondsight.store.coarse import LEVELS, Level
from secondsight.store.rows import ColumnValues, arrow_table
from secondsight.store.schema import rollup_table
from secondsight.store.spec import TableSpec

Lane = tuple[EntityKind, Level]


class Through:
    """Which clusters have rollups, and up to when these are complete."""

    def __init__(self) -> None:
        self._places: dict[str, set[Place]] = defaultdict(set)

    def load(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take in what `rollups_through` holds."""
        for row in rows:
            self._places[row["table_name"]].add((row["tenant_id"], row["cluster_id"]))

    def meet(self, work: Work) -> None:
        """Learn that a cluster has rows of a kind."""
        self._places[work.table].add((work.tenant, work.cluster))

    def ends(
        self,
        now_ms: int,
        written: Mapping[Place, int],
        lacking: Iterable[Work],
        unpooled: Iterable[Work],
        wait_ms: Mapping[str, int],
    ) -> dict[tuple[str, Place], int]:
        """Return (table, cluster) -> the end of the last window before which none is lacking, in ms.

        A cluster that has just come is complete up to its first row in coarser tables too, so that it does not keep
        readers of a whole fleet from these.

        Args:
            now_ms: Wall time.
            written: Up to when rollups of 30 s are written.
            lacking: Windows that changed and were never made.
            unpooled: Windows whose cluster rows were never made.
            wait_ms: Resolution -> how long its windows wait after their end.
        """
        first = _firsts((work.table, work) for work in lacking)
        unmade = _firsts((work.cluster_table, work) for work in unpooled)
        found: dict[tuple[str, Place], int] = {}
        for level in LEVELS:
            for kind in EntityKind:
                table, source = rollup_table(kind, level.name), rollup_table(kind, level.source)
                self._places[table] |= self._places.get(source, set())
                for place in self._places[table]:
                    known = found.get((source, place), written.get(place, now_ms))
                    end_ms = min(now_ms - wait_ms[level.name], known, first.get((table, place), now_ms))
                    found[table, place] = max(end_ms, 0) // level.width_ms * level.width_ms
                    if kind in CLUSTER_KINDS:
                        pooled = rollup_table(kind, cluster_resolution(level.name))
                        found[pooled, place] = min(found[table, place], unmade.get((pooled, place), now_ms))
        return found


def _firsts(works: Iterable[tuple[str, Work]]) -> dict[tuple[str, Place], int]:
    """Return (table, cluster) -> the start of the first of some windows, in ms."""
    first: dict[tuple[str, Place], int] = {}
    for table, work in works:
        key = (table, (work.tenant, work.cluster))
        first[key] = min(first.get(key, work.start_ms), work.start_ms)
    return first


def keep_through(store: Store, spec: TableSpec, ends: Mapping[tuple[str, Place], int], version: int) -> None:
    """Write up to when rollups are complete.

    Raises:
        Retryable: The store is busy or away.
    """
    if not ends:
        return
    keys = list(ends)
    columns: dict[str, ColumnValues] = {
        "table_name": [table for table, _ in keys],
        "tenant_id": [tenant for _, (tenant, _) in keys],
        "cluster_id": [cluster for _, (_, cluster) in keys],
        "through": np.array([ends[key] // 1000 for key in keys], np.int64),
        "version": np.full(len(keys), version, np.uint64),
    }
    store.insert(spec.name, arrow_table(spec, columns))
