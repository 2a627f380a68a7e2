"""Turn points and their quality into the shapes that go out: rows, columns, CSV, Arrow."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from secondsight.model import EntityKind
from secondsight.query.calendar import unequal_windows
from secondsight.query.compile import label_columns
from secondsight.query.coverage import Coverage
from secondsight.query.plan import Span
from secondsight.query.request import Format, Group
from secondsight.query.times import format_time, format_width

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

FORMULA_SIGNS = frozenset(
    "=+-@\t\r\n\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
)
LABEL_NAMES: dict[str, str] = {
    "tenant_id": "tenantId",
    "region": "region",
    "cluster_id": "clusterId",
    "host_id": "hostId",
    "part": "part",
    "job_id": "jobId",
    "workload_id": "workloadId",
    "owner_team": "ownerTeam",
    "model_id": "modelId",
    "gpu_model": "gpuModel",
}
"""Column -> name in answers; an entity is a `gpuId` or an `entityId`."""


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one metric and one combination of labels; window starts ascend, windows without coverage are absent.

    Attributes:
        labels: Answer name -> value, in ladder order.
        times_ms: Window starts.
        values: Figures in `unit`.
    """

    metric: str
    unit: str
    aggregate: str
    labels: Mapping[str, str]
    times_ms: I64
    values: F64


@dataclass(frozen=True, slots=True)
class Answer:
    """Series with what they are worth.

    Attributes:
        span: Range answered, whole windows.
        resolution_ms: Width of a window.
        expected_from_ms: Earliest instant inside the range at which something was expected, or None.
        complete_through_ms: Every expected collector that is not idle has delivered up to here, or None.
        freshness_ms: Age of the newest event time in scope, or None.
        late_ratio: Share of 1 s rows that came over 10 s after their event time, or None where none was read.
        next_cursor: Where the next page of series starts; "" behind the last.
        timezone: Zone whose clocks windows follow; "" for UTC.
        edges: Where its windows begin, and the last one ends.
    """

    metric: str
    unit: str
    aggregate: str
    series: tuple[Series, ...]
    span: Span
    resolution_ms: int
    coverage: Coverage
    expected_from_ms: int | None = None
    complete_through_ms: int | None = None
    freshness_ms: int | None = None
    late_ratio: float | None = None
    partial: bool = False
    warnings: tuple[str, ...] = ()
    series_total: int = 0
    next_cursor: str = ""
    tier: str = "hot"
    timezone: str = ""
    edges: tuple[int, ...] = ()


def cut_series(points: Any, groups: Sequence[Group]) -> list[tuple[dict[str, str], I64, F64]]:
    """Return (labels, window starts, figures as stored) per series of the rows of a compiled statement."""
    names = label_columns(groups)
    codes, firsts = _series_codes(points, names)
    order = np.lexsort((points["bucket_ms"].to_numpy(), codes))
    times = points["bucket_ms"].to_numpy()[order].astype(np.int64)
    figures = points["figure"].to_numpy(zero_copy_only=False)[order].astype(np.float64)
    known = ~np.isnan(figures)
    edges = np.flatnonzero(np.diff(codes[order], prepend=-1, append=np.iinfo(np.int64).max))
    labels = points.select(names).take(pa.array(firsts)).to_pylist()
    cut = []
    for label, start, end in zip(labels, edges[:-1], edges[1:], strict=True):
        there = known[start:end]
        if there.any():
            cut.append((label, times[start:end][there], figures[start:end][there]))
    return sorted(cut, key=lambda one: tuple(value or "" for value in one[0].values()))


def named_labels(labels: Mapping[str, str | None], kind: EntityKind) -> dict[str, str]:
    """Return labels by their names in answers, from labels by column."""
    names = LABEL_NAMES | {"entity": "gpuId" if kind is EntityKind.GPU else "entityId"}
    return {names.get(column, column): value or "" for column, value in labels.items()}


def to_json(answer: Answer, form: Format) -> dict[str, Any]:
    """Return an answer as the JSON of the read API."""
    grid = _grid(answer.series) if form is Format.COLUMNS else None
    body: dict[str, Any] = {"metric": answer.metric, "unit": answer.unit}
    if grid is not None:
        body["ts"] = grid.tolist()
    body["series"] = [_series_json(series, answer, grid) for series in answer.series]
    return body | _quality_json(answer) | _calendar_json(answer)


