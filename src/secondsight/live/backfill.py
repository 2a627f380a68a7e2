"""Read from the store what was inserted before somebody followed it."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from secondsight.contracts import Store
from secondsight.live.shape import OWNER, SERIES, Shape
from secondsight.store.spec import quoted

SLICE_MS = 300_000
"""Width of the ranges that are read at once."""
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


def count_rows(store: Store, shape: Shape, from_ms: int) -> int:
    """Return how many rows a table has of times from `from_ms` on.

    Raises:
        Retryable, Permanent: As the store says.
    """
    sql = f"SELECT toInt64(count()) AS rows FROM {quoted(shape.table)} WHERE {_bounds(shape)}"  # noqa: S608 - quoted
    return int(store.query(sql, {"start": from_ms, "end": _FAR_MS}, LIMITS)["rows"][0].as_py())


def stored_rows(store: Store, shape: Shape, metrics: Sequence[str], from_ms: int, now_ms: int) -> Iterator[Any]:
    """Yield Arrow tables of all rows of times from `from_ms` on, future ones too, as `Shape` wants them.

    Raises:
        Retryable, Permanent: As the store says.
    """
    columns = [_expression(name) for name in shape.wanted(metrics)]
    sql = f"SELECT {', '.join(columns)} FROM {quoted(shape.table)} WHERE {_bounds(shape)}"  # noqa: S608 - quoted
    edges = [*range(from_ms, max(now_ms, from_ms + 1), SLICE_MS), _FAR_MS]
    for start, end in pairwise(edges):
        rows = store.query(sql, {"start": start, "end": end}, LIMITS)
        if rows.num_rows:
            yield rows


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
