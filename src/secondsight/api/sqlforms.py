"""Write the rows of a statement as JSON, CSV or Arrow, with what they are worth."""

import csv
import io
from collections.abc import Callable
from datetime import date, datetime
from types import NoneType
from typing import Any

import orjson
import pyarrow as pa
from fastapi import Response

from secondsight.api.models import Shape
from secondsight.api.series import ARROW, CSV, JSON, accepted_type
from secondsight.guard.service import SqlAnswer
from secondsight.query.answer import inert
from secondsight.query.times import format_time

WHOLE_MAXIMUM = 1 << 53
"""Beyond it JSON's readers lose digits."""


class SqlColumn(Shape):
    """One column; `unit` is empty where it has none, or where nobody knows."""

    name: str
    type: str
    unit: str


class SqlRead(Shape):
    """One read of a view, and the time it covers; `stated` is false where the statement named no beginning."""

    view: str
    start: str
    end: str
    stated: bool


class SqlResult(Shape):
    """Rows of a statement, and what they are worth.

    `rows` are lists in the order of `columns`; with `format=columns` there is a list for each column in `values`
    instead. Times are text, whole numbers beyond 2^53 too. `coverage` is the share of the expected GPU-seconds that
    is there.
    """

    question_id: str
    columns: list[SqlColumn]
    rows: list[list[Any]] | None = None
    values: list[list[Any]] | None = None
    row_count: int
    truncated: bool
    milliseconds: int
    rows_read: int
    bytes_read: int
    rows_estimated: int | None
    sql: str
    reads: list[SqlRead]
    complete_through: str | None
    data_freshness_ms: int | None
    coverage: float | None
    result_sha256: str
    warnings: list[str]


def written(answer: SqlAnswer, form: str | None, accept: str) -> Response:
    """Return an answer in the format asked for, else in the type that the caller accepts, else as JSON."""
    named = {"arrow": ARROW, "csv": CSV, "json": JSON, "columns": JSON}.get(form or "") or accepted_type(accept)
    if named == ARROW:
        return Response(_arrow(answer), media_type=ARROW)
    if named == CSV:
        return Response(_csv(answer), media_type=CSV)
    whole = told(answer)
    whole |= {"values": values_of(answer.rows)} if form == "columns" else {"rows": rows_of(answer.rows)}
    return Response(orjson.dumps(SqlResult(**whole).model_dump(by_alias=True, exclude_none=False)), media_type=JSON)


def told(answer: SqlAnswer) -> dict[str, Any]:
    """Return everything of an answer but its rows, by the names of `SqlResult`."""
    quality = answer.quality
    complete_ms = quality.complete_through_ms
    return {
        "question_id": answer.question_id,
        "columns": [SqlColumn(name=one.name, type=one.type, unit=one.unit) for one in answer.columns],
        "row_count": answer.rows.num_rows,
        "truncated": answer.truncated,
        "milliseconds": answer.milliseconds,
        "rows_read": answer.read_rows,
        "bytes_read": answer.read_bytes,
        "rows_estimated": answer.estimated_rows,
        "sql": answer.sql,
        "reads": [
            SqlRead(view=one.view, start=format_time(one.from_ms), end=format_time(one.to_ms), stated=one.stated)
            for one in answer.reads
        ],
        "complete_through": None if complete_ms is None else format_time(complete_ms),
        "data_freshness_ms": quality.freshness_ms,
        "coverage": None if quality.coverage is None else round(quality.coverage, 6),
        "result_sha256": answer.result_sha256,
        "warnings": list(answer.warnings),
    }


def values_of(rows: Any) -> list[list[Any]]:
    """Return a table as lists, one for each column."""
    return [[cell_of(cell) for cell in column.to_pylist()] for column in rows.columns]


def rows_of(rows: Any) -> list[list[Any]]:
    """Return a table as lists, one for each row."""
    return [list(row) for row in zip(*values_of(rows), strict=True)]


def cell_of(cell: Any) -> Any:
    """Return a cell as JSON can hold it without loss: no figure that is none, no whole number beyond 2^53."""
    for kinds, write in _WRITERS:
        if isinstance(cell, kinds):
            return write(cell)
    return str(cell)


_WRITERS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    ((bool, str, NoneType), lambda cell: cell),
    (int, lambda cell: cell if abs(cell) <= WHOLE_MAXIMUM else str(cell)),
    (float, lambda cell: cell if abs(cell) < float("inf") else None),
    (datetime, lambda cell: format_time(round(cell.timestamp() * 1000))),
    (date, date.isoformat),
    (bytes, lambda cell: cell.decode("utf-8", "replace")),
    ((list, tuple), lambda cell: [cell_of(each) for each in cell]),
    (dict, lambda cell: {str(name): cell_of(each) for name, each in cell.items()}),
)


def _csv(answer: SqlAnswer) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([inert(one.name) for one in answer.columns])
    for row in rows_of(answer.rows):
        writer.writerow([inert(cell) if isinstance(cell, str) else cell for cell in row])
    return out.getvalue()


def _arrow(answer: SqlAnswer) -> bytes:
    about = {name: value for name, value in told(answer).items() if name not in ("columns", "reads")}
    units = orjson.dumps({one.name: one.unit for one in answer.columns}).decode()
    rows = answer.rows.replace_schema_metadata({name: str(value) for name, value in about.items()} | {"units": units})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()
