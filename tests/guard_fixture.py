"""The views, the caller and the clock that cases of the guard are about, and rows to run them on."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from secondsight.access.identity import Role as Access
from secondsight.access.scope import Scope
from secondsight.guard.limits import Limits
from secondsight.guard.registry import Column, Metric, MetricKind, Registry, Role, View

NOW_MS = 1_795_176_000_000
"""2026-11-20 12:00:00 UTC."""

LIMITS = Limits()
CASES = Path(__file__).parent / "cases" / "guard"

GAUGES = {
    "gpu_utilization_ratio": "1",
    "gpu_sm_active_ratio": "1",
    "gpu_memory_used_bytes": "By",
    "gpu_memory_total_bytes": "By",
    "gpu_temperature_celsius": "Cel",
    "gpu_power_watts": "W",
    "gpu_sm_clock_hertz": "Hz",
    "gpu_pcie_transmit_bytes_per_second": "By/s",
}
COUNTERS = {
    "gpu_energy_joules_total": "J",
    "gpu_ecc_corrected_volatile_total": "1",
    "gpu_ecc_uncorrected_volatile_total": "1",
    "gpu_throttle_hw_thermal_seconds_total": "s",
    "gpu_pcie_replay_total": "1",
}
STATES = {
    "gpu_clock_event_reasons": (MetricKind.BITMASK, "bitmask"),
    "gpu_performance_state": (MetricKind.STATE, "P-state"),
}
WORD = "LowCardinality(String)"
FLOAT, WHOLE = "Nullable(Float64)", "Nullable(UInt64)"


def scope(
    tenants: tuple[str, ...] = ("tenant_a",), clusters: frozenset[str] | None = frozenset({"c1", "c2"}), **more: Any
) -> Scope:
    """Return the scope of the caller of the cases, or another."""
    fields: dict[str, Any] = {
        "teams": None, "jobs": None, "denied_metrics": frozenset(), "subject": "token:1", "role": Access.VIEWER,
    } | more  # fmt: skip
    return Scope(tenant_ids=tenants, clusters=clusters, **fields)


def registry() -> Registry:
    """Return the five views of the cases."""
    metrics = (
        *(Metric(name, MetricKind.GAUGE, unit) for name, unit in GAUGES.items()),
        *(Metric(name, MetricKind.COUNTER, unit) for name, unit in COUNTERS.items()),
        *(Metric(name, kind, unit) for name, (kind, unit) in STATES.items()),
    )
    gpu = (Column("host_id", "String", Role.DIMENSION), Column("gpu_id", "String", Role.DIMENSION))
    cluster = (Column("gpus", "UInt32", Role.NUMBER), Column("coverage_ratio", "Float64", Role.SHARE))
    key = ("gpu_id",)
    return Registry(
        views=(
            View(
                "gpu_telemetry_1s_secure", "event_time", 1, (*_SCOPE, *gpu, _EVENT, *_DIMS, *_raw()), raw=True, key=key
            ),
            View("gpu_telemetry_30s_secure", "window_start", 30, (*_SCOPE, *gpu, _WINDOW, *_DIMS, *_rollup()), key=key),
            View("gpu_cluster_5m_secure", "window_start", 300, (*_SCOPE, _WINDOW, *_DIMS, *cluster, *_rollup())),
            View("gpu_cluster_1h_secure", "window_start", 3600, (*_SCOPE, _WINDOW, *_DIMS, *cluster, *_rollup())),
            View("gpu_error_events_secure", "event_time", 0, (*_SCOPE, *gpu, _EVENT, *_DIMS, *_EVENTS), key=key),
        ),
        metrics=metrics,
        version="cases",
    )


_SCOPE = (
    Column("tenant_id", WORD, Role.SCOPE, few=True),
    Column("cluster_id", WORD, Role.SCOPE, few=True),
)
_EVENT = Column("event_time", "DateTime64(3, 'UTC')", Role.TIME)
_WINDOW = Column("window_start", "DateTime('UTC')", Role.TIME)
_DIMS = (
    Column("job_id", "String", Role.DIMENSION),
    Column("workload_id", "String", Role.DIMENSION),
    Column("owner_team", WORD, Role.DIMENSION, few=True),
    Column("model", WORD, Role.DIMENSION, few=True),
)
_EVENTS = (
    Column("kind", WORD, Role.DIMENSION, few=True),
    Column("code", "UInt32", Role.CODE, few=True),
    Column("severity", WORD, Role.DIMENSION, few=True),
    Column("message", "String", Role.DIMENSION),
)


def _raw() -> Iterable[Column]:
    for name in (*GAUGES, *COUNTERS):
        yield Column(name, FLOAT, Role.MEASURE, name)
    for name in STATES:
        yield Column(name, WHOLE, Role.MEASURE, name)


def _rollup() -> Iterable[Column]:
    for name in GAUGES:
        for suffix in ("avg", "min", "max", "p95", "last"):
            yield Column(f"{name}_{suffix}", FLOAT, Role.MEASURE, name, suffix)
        yield Column(f"{name}_count", "UInt32", Role.MEASURE, name, "count")
    for name in COUNTERS:
        yield Column(f"{name}_increase", FLOAT, Role.MEASURE, name, "increase")
    for name in STATES:
        yield Column(f"{name}_last", WHOLE, Role.MEASURE, name, "last")
        yield Column(f"{name}_changes", "UInt32", Role.MEASURE, name, "changes")
