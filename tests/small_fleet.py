"""One engine to a process, with the rows of a small fleet: of everyone, or of the caller alone.

    python small_fleet.py full 20000 20000 100 1000

The rows are made by arithmetic, so that both sets are the same wherever the caller may look.
"""

import json
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

from guard_fixture import COUNTERS, GAUGES, STATES


class Size(NamedTuple):
    """How many rows there are, and after how many of them counters grow and start again.

    Attributes:
        rollups: Rows of 30 s; all sizes have a fortnight of them.
        thinned: One of so many rows is made, and they are as far apart.
    """

    raw: int
    rollups: int
    growth: int
    restart: int
    thinned: int = 1


DIMS = "job_id String, workload_id String, owner_team LowCardinality(String), model LowCardinality(String)"
SCOPE = "tenant_id LowCardinality(String), cluster_id LowCardinality(String)"
GPU = "host_id String, gpu_id String"
GAUGE_MEMBERS = dict.fromkeys(("avg", "min", "max", "p95", "last"), "Nullable(Float64)") | {"count": "UInt32"}
ROLLUP = ", ".join(
    [
        *(f"{name}_{suffix} {kind}" for name in GAUGES for suffix, kind in GAUGE_MEMBERS.items()),
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
    values = [value for figure in figures.values() for value in (*figure, seconds)]
    return ", ".join((*values, *increases, *states))


def loads(size: Size) -> list[str]:
    """Return the statements that make the rows of everyone."""
    thinned, growth = size.thinned, size.growth
    start = f"toDateTime64('2026-11-20 11:00:00', 3, 'UTC') + intDiv(number, 80) * {thinned}"
    raw = (
        "(number * 7 % 128) / 128, if(number % 29 = 0, NULL, (number * 3 % 128) / 128), number * 1000003 % 85899345920,"
        " 85899345920, if(number % 53 = 0, NULL, 40 + number % 50),"
        " 200 + number % 500 + if(number % 5 >= 2, 150, 0), (1200 + number % 700) * 1e6, 4096 * (number % 1000),"
        f" if(number >= {size.restart} AND intDiv(number, 5) % 16 = 3, number - {size.restart}, number),"
        f" intDiv(number, {3 * growth}), intDiv(number, if(number % 5 >= 2, {3 * growth}, {9 * growth})),"
        f" intDiv(number, {8 * growth}), intDiv(number, {7 * growth}),"
        " if(number % 37 = 0, 8, 0), number % 9"
    )
    gpu_dims = dims("intDiv(number, 20) % 3", "intDiv(number, 5) % 4 = 3")
    cluster_dims = dims("intDiv(number, 5) % 3", "intDiv(number, 5) % 3 = 2")
    share = "16, (256 - number % 17) / 256"
    hours = f"toDateTime('2026-07-01 00:00:00', 'UTC') + intDiv(number, 15) * 3600 * {thinned}"
    event_time = f"toDateTime64('2026-10-21 12:00:00', 3, 'UTC') + number * 860 * {thinned}"
    event = (
        "['xid','ecc','thermal','nvlink','gap'][intDiv(number, 7) % 5 + 1] AS k,"
        " if(k = 'xid', [31, 48, 63, 79, 94][intDiv(number, 35) % 5 + 1], 0),"
        " ['info','warning','critical'][number % 3 + 1], concat(k, if(number % 5 >= 3, ' foreign event', ' event'))"
    )
    fortnight = "toDateTime('2026-11-06 12:00:00', 'UTC')"
    half_minutes = f"{fortnight} + intDiv(number, 80) * {97_200_000 // size.rollups * thinned}"
    minutes = f"{fortnight} + intDiv(number, 15) * {12_000_000 // size.rollups * thinned}"
    return [
        f"INSERT INTO {table} SELECT {OWNERS}, {values} FROM numbers({count // thinned})"
        for table, values, count in (
            ("raw_1s", f"{ENTITY}, {start}, {gpu_dims}, {raw}", size.raw),
            ("raw_30s", f"{ENTITY}, {half_minutes}, {gpu_dims}, {rollup_values(30, 1)}", size.rollups),
            ("raw_5m", f"{minutes}, {cluster_dims}, {share}, {rollup_values(300, 16)}", size.rollups * 3 // 2),
            ("raw_1h", f"{hours}, {cluster_dims}, {share}, {rollup_values(3600, 16)}", 51_240),
            ("raw_err", f"{ENTITY}, {event_time}, {gpu_dims}, {event}", 3_000),
        )
    ]


KEEP = "tenant_id = 'tenant_a' AND cluster_id IN ('c1', 'c2')"


def build(session: Any, rows: str, size: Size) -> None:
    """Make tables and views, with the rows of the `caller` alone or of everyone (`full`)."""
    for name, columns in TABLES.items():
        partition, order = ORDER[name]
        session.query(f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree PARTITION BY {partition} ORDER BY ({order})")
    for view, name in VIEWS.items():
        session.query(f"CREATE VIEW {view} AS SELECT * FROM {name}")
    for load in loads(size):
        session.query(load)
    if rows == "caller":
        for name in TABLES:
            session.query(f"ALTER TABLE {name} DELETE WHERE NOT ({KEEP}) SETTINGS mutations_sync = 2")


class Engine:
    """One engine in a process of its own, with one set of rows."""

    def __init__(self, rows: str, size: Size) -> None:
        command = [sys.executable, str(Path(__file__)), rows, *map(str, size)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def send(self, *statements: str) -> None:
        """Hand over statements, each of which is answered."""
        assert self._process.stdin is not None
        self._process.stdin.write("".join(json.dumps(statement) + "\n" for statement in statements))
        self._process.stdin.flush()

    def next(self) -> str:
        """Wait for the next answer: a line of JSON."""
        line = self._answers.get(timeout=120)
        assert line, "the engine died"
        return line

    def rows(self, statement: str) -> list[list[Any]]:
        """Return the rows of a statement that must not fail, in order."""
        self.send(statement)
        answer = json.loads(self.next())
        assert not answer["error"], (statement, answer["error"])
        return list(answer["rows"])

    def close(self) -> None:
        """End the engine once it has answered everything."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._reader.join(60)
        self._process.stdout.close()

    def _read(self) -> None:
        """Take answers as they come, so that the engine never waits for a full pipe."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")


def serve(rows: str, size: Size) -> None:
    """Answer statements, one JSON text a line, with {"rows": [...], "error": "..."}."""
    from chdb import session as sessions

    with sessions.Session() as session:
        build(session, rows, size)
        # the cache of conditions gives other rows than the condition does
        limits = "max_execution_time = 20, max_memory_usage = 2000000000, max_threads = 1, max_result_rows = 200000"
        limits += ", use_query_condition_cache = 0"
        session.query(f"SET {limits}, readonly = 1")
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
    serve(sys.argv[1], Size(*map(int, sys.argv[2:])))
