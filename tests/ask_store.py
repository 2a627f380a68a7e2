"""Serve statements on rows of a small fleet: of everyone, or of the caller alone. One engine to a process.

    python ask_store.py full

Reads one JSON text a line, answers with {"rows": [...], "error": "..."}. The rows are made by arithmetic.
"""

import json
import sys
from typing import Any

from guard_fixture import COUNTERS, GAUGES, STATES

DIMS = "job_id String, workload_id String, owner_team LowCardinality(String), model LowCardinality(String)"
SCOPE = "tenant_id LowCardinality(String), cluster_id LowCardinality(String)"
GPU = "host_id String, gpu_id String"
ROLLUP = ", ".join(
    [
        *(f"{name}_{suffix} Nullable(Float64)" for name in GAUGES for suffix in ("avg", "min", "max", "p95", "last")),
        *(f"{name}_count UInt32" for name in GAUGES),
        *(f"{name}_increase Nullable(Float64)" for name in COUNTERS),
        *(f"{name}_last Nullable(UInt64), {name}_changes UInt32" for name in STATES),
    ]
)
RAW = ", ".join(
    [
        *(f"{name} Nullable(Float64)" for name in (*GAUGES, *COUNTERS)),
        *(f"{name} Nullable(UInt64)" for name in STATES),
    ]
)
TABLES = {
    "raw_1s": f"{SCOPE}, {GPU}, event_time DateTime64(3,'UTC'), {DIMS}, {RAW}",
    "raw_30s": f"{SCOPE}, {GPU}, window_start DateTime('UTC'), {DIMS}, {ROLLUP}",
    "raw_5m": f"{SCOPE}, window_start DateTime('UTC'), {DIMS}, gpus UInt32, coverage_ratio Float64, {ROLLUP}",
    "raw_1h": f"{SCOPE}, window_start DateTime('UTC'), {DIMS}, gpus UInt32, coverage_ratio Float64, {ROLLUP}",
    "raw_err": f"{SCOPE}, {GPU}, event_time DateTime64(3,'UTC'), {DIMS}, kind LowCardinality(String), code UInt32,"
    " severity LowCardinality(String), message String",
}
ORDER = {
    "raw_1s": ("toYYYYMMDD(event_time)", "tenant_id, cluster_id, host_id, gpu_id, event_time"),
    "raw_30s": ("toYYYYMM(window_start)", "tenant_id, cluster_id, host_id, gpu_id, window_start"),
    "raw_5m": ("toYYYYMM(window_start)", "tenant_id, cluster_id, window_start"),
    "raw_1h": ("toYear(window_start)", "tenant_id, cluster_id, window_start"),
    "raw_err": ("toYYYYMM(event_time)", "tenant_id, cluster_id, event_time"),
}
VIEWS = {
    "gpu_telemetry_1s_secure": "raw_1s",
    "gpu_telemetry_30s_secure": "raw_30s",
    "gpu_cluster_5m_secure": "raw_5m",
    "gpu_cluster_1h_secure": "raw_1h",
    "gpu_error_events_secure": "raw_err",
}
OWNERS = (
    "['tenant_a','tenant_a','tenant_a','tenant_b','tenant_b'][number % 5 + 1],"
    " ['c1','c2','c3','c1','cx'][number % 5 + 1]"
)
ENTITY = (
    "concat(if(number % 5 >= 3, 'xh', 'h'), toString(intDiv(number, 5) % 4)),"
    " concat('GPU-', toString(number % 5), '-', leftPad(toString(intDiv(number, 5) % 16), 4, '0'))"
)


def model(of_a100: str) -> str:
    return f"multiIf(number % 5 = 2, 'L40S', number % 5 >= 3, 'H200', {of_a100}, 'A100', 'H100')"


def dims(workload: str, of_a100: str) -> str:
    return (
        f"concat('job-', toString(intDiv(number, 5) % 3)), concat('wl-', toString({workload})),"
        f" ['ml','vision','infra'][intDiv(number, 5) % 3 + 1], {model(of_a100)}"
    )


def rollup_values(width: int, scale: int) -> str:
    seconds = f"if(number % 91 = 0, {width * 2 // 5}, {width}) * {scale}"
    figures = {
        "gpu_utilization_ratio": ("(number * 7 % 128) / 128", "0", "1", "(number * 7 % 128) / 128", "0.25"),
        "gpu_sm_active_ratio": ("(number * 3 % 128) / 128", "0", "1", "0.5", "if(number % 29 = 0, NULL, 0.5)"),
        "gpu_memory_used_bytes": (
            "(number % 80) * 1e9",
            "0",
            "(number % 80) * 1e9 + 1e6",
            "(number % 80) * 1e9",
            "1e9",
        ),
        "gpu_memory_total_bytes": ("85899345920",) * 5,
        "gpu_temperature_celsius": (
            "40 + number % 40",
            "35",
            "45 + number % 45",
            "44 + number % 44",
            "40 + number % 40",
        ),
        "gpu_power_watts": ("200 + number % 400", "90", "300 + number % 400", "280 + number % 400", "200"),
        "gpu_sm_clock_hertz": ("(1200 + number % 700) * 1e6", "3e8", "198e7", "15e8", "(1200 + number % 700) * 1e6"),
        "gpu_pcie_transmit_bytes_per_second": ("4096 * (number % 1000)", "0", "8192 * (number % 1000)", "4096", "0"),
    }
    increases = (
        f"{width} * {scale} * (200 + number % 400)",
        "number % 3",
        "number % 997 = 0",
        "number % 7",
        "number % 2",
    )
    states = ("if(number % 37 = 0, 8, 0)", "number % 3", "number % 9", "number % 2")
    values = [value for figure in figures.values() for value in figure]
    return ", ".join((*values, *(seconds for _ in figures), *increases, *states))