def _calendar_json(answer: Answer) -> dict[str, Any]:
    """Return which zone windows follow, and those of them that a change of clocks made longer or shorter."""
    if not answer.timezone:
        return {}
    unequal = [{"ts": format_time(start), "seconds": width // 1000} for start, width in unequal_windows(answer.edges)]
    return {"timezone": answer.timezone, "unequalWindows": unequal}


def top_json(answer: Answer) -> dict[str, Any]:
    """Return a ranking as the JSON of the read API."""
    rows = [
        {"rank": rank, "value": float(series.values[0]), **series.labels, "links": links_of(series, answer.span)}
        for rank, series in enumerate(answer.series, start=1)
    ]
    quality = _quality_json(answer)
    kept = ("aggregate", "completeThrough", "dataFreshnessMs", "coverage", "partial", "warnings")
    body = {"metric": answer.metric, "unit": answer.unit, "window": format_width(answer.resolution_ms), "rows": rows}
    return body | {name: quality[name] for name in kept}


def to_csv(answer: Answer) -> str:
    """Return an answer as CSV: ts, metric, unit, aggregate, labels, value; one line per point."""
    names = list(dict.fromkeys(name for series in answer.series for name in series.labels))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["ts", "metric", "unit", "aggregate", *names, "value"])
    for series in answer.series:
        labels = [inert(series.labels.get(name, "")) for name in names]
        fixed = [series.metric, series.unit, series.aggregate, *labels]
        times = (format_time(time_ms) for time_ms in series.times_ms.tolist())
        writer.writerows([time, *fixed, value] for time, value in zip(times, series.values.tolist(), strict=True))
    return out.getvalue()


def to_arrow(answer: Answer) -> bytes:
    """Return an answer as an Arrow IPC stream of `to_table`."""
    table, sink = to_table(answer), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def to_parquet(answer: Answer) -> bytes:
    """Return an answer as a Parquet file of `to_table`."""
    sink = io.BytesIO()
    pq.write_table(to_table(answer), sink, compression="zstd")
    return sink.getvalue()


def to_table(answer: Answer) -> Any:
    """Return an answer as a table: ts, metric, unit, aggregate, labels, value; quality in the metadata."""
    names = list(dict.fromkeys(name for series in answer.series for name in series.labels))
    lengths = [series.times_ms.size for series in answer.series]
    fixed = {name: [getattr(series, name) for series in answer.series] for name in ("metric", "unit", "aggregate")}
    labels = {name: [series.labels.get(name, "") for series in answer.series] for name in names}
    columns = {
        "ts": pa.array(_joined([series.times_ms for series in answer.series], np.int64), pa.timestamp("ms", "UTC")),
        **{name: _repeated(values, lengths) for name, values in (fixed | labels).items()},
        "value": pa.array(_joined([series.values for series in answer.series], np.float64), pa.float64()),
    }
    quality = {key: str(value) for key, value in _quality_json(answer).items() if key != "coverage"}
    return pa.table(columns).replace_schema_metadata(quality | {"coverage": str(coverage_json(answer.coverage))})


def _series_codes(points: Any, names: Sequence[str]) -> tuple[I64, I64]:
    """Number the combinations of labels; return the number of each row and a row of each number."""
    codes = np.zeros(points.num_rows, np.int64)
    for name in names:
        column = points[name].cast(pa.string()).combine_chunks().dictionary_encode()
        if len(column.dictionary) < 2 and not column.null_count:
            continue
        codes = codes * (len(column.dictionary) + 1) + column.indices.fill_null(len(column.dictionary)).to_numpy()
        _, codes = np.unique(codes, return_inverse=True)
    _, firsts = np.unique(codes, return_index=True)
    return codes.astype(np.int64), firsts.astype(np.int64)


def _grid(series: Sequence[Series]) -> I64:
    """Return every window start that some series has."""
    if len(series) == 1:
        return series[0].times_ms
    return np.unique(np.concatenate([one.times_ms for one in series])) if series else np.empty(0, np.int64)


def _series_json(series: Series, answer: Answer, grid: I64 | None) -> dict[str, Any]:
    body: dict[str, Any] = {
        **series.labels,
        "metric": series.metric,
        "unit": series.unit,
        "aggregate": series.aggregate,
        "links": links_of(series, answer.span),
    }
    if grid is None:
        times = map(format_time, series.times_ms.tolist())
        pairs = zip(times, series.values.tolist(), strict=True)
        return body | {"points": [{"ts": time, "value": value} for time, value in pairs]}
    if series.times_ms.size == grid.size:
        return body | {"values": series.values.tolist()}
    column: list[float | None] = [None] * grid.size
    for place, value in zip(np.searchsorted(grid, series.times_ms).tolist(), series.values.tolist(), strict=True):
        column[place] = value
    return body | {"values": column}


def links_of(series: Series, span: Span) -> dict[str, str]:
    """Return where the next steps of the ladder are for a series."""
    labels = series.labels
    links: dict[str, str] = {}
    if cluster := labels.get("clusterId"):
        links["cluster"] = f"/v1/clusters/{quote(cluster, safe='')}"
    if host := labels.get("hostId"):
        links["host"] = f"/v1/nodes/{quote(host, safe='')}/gpus"
    if gpu := labels.get("gpuId"):
        path = f"/v1/gpus/{quote(gpu, safe='')}"
        links["gpu"] = path
        links["raw"] = f"{path}/telemetry?metrics={series.metric}&from={span.from_ms}&to={span.to_ms}&resolution=1s"
    return links


def _quality_json(answer: Answer) -> dict[str, Any]:
    return {
        "rangeStart": format_time(answer.span.from_ms),
        "rangeEnd": format_time(answer.span.to_ms),
        "effectiveResolution": format_width(answer.resolution_ms),
        "tier": answer.tier,
        "aggregate": answer.aggregate,
        "expectedFrom": None if answer.expected_from_ms is None else format_time(answer.expected_from_ms),
        "completeThrough": None if answer.complete_through_ms is None else format_time(answer.complete_through_ms),
        "dataFreshnessMs": answer.freshness_ms,
        "lateRatio": answer.late_ratio,
        "coverage": coverage_json(answer.coverage),
        "partial": answer.partial,
        "warnings": list(answer.warnings),
        "seriesTotal": answer.series_total,
        "nextCursor": answer.next_cursor or None,
    }


def coverage_json(coverage: Coverage) -> dict[str, Any]:
    """Return a coverage as the JSON of the read API."""
    return {
        "expectedSamples": coverage.expected,
        "storedSamples": coverage.stored,
        "ratio": round(coverage.ratio, 6),
        "gaps": coverage.gaps,
        "shed": coverage.shed,
    }


def inert(text: str) -> str:
    """Return a label that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in FORMULA_SIGNS else text


def _joined(arrays: Iterable[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    found = list(arrays)
    return np.concatenate(found) if found else np.empty(0, dtype)


def _repeated(values: Sequence[str], lengths: Sequence[int]) -> Any:
    codes = np.repeat(np.arange(len(values), dtype=np.int32), lengths)
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(values, pa.string()))
