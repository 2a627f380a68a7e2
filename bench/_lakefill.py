"""Fill a lake from a merged hot store by the product's own stage, and compare what comes back with what was sent."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import numpy as np
from numpy.typing import NDArray

import _fleet
from secondsight.clock import ManualClock
from secondsight.lake.config import LakeConfig
from secondsight.lake.run import Stage
from secondsight.lake.serve import stage_of
from secondsight.lake.stored import live_files
from secondsight.lake.tables import open_lake
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.chdb import ChdbStore

Sent = dict[str, NDArray[np.int64]]
"""Metric -> stored integers, by host, GPU and second."""
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SIZE_TABLES = ("gpu_1s", "gpu_30s")


@dataclass(frozen=True, slots=True)
class Copy:
    """What a copy took."""

    rows: int
    cpu_seconds: float


class Filled:
    """A lake of its own beside a hot store.

    Args:
        store: What is copied.
        folder: Where the lake is made.
        now_ms: What the stage takes for now.
    """

    def __init__(self, store: ChdbStore, folder: Path, now_ms: int) -> None:
        self._store = store
        self._folder = folder
        self._now_ms = now_ms
        self._clock = ManualClock(now_ms)
        self._config = LakeConfig(folder, settle_seconds=0, recheck_seconds=0.001, compact_hours=0)
        self._lake = open_lake(self._config.catalog, folder)
        self._metrics = SelfMetrics()
        self._stage = self._new_stage()

    def copy(self) -> Copy:
        """Copy all that is over: the hour, and coarse windows as if their day were over too."""
        began = time.process_time()
        self._stage.step(Event())
        cpu_seconds = time.process_time() - began
        self._clock.move(2 * DAY_MS / 1000)
        self._stage.step(Event())
        return Copy(sum(file.record_count for file in self._files("gpu_1s")), cpu_seconds)

    def bytes_of(self, table: str) -> int:
        """Return what the live files of a table take."""
        return sum(file.file_size_in_bytes for file in self._files(table))

    def values(self, sent: Sent) -> Sent:
        """Return what the lake has of some metrics."""
        found = self._lake.table("gpu_1s")
        if found is None:
            return {}
        rows = found.scan(selected_fields=("host_id", "entity", "event_time", *sent)).to_arrow()
        ordered = rows.sort_by([(name, "ascending") for name in ("host_id", "entity", "event_time")])
        return {name: ordered.column(name).to_numpy() for name in sent}

    def day(self, hours: int) -> dict[str, float]:
        """Copy one host's seconds and windows hour by hour as a cluster of its own, until its day is over and joined.

        Returns files of that cluster's day: the most that were live at once, and those that are left when all is done.
        """
        start_ms = self._now_ms // DAY_MS * DAY_MS - 4 * DAY_MS
        self._clock = ManualClock(start_ms)
        self._stage = self._new_stage()
        most = 0
        for hour in range(hours):
            self._one_hour(start_ms + hour * HOUR_MS)
            self._clock.move(HOUR_MS / 1000)
            self._stage.step(Event())
            most = max(most, self._live_in_day())
        self._clock.move((DAY_MS - hours * HOUR_MS) / 1000 + 1)
        self._stage.step(Event())
        self._clock.move(3600)
        self._stage.tidy(Event())
        self._clock.move(3600)
        self._stage.tidy(Event())
        left = self._live_in_day()
        shutil.rmtree(self._folder / "lake", ignore_errors=True)
        return {
            "files_per_day": left / len(SIZE_TABLES),
            "files_per_day_before_joining": most / len(SIZE_TABLES),
            "files_on_disk_per_day": self._on_disk,
            "hours_of_the_day": hours,
        }

    def _new_stage(self) -> Stage:
        return stage_of(self._config, self._store, self._lake, self._clock, self._metrics)

    def _one_hour(self, to_ms: int) -> None:
        """Put a copy of one host's rows into another hour, as another cluster."""
        for table, time_column in zip(SIZE_TABLES, ("event_time", "window_start"), strict=True):
            first = self._store.query(
                f"SELECT min({time_column}) AS first FROM {table} WHERE cluster_id != 'day'"
            ).to_pylist()[0]["first"]
            first_ms = round(first.timestamp() * 1000) if hasattr(first, "timestamp") else int(first) * 1000
            shift = (to_ms - first_ms // HOUR_MS * HOUR_MS) // 1000
            self._store.query(
                f"INSERT INTO {table} SELECT * REPLACE ('day' AS cluster_id, "
                f"{time_column} + INTERVAL {shift} SECOND AS {time_column}) FROM (SELECT * FROM {table} FINAL "
                f"WHERE cluster_id != 'day' AND host_id = (SELECT min(host_id) FROM {table}))",
                settings={"max_execution_time": 600},
            )

    def _live_in_day(self) -> int:
        self._on_disk = sum(1 for path in (self._folder / "lake").rglob("*") if path.is_file())
        return sum(1 for table in SIZE_TABLES for file in self._files(table) if file.partition[1] == "day")

    def _files(self, table: str) -> list[object]:
        found = self._lake.table(table)
        return [] if found is None else live_files(found)


def sent_values(fleet: _fleet.Fleet, hosts: int) -> Sent:
    """Return what was sent, in the order of host, GPU and second."""
    found: dict[str, list[NDArray[np.int64]]] = {}
    for host in range(hosts):
        contents = [content for batch in fleet.templates[host % _fleet.TEMPLATES].contents for content in batch]
        order = np.argsort([_fleet.gpu_id(host, gpu) for gpu in range(_fleet.GPUS)])
        for name, values in _matrices(contents).items():
            found.setdefault(name, []).append(values[:, order].T.reshape(-1))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _matrices(contents: list[object]) -> dict[str, NDArray[np.int64]]:
    """Return metric -> values of shape (seconds, GPUs) of one host."""
    found: dict[str, list[NDArray[np.int64]]] = {}
    for content in contents:
        for group in content.scalars.groups:
            for number, row in enumerate(group.values):
                name = content.schema.columns[group.first_column + number].metric
                found.setdefault(name, []).append(row.reshape(_fleet.TICKS, _fleet.GPUS).astype(np.int64))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def exact(sent: Sent, found: Sent) -> bool:
    """Tell whether every value came back as it was."""
    wrong = [name for name in sent if not np.array_equal(sent[name], np.asarray(found.get(name)).astype(np.int64))]
    if wrong:
        print(f"not as they were sent: {', '.join(wrong)}", flush=True)
    return not wrong


def floor(sent: Sent) -> float:
    """Return the mean entropy of the columns in bytes, of values or of their steps."""
    return float(np.mean([min(_entropy(values), _entropy(np.diff(values))) for values in sent.values()]))


def _entropy(values: NDArray[np.int64]) -> float:
    _, counts = np.unique(values, return_counts=True)
    share = counts / counts.sum()
    return float(-(share * np.log2(share)).sum() / 8)
