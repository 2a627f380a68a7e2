"""Write sorted rows to Parquet files of bounded size, each column in the encoding that its values are smallest in.

Noisy integers are split into streams of bytes, others into differences, texts into dictionaries; zstd on top. A column
without any value in a file is left out of it. Statistics are kept of keys alone, which is what files are pruned by.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from secondsight.lake.schema import DELTA, DICTIONARY, SPLIT, LakeColumn

ZSTD_LEVEL = 3
PAGE_BYTES = 1 << 20
PAGE_ROWS = 1_000_000
"""Pages are cut by size alone: a column of one value is one page."""


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was written.

    Attributes:
        location: Its address.
        size_bytes: Its size.
        metadata: Its Parquet footer.
    """

    location: str
    size_bytes: int
    metadata: Any


@dataclass(frozen=True, slots=True)
class FileShape:
    """How files of a table are written.

    Attributes:
        columns: Its columns.
        schema: Arrow schema with the ids of its fields.
        keys: Columns whose least and greatest values are kept.
        file_bytes: Size beyond which the next file begins.
    """

    columns: tuple[LakeColumn, ...]
    schema: pa.Schema
    keys: Collection[str]
    file_bytes: int


class FileWriter:
    """Writes portions of rows, each a row group, to as many files as they need.

    Args:
        shape: How files are written.
        create: Returns the address of the next file and a stream to write it by, which closing makes durable.
    """

    def __init__(self, shape: FileShape, create: Callable[[], tuple[str, Any]]) -> None:
        self._shape = shape
        self._create = create
        self._open: _OpenFile | None = None
        self._seen: set[str] = set()
        self.written: list[Written] = []

    def write(self, rows: pa.Table) -> None:
        """Write a portion; it follows the one before it in the order of rows.

        Raises:
            OSError: The file cannot be written.
        """
        if not rows.num_rows:
            return
        self._seen |= _with_values(rows)
        if self._open is not None and not self._seen <= self._open.names:
            self._finish()
        if self._open is None:
            names = [name for name in self._shape.schema.names if name in self._seen]
            self._open = _OpenFile(*self._create(), self._shape, names)
        self._open.write(rows)
        if self._open.size_bytes >= self._shape.file_bytes:
            self._finish()

    def close(self) -> list[Written]:
        """Finish the last file and return all of them.

        Raises:
            OSError: The file cannot be written.
        """
        self._finish()
        return self.written

    def abandon(self) -> None:
        """Let go of a file that was begun: on disk it never gets its name, in an object store it is an orphan."""
        if self._open is not None:
            self._open.abandon()
            self._open = None

    def _finish(self) -> None:
        if self._open is not None:
            self.written.append(self._open.close())
            self._open = None


class _OpenFile:
    def __init__(self, location: str, stream: Any, shape: FileShape, names: list[str]) -> None:
        self.names = frozenset(names)
        self._location = location
        self._stream = stream
        self._schema = pa.schema([shape.schema.field(name) for name in names])
        self._writer = pq.ParquetWriter(
            pa.PythonFile(stream, "w"), self._schema, **_options(shape, self.names), store_schema=False
        )

    @property
    def size_bytes(self) -> int:
        return int(self._stream.tell())

    def write(self, rows: pa.Table) -> None:
        columns = [
            rows.column(field.name) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
            for field in self._schema
        ]
        table = pa.Table.from_arrays(columns, schema=self._schema)
        self._writer.write_table(table, row_group_size=max(rows.num_rows, 1))

    def close(self) -> Written:
        self._writer.close()
        size_bytes = self.size_bytes
        metadata = self._writer.writer.metadata
        self._stream.close()
        return Written(self._location, size_bytes, metadata)

    def abandon(self) -> None:
        self._writer.is_open = False  # else it would write its footer when it is collected
        abort = getattr(self._stream, "abort", None)
        if abort is not None:
            abort()


def _with_values(rows: pa.Table) -> set[str]:
    """Return the columns that have a value, a list or an entry of a map in any row."""
    return {name for name, column in zip(rows.column_names, rows.columns, strict=True) if _has_values(column)}


def _has_values(column: Any) -> bool:
    if column.null_count == len(column):
        return False
    if pa.types.is_list(column.type):
        return bool(pc.max(pc.list_value_length(column)).as_py())
    if pa.types.is_map(column.type):
        return any(len(chunk.keys) for chunk in column.chunks)
    return True


def _options(shape: FileShape, names: Collection[str]) -> dict[str, Any]:
    encodings: dict[str, list[str]] = {DICTIONARY: [], DELTA: [], SPLIT: []}
    for column in shape.columns:
        if column.name in names:
            for path in _paths(column):
                encodings[column.encoding].append(path)
    others: Mapping[str, str] = {name: encoding for encoding in (DELTA, SPLIT) for name in encodings[encoding]}
    return {
        "compression": "zstd",
        "compression_level": ZSTD_LEVEL,
        "use_dictionary": encodings[DICTIONARY],
        "column_encoding": dict(others),
        "write_statistics": [name for name in shape.keys if name in names],
        "data_page_size": PAGE_BYTES,
        "max_rows_per_page": PAGE_ROWS,
        "version": "2.6",
    }


def _paths(column: LakeColumn) -> list[str]:
    """Return the paths in Parquet of what a column holds."""
    if column.hot_type.startswith("Map"):
        return [f"{column.name}.key_value.key", f"{column.name}.key_value.value"]
    if column.hot_type.startswith("Array"):
        return [f"{column.name}.list.element"]
    return [column.name]
