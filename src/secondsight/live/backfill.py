"""Read from the store what was inserted before somebody followed it."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from secondsight.contracts import Store
from secondsight.live.shape import OWNER, SERIES, Shape
from secondsight.store.spec import quoted

COUNTED_MS = 30_000
"""Rows are counted by ranges of so much, from epoch on."""
SLICE_ROWS = 200_000
"""About as many rows are read at once: an answer lies in the memory of who asks and of who answers."""
SLICE_LEAST_MS = 1_000
LIMITS = {"max_execution_time": 60, "max_threads": 2}
_FAR_MS = 9_000_000_000_000
_WIDE = {
    "version_hi": "toUInt64(bitShiftRight(version, 64)) AS version_hi",
    "version_lo": "toUInt64(bitAnd(version, toUInt128(18446744073709551615))) AS version_lo",
}


def present_columns(store: Store, tables: Sequence[str]) -> dict[str, frozenset[str]]:
    """Return the columns that each of some tables has.

    Raises:
        Retryable, Permanent: As the store says.
    """
    sql = (
        "SELECT table, name FROM system.columns WHERE database = currentDatabase() AND table IN {tables:Array(String)}"
    )
    found: dict[str, set[str]] = {}
    for row in store.query(sql, {"tables": list(tables)}).to_pylist():
        found.setdefault(row["table"], set()).add(row["name"])
    return {table: frozenset(names) for table, names in found.items()}


def counted_rows(store: Store, shape: Shape, from_ms: int) -> dict[int, int]:
    """Return start of a range of `COUNTED_MS` -> how many rows a table has of it, of times from `from_ms` on.

    Raises:
        Retryable, Permanent: As the store says.
    """
    milliseconds = f"toUnixTimestamp64Milli(toDateTime64({shape.time}, 3, 'UTC'))"
    start = f"intDiv({milliseconds}, {COUNTED_MS}) * {COUNTED_MS}"
    counts = f"SELECT toInt64({start}) AS start, toInt64(count()) AS rows FROM {quoted(shape.table)}"  # noqa: S608 - quoted
    found = store.query(f"{counts} WHERE {_bounds(shape)} GROUP BY start", {"start": from_ms, "end": _FAR_MS}, LIMITS)
    return dict(zip(found["start"].to_pylist(), found["rows"].to_pylist(), strict=True)) if found.num_rows else {}


def stored_rows(
    store: Store, shape: Shape, metrics: Sequence[str], from_ms: int, counts: Mapping[int, int]
) -> Iterator[Any]:
    """Yield Arrow tables of all rows of times from `from_ms` on, future ones too, as `Shape` wants them.

    Args:
        store: Where they are.
        shape: Of the table.
        metrics: Columns of it beside those of the shape.
        from_ms: Event time, epoch ms.
        counts: What `counted_rows` found, by which the ranges are chosen that are read at once.

    Raises:
        Retryable, Permanent: As the store says.
    """
    columns = [_expression(name) for name in shape.wanted(metrics)]
    sql = f"SELECT {', '.join(columns)} FROM {quoted(shape.table)} WHERE {_bounds(shape)}"  # noqa: S608 - quoted
    for start, end in pairwise(_edges(from_ms, counts)):
        rows = store.query(sql, {"start": start, "end": end}, LIMITS)
        if rows.num_rows:
            yield rows


def _edges(from_ms: int, counts: Mapping[int, int]) -> list[int]:
    """Return where ranges begin that hold about `SLICE_ROWS` rows each, and where the last one ends."""
    edges, held = [from_ms], 0
    for start, rows in sorted(counts.items()):
        if held + rows > SLICE_ROWS and start > edges[-1]:
            edges.append(start)
            held = 0
        held += rows
        if held > SLICE_ROWS:
            step_ms = max(COUNTED_MS * SLICE_ROWS // held, SLICE_LEAST_MS)
            edges += [edge for edge in range(start + step_ms, start + COUNTED_MS, step_ms) if edge > edges[-1]]
            held = SLICE_ROWS
    return [*edges, _FAR_MS]


def _bounds(shape: Shape) -> str:
    """Return the predicate for a range of times; the second pair is what the order key is cut by."""
    start, end = ("fromUnixTimestamp64Milli({%s:Int64}, 'UTC')" % name for name in ("start", "end"))  # noqa: UP031
    bucket = "toStartOfHour" if shape.is_owned else "toStartOfTenMinutes"
    time = f"toDateTime64({shape.time}, 3, 'UTC')"
    key = f"{bucket}({shape.time})"
    return f"{time} >= {start} AND {time} < {end} AND {key} >= {bucket}({start})"


def _expression(name: str) -> str:
    if name in _WIDE:
        return _WIDE[name]
    return f"toString({name}) AS {name}" if name in (*SERIES, *OWNER, "boot_id") else quoted(name)
