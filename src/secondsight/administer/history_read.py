"""Turn files of history into series of samples: Prometheus text, API results and remote-write bodies, CSV, Parquet.

A series is a name and labels, as Prometheus writes them; which metric and whose that is the gateway says, as it does of
what is sent live. Columns of a table that are no time, value or metric are labels.
"""

import csv
import io
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from secondsight.agent.scrape.exposition import Syntax, parse
from secondsight.catalog.index import Catalog
from secondsight.errors import Rejected
from secondsight.gateway.foreign.bodies import unsnappy
from secondsight.gateway.foreign.messages import remote_write
from secondsight.query.times import parse_time

FILE_BYTES_MAXIMUM = 2 << 30
BODY_BYTES_MAXIMUM = 512 << 20
"""What one body of remote write may unpack to."""
DAY_MS = 86_400_000
TIME_COLUMNS = ("ts", "time", "timestamp", "event_time", "time_ms", "timestamp_ms")
LABELS: Mapping[str, str] = {
    "gpuid": "UUID",
    "gpu_id": "UUID",
    "gpu_uuid": "UUID",
    "entity": "UUID",
    "entityid": "UUID",
    "uuid": "UUID",
    "hostid": "Hostname",
    "host_id": "Hostname",
    "host": "Hostname",
    "hostname": "Hostname",
    "node": "Hostname",
}
"""Columns of tables, in lower case -> label that gateways know a GPU and a host by."""
_NO_LABELS = frozenset({"unit", "aggregate", "tenantid", "tenant_id", "clusterid", "cluster_id", "region", "links"})

Labels = tuple[tuple[str, str], ...]
Series = tuple[str, Labels]


class Form(StrEnum):
    """What a file is."""

    PROMETHEUS = "prometheus"
    OPENMETRICS = "openmetrics"
    JSON = "json"
    REMOTE_WRITE = "remote-write"
    CSV = "csv"
    PARQUET = "parquet"


