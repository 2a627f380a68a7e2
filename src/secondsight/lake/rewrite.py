"""Make the files that replace some others: rows of slices of the hot store, united with all rows of these files.

With no slices that is a compaction, with no files the first copy of a slice. Memory is bounded by the portions in
which rows are read, united and written.
"""

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from secondsight.contracts import Store
from secondsight.errors import Retryable
from secondsight.lake.hot import groups_of, portion_rows, portions
from secondsight.lake.layout import LakeTable, Slice, period_number
from secondsight.lake.lesser import without_lesser
from secondsight.lake.parquet import FileShape, FileWriter, Written
from secondsight.lake.rows import Mark, lake_rows, mark_of, version_sum
from secondsight.lake.schema import LakeColumn, arrow_schema, lake_columns
from secondsight.lake.stored import FileRows, merged_groups
from secondsight.lake.tables import AWAY, away
from secondsight.lake.union import united


@dataclass(frozen=True, slots=True)
class Bound:
    """What memory and files may hold.

    Attributes:
        portion_values: Values in memory at once.
        file_bytes: Size beyond which the next file begins.
    """

    portion_values: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class Job:
    """Files to be made.

    Attributes:
        slices: What is read from the hot store.
        files: Live files whose rows they take over.
        time_ms: An instant of their partition.
        cluster: Cluster of their partition.
    """

    slices: tuple[Slice, ...]
    files: tuple[DataFile, ...]
    time_ms: int
    cluster: str


@dataclass(frozen=True, slots=True)
class Made:
    """Files that were made and are not committed yet.

    Attributes:
        added: The files.
        removed: Those whose place they take.
        marks: What the hot store's rows of each slice said.
        rows: Rows in the files.
        left: Rows of the hot store that are not in them, as the lake knew more of their windows.
    """

    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    marks: dict[Slice, Mark]
    rows: int
    left: int

    @property
    def size_bytes(self) -> int:
        """Return the size of the files that were made."""
        return sum(file.file_size_in_bytes for file in self.added)


class Rewriter:
    """Makes files of one table, as it is at one snapshot. For one thread.

    Args:
        table: The table in the lake.
        shape: How it lies there.
        store: The hot store; None where nothing is read from it.
        bound: What memory and files may hold.
        handed: Addresses of files that are being made, which no clean-up may touch; filled here.
    """

    def __init__(self, table: Table, shape: LakeTable, store: Store | None, bound: Bound, handed: set[str]) -> None:
        self._table = table
        self._shape = shape
        self._store = store
        self._bound = bound
        self._handed = handed
        self._schema = arrow_schema(table.schema())
        self._columns: tuple[LakeColumn, ...] = lake_columns(shape)

    def make(self, job: Job) -> Made:
        """Write the files of a job.

        Raises:
            Retryable: The hot store, a file or the object store is away; what was written stays without a name.
        """
        try:
            return self._make(job)
        except AWAY as error:
            raise away(error) from error

    def _make(self, job: Job) -> Made:
        writer = FileWriter(self._file_shape(), lambda: self._create(job))
        counts = dict.fromkeys(job.slices, (0, 0))
        rows_at_once = max(self._bound.portion_values // len(self._schema), 1)
        with ExitStack() as stack:
            stack.callback(writer.abandon)
            files = [FileRows(self._table.io, file.file_path, self._shape, self._schema) for file in job.files]
            for file in files:
                stack.callback(file.close)
            groups = merged_groups([*(self._groups(each) for each in job.slices), *(file.groups() for file in files)])
            rows = left = 0
            for bounds in portions(groups, rows_at_once):
                hot = self._hot_rows(job.slices, bounds, counts)
                known = [file.take_through(bounds) for file in files]
                taken = None if hot is None else without_lesser(self._shape, hot, known)
                left += 0 if hot is None or taken is None else hot.num_rows - taken.num_rows
                whole = united(self._shape, taken, known)
                rows += whole.num_rows
                writer.write(whole)
            if not all(file.is_finished() for file in files):
                raise Retryable(f"rows of a file of {self._shape.name} were not read; it is not replaced")
            added = tuple(self._data_file(written, job) for written in writer.close())
        if sum(file.record_count for file in added) != rows:
            raise Retryable(f"files of {self._shape.name} do not hold the rows that were written to them")
        marks = {each: mark_of(*count) for each, count in counts.items()}
        return Made(added, job.files, marks, rows, left)

    def _groups(self, wanted: Slice) -> Any:
        return groups_of(self._hot(), self._shape, wanted)

    def _hot_rows(self, slices: Sequence[Slice], bounds: Any, counts: dict[Slice, tuple[int, int]]) -> pa.Table | None:
        """Return the rows of a portion of some slices, and add them to what is counted of each."""
        found = []
        for each in slices:
            rows = portion_rows(self._hot(), self._shape, each, bounds)
            versions = version_sum(rows.column(self._shape.version_column)) if self._shape.version_column else 0
            before = counts[each]
            counts[each] = (before[0] + rows.num_rows, (before[1] + versions) % (1 << 128))
            found.append(lake_rows(rows, self._columns, self._schema))
        return pa.concat_tables(found) if found else None

    def _hot(self) -> Store:
        if self._store is None:
            raise TypeError("slices are read from a hot store")
        return self._store

    def _file_shape(self) -> FileShape:
        keys = tuple(dict.fromkeys(["tenant_id", "cluster_id", self._shape.time_column, *self._shape.key]))
        return FileShape(self._columns, self._schema, keys, self._bound.file_bytes)

    def _create(self, job: Job) -> tuple[str, Any]:
        number = period_number(self._shape.period, job.time_ms)
        location = f"{self._table.location()}/data/{self._shape.period}-{number}/{uuid.uuid4()}.parquet"
        self._handed.add(location)
        return location, self._table.io.new_output(location).create()

    def _data_file(self, written: Written, job: Job) -> DataFile:
        schema = self._table.schema()
        statistics = data_file_statistics_from_parquet_metadata(
            written.metadata,
            compute_statistics_plan(schema, self._table.metadata.properties),
            parquet_path_to_id_mapping(schema),
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=written.location,
            file_format=FileFormat.PARQUET,
            partition=Record(period_number(self._shape.period, job.time_ms), job.cluster),
            file_size_in_bytes=written.size_bytes,
            sort_order_id=None,
            spec_id=self._table.metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
