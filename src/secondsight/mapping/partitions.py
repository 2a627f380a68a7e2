"""What AMD's exporter prints for partitions and boards that have no such reading: nothing of ours.

A GPU in a partitioned mode is read through its first partition: power, energy, activity, clocks and temperatures are
those of the whole board, and the other partitions print 0 for them. Memory is each partition's own.
"""

from collections.abc import Mapping

PARTITION_LABEL = "gpu_partition_id"
MODE_LABEL = "gpu_compute_partition_type"
WHOLE_MODES = frozenset({"", "spx", "none", "unknown"})

OF_THE_BOARD = frozenset(
    {
        "gpu_utilization_ratio",
        "gpu_sm_active_ratio",
        "gpu_sm_occupancy_ratio",
        "gpu_tensor_active_ratio",
        "gpu_dram_active_ratio",
        "gpu_memory_copy_utilization_ratio",
        "gpu_sm_clock_hertz",
        "gpu_memory_clock_hertz",
        "gpu_video_clock_hertz",
        "gpu_boost_clock_hertz",
        "gpu_temperature_celsius",
        "gpu_memory_temperature_celsius",
        "gpu_power_watts",
        "gpu_power_instant_watts",
        "gpu_power_limit_watts",
        "gpu_energy_joules_total",
    }
)
"""Metrics that only the first partition has."""

CONSTANT_ON_RADEON = frozenset({"gpu_prof_sm_active"})
"""Samples that are always 0 on Radeon boards."""

MODEL_LABELS = ("card_model", "card_series", "card_vendor_model")


def partition_of(labels: Mapping[str, str]) -> str:
    """Return the number of the partition that a sample is of, "" for a whole GPU."""
    partition = labels.get(PARTITION_LABEL, "")
    mode = labels.get(MODE_LABEL, "").lower()
    return partition if partition.isdigit() and (mode not in WHOLE_MODES or partition != "0") else ""


def is_never_read(metric: str, sample: str, labels: Mapping[str, str]) -> bool:
    """Tell whether a sample of this name and these labels is no reading, whatever its value."""
    if partition_of(labels) not in ("", "0") and metric in OF_THE_BOARD:
        return True
    is_radeon = any("radeon" in labels.get(label, "").lower() for label in MODEL_LABELS)
    return is_radeon and sample in CONSTANT_ON_RADEON