@dataclass(slots=True)
class History:
    """What a file holds.

    Attributes:
        days: Day since 1970 (UTC) -> series -> its (epoch ms, value), in order of the file.
        refused: What was left out, by reason.
    """

    days: dict[int, dict[Series, list[tuple[int, float]]]] = field(default_factory=dict)
    refused: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def samples(self) -> int:
        """Return how many samples there are."""
        return sum(len(some) for series in self.days.values() for some in series.values())

    def add(self, series: Series, time_ms: int | None, value: float | None) -> None:
        """Take one sample, or count why it is none."""
        if time_ms is None:
            self.refused["no time"] += 1
        elif value is None or math.isnan(value):
            self.refused["no value"] += 1
        else:
            day = self.days.setdefault(time_ms // DAY_MS, {})
            day.setdefault(series, []).append((time_ms, value))


def form_of(path: Path) -> Form:
    """Return what a file is, by its name.

    Raises:
        Rejected(unknown_form): Its name does not say.
    """
    known = {
        ".prom": Form.PROMETHEUS,
        ".txt": Form.PROMETHEUS,
        ".om": Form.OPENMETRICS,
        ".openmetrics": Form.OPENMETRICS,
    }
    known |= {".json": Form.JSON, ".csv": Form.CSV, ".parquet": Form.PARQUET}
    known |= dict.fromkeys((".rw", ".snappy", ".sz"), Form.REMOTE_WRITE)
    form = known.get(path.suffix.lower())
    if form is None:
        raise Rejected("unknown_form", f"{path.name} does not say what it is", f"say --form: {', '.join(Form)}")
    return form


def read_history(path: Path, form: Form, catalog: Catalog) -> History:
    """Return what a file holds.

    Raises:
        Rejected: `body_too_large`, or `bad_history_file`: it is not what it should be.
        OSError: It cannot be read.
    """
    if path.stat().st_size > FILE_BYTES_MAXIMUM:
        raise Rejected("body_too_large", f"{path} has more than {FILE_BYTES_MAXIMUM >> 30} GiB", "cut it into pieces")
    if form is Form.PARQUET:
        return _table(_parquet_rows(path), catalog)
    if form is Form.REMOTE_WRITE:
        return _body(path)
    text = path.read_text(errors="surrogateescape")
    if form is Form.CSV:
        return _table(csv.DictReader(io.StringIO(text)), catalog)
    if form is Form.JSON:
        return _api_result(text, path)
    return _exposition(text, Syntax.OPENMETRICS if form is Form.OPENMETRICS else Syntax.TEXT)


def _exposition(text: str, syntax: Syntax) -> History:
    """Read lines of samples; a name inside the braces, as dumps of Prometheus write it, is a name."""
    found = parse(_named(text), syntax)
    history = History()
    for sample in found.samples:
        history.add((sample.name, sample.labels), sample.time_ms, sample.value)
    history.refused["no reading"] += len(found.blanks)
    history.refused["malformed line"] += len(found.rejections)
    return history


def _named(text: str) -> str:
    """Return text with names before the braces."""
    opening = '{__name__="'
    if opening not in text:
        return text
    lines = []
    for line in text.split("\n"):
        if line.startswith(opening):
            name, _, rest = line.removeprefix(opening).partition('"')
            line = name + "{" + rest.removeprefix(",").lstrip(" ")
        lines.append(line)
    return "\n".join(lines)


def _api_result(text: str, path: Path) -> History:
    """Read what `/api/v1/query_range` and `/api/v1/query` answer."""
    try:
        results = json.loads(text)["data"]["result"]
        history = History()
        for one in results:
            labels = dict(one["metric"])
            series = (str(labels.pop("__name__", "")), tuple(sorted((str(k), str(v)) for k, v in labels.items())))
            for seconds, value in one.get("values") or [one["value"]]:
                history.add(series, round(float(seconds) * 1000), float(value))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Rejected(
            "bad_history_file", f"{path} is no answer of Prometheus' API: {error}", "save the whole answer"
        ) from None
    return history


def _body(path: Path) -> History:
    """Read what a sender posted by remote write, 1.0 or 2.0: one body, packed by snappy as it was on the wire."""
    from google.protobuf.message import DecodeError  # the platform has it, an agent alone does not

    try:
        unpacked = unsnappy(path.read_bytes(), BODY_BYTES_MAXIMUM)
        first: Any = remote_write("WriteRequest").FromString(unpacked)
        if first.later_series:
            second: Any = remote_write("Request").FromString(unpacked)
            return _later_series(second)
        history = History()
        for packed in first.timeseries:
            one: Any = remote_write("TimeSeries").FromString(packed)
            _take(history, [(_text(label.name), _text(label.value)) for label in one.labels], one)
    except (Rejected, DecodeError, IndexError) as error:
        hint = "a file is one request's body as it was posted: snappy, remote write 1.0 or 2.0"
        raise Rejected("bad_history_file", f"{path} is no body of remote write: {error}", hint) from None
    return history


def _later_series(request: Any) -> History:
    """Return the series of remote write 2.0, whose texts are numbers of symbols."""
    history, texts = History(), [_text(symbol) for symbol in request.symbols]
    for packed in request.timeseries:
        one: Any = remote_write("Series").FromString(packed)
        names, values = one.labels_refs[::2], one.labels_refs[1::2]
        labels = [(texts[name], texts[value]) for name, value in zip(names, values, strict=False)]
        _take(history, labels, one)
    return history


def _take(history: History, labels: list[tuple[str, str]], one: Any) -> None:
    """Take the samples of a series; a marker of staleness is no value."""
    name = dict(labels).get("__name__", "")
    series = (name, tuple(sorted(pair for pair in labels if pair[0] != "__name__")))
    for sample in one.samples:
        history.add(series, sample.timestamp, sample.value)
    history.refused["native histogram"] += len(one.histograms)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow as pa  # the platform has it, an agent alone does not
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise Rejected("bad_history_file", f"{path} is no Parquet file: {error}") from None
    with file:
        for batch in file.iter_batches():
            yield from batch.to_pylist()


def _table(rows: Iterable[Mapping[str, Any]], catalog: Catalog) -> History:
    """Read rows of `metric` and `value`, or of a column for each metric."""
    history = History()
    shape: _Shape | None = None
    for row in rows:
        shape = shape or _shape_of([name for name in row if name], catalog)
        time_ms = _time_ms(row.get(shape.time), shape.time)
        labels = tuple(
            sorted((label, str(row[name])) for name, label in shape.labels.items() if row.get(name) not in (None, ""))
        )
        if shape.metric:
            history.add((str(row[shape.metric]), labels), time_ms, _number(row.get(shape.value)))
            continue
        for name in shape.metrics:
            if row.get(name) not in (None, ""):
                history.add((name, labels), time_ms, _number(row[name]))
    return history


@dataclass(frozen=True, slots=True)
class _Shape:
    """Which columns of a table are what; `metric` and `value` of a long one, `metrics` of a wide one."""

    time: str
    metric: str
    value: str
    metrics: tuple[str, ...]
    labels: Mapping[str, str]


def _shape_of(names: Sequence[str], catalog: Catalog) -> _Shape:
    lower = {name.lower(): name for name in names}
    time = next((lower[name] for name in TIME_COLUMNS if name in lower), "")
    if not time:
        hint = f"name a column one of {', '.join(TIME_COLUMNS)}"
        raise Rejected("bad_history_file", "no column is a time", hint)
    metric, value = lower.get("metric", ""), lower.get("value", "")
    is_long = bool(metric and value)
    metrics = () if is_long else tuple(name for name in names if name != time and _is_metric(name, catalog))
    if not is_long and not metrics:
        hint = "columns `metric` and `value`, or columns named as metrics of `secondsight metrics list`"
        raise Rejected("bad_history_file", "no column is a metric", hint)
    taken = {time, *((metric, value) if is_long else metrics)}
    labels = {
        name: LABELS.get(name.lower(), name) for name in names if name not in taken and name.lower() not in _NO_LABELS
    }
    return _Shape(time, metric if is_long else "", value if is_long else "", metrics, labels)


def _is_metric(name: str, catalog: Catalog) -> bool:
    try:
        catalog.resolve(name)
    except Rejected:
        return False
    return True


def _time_ms(value: Any, column: str) -> int | None:
    """Return the instant of a cell: a time with a zone, epoch seconds, or epoch milliseconds by size or column name."""
    if value is None or value == "":
        return None
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1000) if value.tzinfo is not None else None
    try:
        number = float(value)
    except ValueError:
        try:
            return parse_time(str(value), 0)
        except Rejected:
            return None
    if not math.isfinite(number):
        return None
    in_ms = column.lower().endswith("_ms") or abs(number) >= 1e11
    return round(number if in_ms else number * 1000)


def _number(value: Any) -> float | None:
    try:
        return None if value in (None, "") else float(value)
    except (TypeError, ValueError):
        return None
