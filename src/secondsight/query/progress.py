"""How far the collectors of a question have come: the statement for one row of each, and what they say together."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from secondsight.access.scope import Scope
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement

PLAN_KEY = ("tenant_id", "cluster_id", "host_id", "collector_id")
_COMPUTE: Any = pc


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the collectors of a question have come; None where there is none.

    Attributes:
        complete_through_ms: Least watermark of those that are not idle, never in the future; None while one of them
            has no watermark yet.
        newest_ms: Newest event time of any.
        rollup_through_ms: Up to where every 30 s row of a collector in use is written.
        idle, collectors: How many are silent, and how many there are, of those that ever told a sample.
    """

    complete_through_ms: int | None
    newest_ms: int | None
    rollup_through_ms: int | None
    idle: int
    collectors: int


def compile_progress(scope: Scope) -> Statement:
    """Return the statement for one row per collector, times in epoch ms."""
    parameters = Parameters()
    times = [
        f"toUnixTimestamp64Milli({name}) AS {name}_ms"
        for name in ("watermark", "newest_event_time", "last_ingest_time")
    ]
    columns = [
        *PLAN_KEY,
        *times,
        "idle",
        "backlog",
        "toInt64(toUnixTimestamp(rollup_through)) * 1000 AS rollup_through_ms",
    ]
    rows = ScopedTables(scope, parameters).table("progress", columns, final=True)
    return Statement(rows[1:-1], parameters.values())


def progress_of(rows: Any, expected: Any, now_ms: int) -> Progress:
    """Sum up how far the collectors of some expected entities have come; all collectors where none is expected.

    A collector that fell idle less than 15 minutes ago holds `rollup_through_ms` back until its last rows are written.
    """
    mine = rows.filter(_COMPUTE.is_in(_keys(rows), value_set=_keys(expected))) if expected.num_rows else rows
    idle = _integers(mine, "idle").astype(np.bool_)
    newest, through = _integers(mine, "newest_event_time_ms"), _integers(mine, "rollup_through_ms")
    owing = ~idle | ((now_ms - newest < 900_000) & (through <= newest))
    complete_ms = _least(_integers(mine, "watermark_ms")[~idle])
    has_told = newest > 0
    return Progress(
        complete_through_ms=min(complete_ms, now_ms) if complete_ms else None,
        newest_ms=int(newest.max()) or None if newest.size else None,
        rollup_through_ms=_least(through[owing]) if owing.any() else _least(through + 30_000),
        idle=int((idle & has_told).sum()),
        collectors=int(has_told.sum()),
    )


def _keys(rows: Any) -> Any:
    columns = [rows[name].cast(pa.string()) for name in ("tenant_id", "cluster_id", "collector_id")]
    return _COMPUTE.binary_join_element_wise(*columns, "\0").combine_chunks()


def _integers(rows: Any, name: str) -> NDArray[np.int64]:
    values: NDArray[np.int64] = rows[name].to_numpy().astype(np.int64)
    return values


def _least(values: NDArray[np.int64]) -> int | None:
    return int(values.min()) if values.size else None
