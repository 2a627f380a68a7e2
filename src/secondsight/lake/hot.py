"""Read slices of the hot store: what they hold, what their rows say together, and the rows in portions."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from secondsight.contracts import Store
from secondsight.lake.layout import LakeTable, Slice
from secondsight.lake.rows import Mark, mark_of
from secondsight.store.schema import DATABASE
from secondsight.store.spec import ColumnSpec, TableSpec, quoted

SETTINGS = {"do_not_merge_across_partitions_select_final": 1, "max_execution_time": 300, "max_threads": 2}
PORTION_COLUMNS = ("host_id", "entity", "collector_id")
"""What rows may be divided by, the first two that are in the key."""
SLICES_AT_ONCE = 48
_SECONDS = "DateTime('UTC')"

Bounds = tuple[tuple[str, ...], tuple[str, ...]]
"""First and last values of the columns that rows are divided by, both inside."""


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that are not divided further.

    Attributes:
        names: Values of the columns that rows are divided by.
    """

    names: tuple[str, ...]
    rows: int


def portion_columns(table: LakeTable) -> tuple[str, ...]:
    """Return the columns that rows of a table are divided by; none where they are read at once."""
    return tuple(name for name in PORTION_COLUMNS if name in table.key)[:2]


def portions(groups: Iterable[Group], rows_at_once: int) -> Iterator[Bounds]:
    """Return bounds of portions that have few rows, one group at least, in the order of groups."""
    first: tuple[str, ...] | None = None
    last: tuple[str, ...] = ()
    total = 0
    for group in groups:
        if first is not None and total + group.rows > rows_at_once:
            yield first, last
            first, total = None, 0
        first = group.names if first is None else first
        last, total = group.names, total + group.rows
    if first is not None:
        yield first, last


def hot_specs(store: Store, specs: Mapping[str, TableSpec]) -> dict[str, TableSpec]:
    """Return tables with the columns that the hot store has now, which may be more than a catalogue said at start.

    Raises:
        Retryable: The store is busy or away.
    """
    rows = store.query(
        "SELECT table, name, type, compression_codec AS codec FROM system.columns "
        "WHERE database = {database:String} ORDER BY table, position",
        {"database": DATABASE},
    ).to_pylist()
    found: dict[str, list[ColumnSpec]] = defaultdict(list)
    for row in rows:
        found[row["table"]].append(ColumnSpec(row["name"], row["type"], row["codec"]))
    return {name: replace(spec, columns=tuple(found[name])) for name, spec in specs.items() if name in found}


