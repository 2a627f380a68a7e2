"""Find and read files of the lake: which are live, which overlap a slice, and their rows in order, piece by piece."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg import expressions as untyped_expressions
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from secondsight.lake.hot import Bounds, Group, portion_columns
from secondsight.lake.layout import LakeTable, Slice
from secondsight.lake.tables import AWAY, away

_expressions: Any = untyped_expressions  # their constructors are typed for what they parse


def live_files(table: Table) -> list[DataFile]:
    """Return every file that the current snapshot is made of.

    Raises:
        Retryable: Some metadata cannot be read.
    """
    if table.current_snapshot() is None:
        return []
    try:
        return [task.file for task in table.scan().plan_files()]
    except AWAY as error:
        raise away(error) from error


def overlapping_files(table: Table, shape: LakeTable, wanted: Slice) -> list[DataFile]:
    """Return the live files that may hold rows of a slice.

    Raises:
        Retryable: Some metadata cannot be read.
    """
    if table.current_snapshot() is None:
        return []
    where = _expressions.And(
        _expressions.EqualTo("tenant_id", wanted.tenant),
        _expressions.EqualTo("cluster_id", wanted.cluster),
        _expressions.GreaterThanOrEqual(shape.time_column, _stamp(wanted.start_ms)),
        _expressions.LessThan(shape.time_column, _stamp(wanted.end_ms)),
    )
    try:
        return [task.file for task in table.scan(row_filter=where).plan_files()]
    except AWAY as error:
        raise away(error) from error


def time_bounds(file: DataFile, schema: Schema, shape: LakeTable) -> tuple[int, int]:
    """Return the times of a file's first and last row in ms; (0, 0) where it does not say."""
    field_id = schema.find_field(shape.time_column).field_id
    bounds = [(each or {}).get(field_id) for each in (file.lower_bounds, file.upper_bounds)]
    found = [int.from_bytes(raw, "little", signed=True) // 1000 for raw in bounds if raw is not None]
    return (found[0], found[1]) if len(found) == 2 else (0, 0)


def tenant_of(file: DataFile, schema: Schema) -> str | None:
    """Return the tenant of a file's rows, None where there may be several."""
    field_id = schema.find_field("tenant_id").field_id
    low, high = (file.lower_bounds or {}).get(field_id), (file.upper_bounds or {}).get(field_id)
    return low.decode() if low is not None and low == high else None


class FileRows:
    """Rows of one file in the order of what they are divided by. For one thread.

    Args:
        io: Opens it.
        location: Its address.
        shape: Whose rows they are.
        schema: Arrow schema of the table, which rows are returned in; columns that the file lacks are left out.

    Raises:
        Retryable: The file cannot be read.
    """

    def __init__(self, io: FileIO, location: str, shape: LakeTable, schema: pa.Schema) -> None:
        self._names = portion_columns(shape)
        self._schema = schema
        try:
            self._file = pq.ParquetFile(io.new_input(location).open())
        except AWAY as error:
            raise away(error) from error
        self._columns = [name for name in schema.names if name in self._file.schema_arrow.names]
        self._next = 0
        self._rest: pa.Table | None = None
        self._whole = not _is_in_order(self._file.metadata, self._names)

    def groups(self) -> list[Group]:
        """Return what the rows are divided into, in order.

        Raises:
            Retryable: The file cannot be read.
        """
        if not self._names:
            return [Group((), self._file.metadata.num_rows)]
        try:
            keys = self._file.read(columns=list(self._names))
        except AWAY as error:
            raise away(error) from error
        counted = keys.group_by(list(self._names)).aggregate([([], "count_all")])
        found = [Group(tuple(row[name] for name in self._names), row["count_all"]) for row in counted.to_pylist()]
        return sorted(found, key=lambda group: group.names)

    def take_through(self, bounds: Bounds) -> pa.Table:
        """Return the rows up to the end of a portion that were not returned yet.

        Raises:
            Retryable: The file cannot be read.
        """
        taken: list[pa.Table] = []
        while (rows := self._rest if self._rest is not None else self._read()) is not None:
            inside = _through(rows, self._names, bounds[1])
            taken.append(rows.filter(inside))
            rest = rows.filter(pc.invert(inside))
            self._rest = rest if rest.num_rows else None
            if self._rest is not None:
                break
        return pa.concat_tables(taken) if taken else self._schema.empty_table().select(self._columns)

    def is_finished(self) -> bool:
        """Tell whether every row was returned."""
        return self._rest is None and self._next >= self._file.metadata.num_row_groups

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._file.close(force=True)

    def _read(self) -> pa.Table | None:
        """Return the rows of the next row group, or of all where they are in no order; None after the last."""
        count = self._file.metadata.num_row_groups
        if self._next >= count:
            return None
        wanted = range(self._next, count) if self._whole else [self._next]
        try:
            rows = self._file.read_row_groups(list(wanted), columns=self._columns)
        except AWAY as error:
            raise away(error) from error
        self._next = wanted[-1] + 1
        fields = [self._schema.field(name) for name in self._columns]
        return rows.select(self._columns).cast(pa.schema(fields))


def merged_groups(sources: Iterable[Sequence[Group]]) -> list[Group]:
    """Return groups of several sources as one list in order; rows of equal names add up."""
    total: dict[tuple[str, ...], int] = {}
    for groups in sources:
        for group in groups:
            total[group.names] = total.get(group.names, 0) + group.rows
    return [Group(names, rows) for names, rows in sorted(total.items())]


def _through(rows: Any, names: tuple[str, ...], last: tuple[str, ...]) -> Any:
    """Tell of rows whether they stand at or before the end of a portion."""
    if not names:
        return pa.array([True] * rows.num_rows)
    column = rows.column(names[0])
    if len(names) == 1:
        return pc.less_equal(column, last[0])
    inner = pc.and_(pc.equal(column, last[0]), pc.less_equal(rows.column(names[1]), last[1]))
    return pc.or_(pc.less(column, last[0]), inner)


def _is_in_order(metadata: Any, names: tuple[str, ...]) -> bool:
    """Tell whether no row group holds rows that belong before the one in front of it, as far as statistics say."""
    if not names or metadata.num_row_groups < 2:
        return True
    place = next(number for number in range(metadata.num_columns) if metadata.schema.column(number).path == names[0])
    found = [metadata.row_group(number).column(place).statistics for number in range(metadata.num_row_groups)]
    if any(each is None or not each.has_min_max for each in found):
        return False
    return all(before.max <= after.min for before, after in pairwise(found))


def _stamp(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="microseconds")
