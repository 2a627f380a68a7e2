"""Turn how far collectors are into rows of `progress`, many at once: a large site tells of thousands every second."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from secondsight.process.kinds import CollectorKey
from secondsight.process.watermark import Progress
from secondsight.store.rows import arrow_table
from secondsight.store.spec import TableSpec


@dataclass(frozen=True, slots=True)
class Reached:
    """What is told of a collector: all is written up to a watermark, and rollups up to the end of a window."""

    collector: CollectorKey
    progress: Progress
    watermark_ms: int
    through_ms: int


def progress_table(spec: TableSpec, told: Sequence[Reached]) -> pa.Table:
    """Return the Arrow table of what is told."""
    progress = [each.progress for each in told]
    numbers = np.array(
        [
            (
                each.watermark_ms,
                each.progress.newest_ms,
                each.progress.ingest_ms,
                each.through_ms // 1000,
                each.progress.through_ms // 1000,
                each.progress.version,
            )
            for each in told
        ],
        np.int64,
    ).T
    return arrow_table(
        spec,
        {
            "tenant_id": [each.collector[0] for each in told],
            "cluster_id": [each.collector[2] for each in told],
            "host_id": [each.host_id for each in progress],
            "collector_id": [each.collector[3] for each in told],
            "watermark": numbers[0],
            "newest_event_time": numbers[1],
            "last_ingest_time": numbers[2],
            "idle": np.array([each.idle for each in progress], np.uint8),
            "backlog": np.array([each.has_backlog() for each in progress], np.uint8),
            "rollup_through": numbers[3],
            "begun_through": numbers[4],
            "partition": np.array([each.partition for each in progress], np.int32),
            "version": numbers[5].astype(np.uint64),
        },
    )