def slice_marks(store: Store, table: LakeTable, slices: Sequence[Slice]) -> dict[Slice, Mark]:
    """Return what the rows of some slices say together; slices without rows are left out.

    Raises:
        Retryable: The store is busy or away.
    """
    found: dict[Slice, Mark] = {}
    for some in _of_one_place(slices):
        numbers = [each.start_ms // table.slice_ms for each in some]
        total = f"toString(sumWithOverflow(toUInt128({quoted(table.version_column)})))" if table.version_column else "0"
        rows = store.query(
            f"SELECT {number_of(table)} AS number, count() AS rows, {total} AS total "  # noqa: S608 - names of the code
            f"FROM {quoted(table.name)} FINAL WHERE {_within(table)} AND number IN {{numbers:Array(Int64)}} "
            "GROUP BY number",
            _parameters(replace(some[0], end_ms=some[-1].end_ms)) | {"numbers": numbers},
            SETTINGS,
        ).to_pylist()
        marks = {row["number"]: mark_of(row["rows"], int(row["total"])) for row in rows}
        found |= {each: marks[number] for each, number in zip(some, numbers, strict=True) if number in marks}
    return found


def slice_windows(store: Store, table: LakeTable, wanted: Slice, columns: Sequence[str]) -> int:
    """Return how many windows the rows of a slice are of, by columns that tell these apart.

    Raises:
        Retryable: The store is busy or away.
    """
    rows = store.query(
        f"SELECT uniqExact({', '.join(columns)}) AS windows FROM {quoted(table.name)} WHERE {_within(table)}",  # noqa: S608 - names of the code
        _parameters(wanted),
        SETTINGS,
    ).to_pylist()
    return int(rows[0]["windows"])


def groups_of(store: Store, table: LakeTable, wanted: Slice) -> list[Group]:
    """Return what the rows of a slice are divided into, in the order of their names.

    Raises:
        Retryable: The store is busy or away.
    """
    names = portion_columns(table)
    columns = ", ".join(names)
    if not names:
        return [Group((), 0)]
    rows = store.query(
        f"SELECT {columns}, count() AS rows FROM {quoted(table.name)} WHERE {_within(table)} "  # noqa: S608 - names of the code
        f"GROUP BY {columns} ORDER BY {columns}",
        _parameters(wanted),
        SETTINGS,
    ).to_pylist()
    return [Group(tuple(row[name] for name in names), row["rows"]) for row in rows]


def portion_rows(store: Store, table: LakeTable, wanted: Slice, bounds: Bounds) -> Any:
    """Return the rows of a portion of a slice, each once, in no order.

    Raises:
        Retryable: The store is busy or away.
    """
    names = portion_columns(table)
    conditions = [_within(table)]
    parameters = _parameters(wanted)
    for word, sign, values in (("low", ">=", bounds[0]), ("high", "<=", bounds[1])):
        marks = [f"{{{word}{place}:String}}" for place in range(len(names))]
        parameters |= {f"{word}{place}": value for place, value in enumerate(values)}
        if names:
            conditions.append(f"{names[0]} {sign} {marks[0]}")
        if len(names) > 1:
            conditions.append(f"({', '.join(names)}) {sign} ({', '.join(marks)})")
    columns = ", ".join(quoted(column.name) for column in table.spec.columns)
    return store.query(
        f"SELECT {columns} FROM {quoted(table.name)} FINAL WHERE {' AND '.join(conditions)}",  # noqa: S608 - names of the store
        parameters,
        SETTINGS,
    )


def number_of(table: LakeTable) -> str:
    """Return the expression for the number of the slice that a row lies in."""
    return f"intDiv({time_ms_of(table)}, {table.slice_ms})"


def time_ms_of(table: LakeTable, function: str = "") -> str:
    """Return the expression for a row's time in ms, or for an aggregate of it."""
    column = f"{function}({quoted(table.time_column)})" if function else quoted(table.time_column)
    if table.spec.column(table.time_column).type == _SECONDS:
        return f"(toInt64(toUnixTimestamp({column})) * 1000)"
    return f"toUnixTimestamp64Milli({column})"


def between(table: LakeTable) -> str:
    """Return the condition for rows in [start_ms, end_ms), two parameters; it cuts the order key's buckets too."""
    start, end = _instant(table, "start_ms"), _instant(table, "end_ms")
    time = quoted(table.time_column)
    conditions = [f"{time} >= {start}", f"{time} < {end}"]
    for expression in table.spec.order:
        function, bracket, column = expression.partition("(")
        if bracket and column == f"{table.time_column})":
            conditions += [f"{expression} >= {function}({start})", f"{expression} <= {function}({end})"]
    return " AND ".join(conditions)


def _within(table: LakeTable) -> str:
    """Return the condition for rows of a slice."""
    return f"tenant_id = {{tenant:String}} AND cluster_id = {{cluster:String}} AND {between(table)}"


def _instant(table: LakeTable, parameter: str) -> str:
    if table.spec.column(table.time_column).type == _SECONDS:
        return f"toDateTime(intDiv({{{parameter}:Int64}}, 1000), 'UTC')"
    return f"fromUnixTimestamp64Milli({{{parameter}:Int64}}, 'UTC')"


def _parameters(wanted: Slice) -> dict[str, Any]:
    return {
        "tenant": wanted.tenant,
        "cluster": wanted.cluster,
        "start_ms": wanted.start_ms,
        "end_ms": wanted.end_ms,
    }


def _of_one_place(slices: Sequence[Slice]) -> Iterator[list[Slice]]:
    """Divide slices into some of one tenant and cluster, near each other in time."""
    places: dict[tuple[str, str], list[Slice]] = defaultdict(list)
    for each in slices:
        places[each.tenant, each.cluster].append(each)
    for group in places.values():
        group.sort()
        yield from _near(group)


def _near(group: Sequence[Slice]) -> Iterator[list[Slice]]:
    some: list[Slice] = []
    for each in group:
        width_ms = each.end_ms - each.start_ms
        if some and each.end_ms - some[0].start_ms > SLICES_AT_ONCE * width_ms:
            yield some
            some = []
        some.append(each)
    if some:
        yield some
