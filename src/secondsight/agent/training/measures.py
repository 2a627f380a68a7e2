"""Turn what was counted, timed and last seen of a training run into cells and histogram points of the catalogue.

Names here are the short ones of the helper's datagrams; a key is a short name and a label value ("" for none).
"""

import math
from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, field

from secondsight.catalog.load import Catalog
from secondsight.catalog.metric import Metric, Source
from secondsight.catalog.scale import conversion
from secondsight.mapping.cells import Cell, Gathered, HistogramPoint, part_text
from secondsight.mapping.identity import PART_VALUE_CHARACTERS
from secondsight.training import BOUNDS_SECONDS

Key = tuple[str, str]
COUNTS = {
    "steps": "training_steps_total",
    "tokens": "training_tokens_total",
    "samples": "training_samples_total",
    "read_bytes": "training_data_read_bytes_total",
    "anomalies": "training_gradient_anomalies_total",
    "checkpoint_failures": "training_checkpoint_failures_total",
    "allocator_retries": "training_allocator_retries_total",
    "allocator_ooms": "training_allocator_ooms_total",
    "lost": "training_reports_lost_total",
    "nccl_errors": "training_nccl_errors_total",
    "engine_ooms": "inference_oom_total",
}
DURATIONS = {
    "step_seconds": "training_step_duration_seconds",
    "data_wait_seconds": "training_data_wait_seconds",
    "phase_seconds": "training_phase_duration_seconds",
    "collective_seconds": "training_collective_duration_seconds",
    "checkpoint_seconds": "training_checkpoint_duration_seconds",
}
GAUGES = {
    "step": "training_step",
    "steps_planned": "training_steps_planned",
    "progress": "training_progress_ratio",
    "eta_seconds": "training_eta_seconds",
    "step_age_seconds": "training_step_age_seconds",
    "loss": "training_loss",
    "grad_norm": "training_gradient_norm",
    "learning_rate": "training_learning_rate",
    "loss_scale": "training_loss_scale",
    "queue_batches": "training_data_queue_batches",
    "mfu": "training_mfu_ratio",
    "epoch": "training_epoch",
    "world_size": "training_world_size",
    "rank_step_lag_seconds": "training_rank_step_lag_seconds",
    "bus_bytes_per_second": "training_collective_bus_bytes_per_second",
    "score": "training_evaluation_score",
    "checkpoint_last_success": "training_checkpoint_last_success_time_seconds",
    "checkpoint_bytes": "training_checkpoint_bytes",
    "tokens_per_second": "training_tokens_per_second",
    "samples_per_second": "training_samples_per_second",
    "gpu_flops_per_second": "training_gpu_flops_per_second",
    "allocator_allocated_bytes": "training_allocator_allocated_bytes",
    "allocator_reserved_bytes": "training_allocator_reserved_bytes",
    "allocator_inactive_split_bytes": "training_allocator_inactive_split_bytes",
    "allocator_fragmentation": "training_allocator_fragmentation_ratio",
    "model_load_seconds": "inference_model_load_seconds",
}
METRICS = COUNTS | DURATIONS | GAUGES


@dataclass(slots=True)
class Spread:
    """Observations of one duration: how many in each bucket of `BOUNDS_SECONDS`, and their sum in seconds."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_SECONDS) + 1))
    sum: float = 0.0


@dataclass(slots=True)
class Measured:
    """What is known of one run: counts and durations that only grow, and last values.

    Attributes:
        start_ms: When all of them were 0, epoch ms; 0 if nobody knows.
    """

    counts: dict[Key, float] = field(default_factory=dict)
    durations: dict[Key, Spread] = field(default_factory=dict)
    gauges: dict[Key, float] = field(default_factory=dict)
    start_ms: int = 0

    def count(self, key: Key, by: float) -> None:
        """Add to a count."""
        self.counts[key] = self.counts.get(key, 0) + by

    def observe(self, key: Key, seconds: float) -> None:
        """Add one observation of a duration."""
        if not 0 <= seconds < math.inf:
            return
        spread = self.durations.setdefault(key, Spread())
        spread.buckets[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        spread.sum += seconds

    def spread(self, key: Key) -> Spread:
        """Return the observations of a duration, to add to."""
        return self.durations.setdefault(key, Spread())


def known_key(catalog: Catalog, name: str, label: str, known: Collection[Key]) -> Key | None:
    """Return the key of a name and label as it may be kept.

    None for an unknown name, a label out of place, or one more part than the metric may have.

    Args:
        catalog: Says which names have labels, and how many.
        name: Short name.
        label: Label value, "" for none.
        known: Keys that are kept already.
    """
    key = (name, label[:PART_VALUE_CHARACTERS])
    if key in known or name not in METRICS:
        return key if key in known else None
    metric = catalog.get(METRICS[name])
    if bool(label) != bool(metric.labels):
        return None
    siblings = sum(1 for other, _ in known if other == name)
    return key if siblings < metric.parts_maximum else None


def gather(measured: Measured, entity: str, catalog: Catalog, into: Gathered) -> None:
    """Add the cells and histogram points of a run."""
    for (name, label), value in (*measured.counts.items(), *measured.gauges.items()):
        metric = catalog.get(METRICS[name])
        stored, quality = conversion(metric, _source(metric)).one(value)
        into.cells.append(Cell(metric, entity, part_of(metric, label), stored, quality))
    for (name, label), spread in measured.durations.items():
        metric = catalog.get(METRICS[name])
        part = part_of(metric, label)
        into.histograms.append(
            HistogramPoint(metric, entity, part, BOUNDS_SECONDS, tuple(spread.buckets), spread.sum, measured.start_ms)
        )


def part_of(metric: Metric, label: str) -> str:
    """Return the part that a label value makes; "" where the metric has no label."""
    return part_text([(metric.labels[0], label)]) if metric.labels and label else ""


def _source(metric: Metric) -> Source:
    return Source("training", metric.name)