def loads() -> list[str]:
    """Return the statements that make the rows of everyone."""
    start = "toDateTime64('2026-11-20 11:00:00', 3, 'UTC') + intDiv(number, 80)"
    raw = (
        "(number * 7 % 128) / 128, if(number % 29 = 0, NULL, (number * 3 % 128) / 128), number * 1000003 % 85899345920,"
        " 85899345920, if(number % 53 = 0, NULL, 40 + number % 50),"
        " 200 + number % 500 + if(number % 5 >= 2, 150, 0), (1200 + number % 700) * 1e6, 4096 * (number % 1000),"
        " if(number >= 20000 AND intDiv(number, 5) % 16 = 3, number - 20000, number), intDiv(number, 3000),"
        " intDiv(number, if(number % 5 >= 2, 3000, 9000)), intDiv(number, 8000), intDiv(number, 7000),"
        " if(number % 37 = 0, 8, 0), number % 9"
    )
    gpu_dims = dims("intDiv(number, 20) % 3", "intDiv(number, 5) % 4 = 3")
    cluster_dims = dims("intDiv(number, 5) % 3", "intDiv(number, 5) % 3 = 2")
    share = "16, (256 - number % 17) / 256"
    hours = "toDateTime('2026-07-01 00:00:00', 'UTC') + intDiv(number, 15) * 3600"
    event_time = "toDateTime64('2026-10-21 12:00:00', 3, 'UTC') + number * 860"
    event = (
        "['xid','ecc','thermal','nvlink','gap'][intDiv(number, 7) % 5 + 1] AS k,"
        " if(k = 'xid', [31, 48, 63, 79, 94][intDiv(number, 35) % 5 + 1], 0),"
        " ['info','warning','critical'][number % 3 + 1], concat(k, if(number % 5 >= 3, ' foreign event', ' event'))"
    )
    fortnight = "toDateTime('2026-11-06 12:00:00', 'UTC')"
    return [
        f"INSERT INTO raw_1s SELECT {OWNERS}, {ENTITY}, {start}, {gpu_dims}, {raw} FROM numbers(288000)",
        f"INSERT INTO raw_30s SELECT {OWNERS}, {ENTITY}, {fortnight} + intDiv(number, 80) * 2430, {gpu_dims},"
        f" {rollup_values(30, 1)} FROM numbers(40000)",
        f"INSERT INTO raw_5m SELECT {OWNERS}, {fortnight} + intDiv(number, 15) * 300, {cluster_dims}, {share},"
        f" {rollup_values(300, 16)} FROM numbers(60000)",
        f"INSERT INTO raw_1h SELECT {OWNERS}, {hours}, {cluster_dims}, {share}, {rollup_values(3600, 16)}"
        " FROM numbers(51240)",
        f"INSERT INTO raw_err SELECT {OWNERS}, {ENTITY}, {event_time}, {gpu_dims}, {event} FROM numbers(3000)",
    ]


KEEP = "tenant_id = 'tenant_a' AND cluster_id IN ('c1', 'c2')"


def build(session: Any, rows: str) -> None:
    """Make tables and views, with the rows of the `caller` alone or of everyone (`full`)."""
    for name, columns in TABLES.items():
        partition, order = ORDER[name]
        session.query(f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree PARTITION BY {partition} ORDER BY ({order})")
    for view, name in VIEWS.items():
        session.query(f"CREATE VIEW {view} AS SELECT * FROM {name}")
    for load in loads():
        session.query(load)
    if rows == "caller":
        for name in TABLES:
            session.query(f"ALTER TABLE {name} DELETE WHERE NOT ({KEEP}) SETTINGS mutations_sync = 2")


def serve(rows: str) -> None:
    """Answer statements until the input ends."""
    from chdb import session as sessions

    with sessions.Session() as session:
        build(session, rows)
        for line in sys.stdin:
            answer: dict[str, Any] = {"rows": [], "error": ""}
            try:
                text = str(session.query(json.loads(line), "JSONCompactEachRow"))
                answer["rows"] = [json.loads(row) for row in text.splitlines() if row]
            except Exception as error:  # noqa: BLE001 - whatever the engine raises is the answer
                answer["error"] = str(error)[:400] or "failed"
                session.query("SELECT 1")
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
