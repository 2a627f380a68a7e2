"""Turn a table of the hot store into an Iceberg schema, and say how each column is written.

Values stay the integers that the hot store keeps: physical value = stored x the metric's resolution. Iceberg has no
unsigned integers: 8 to 32 bits get a wider type, 64 bits lie in a `long` with the same bits (`UNSIGNED` says which).
A 128-bit version is 16 bytes, greatest first, so that bytes order as numbers do. Times are microseconds.

Raw rows of a lake are settled and alone with their key, so they have no version. What of it the row does not say
itself, which allocation it was stamped from, is the column `attribution_version`.

A field's id is given once by the table and never again: schemas only grow, by optional fields.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform, MonthTransform, Transform, YearTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    TimestamptzType,
)

from secondsight.lake.layout import LakeTable
from secondsight.store.spec import ColumnSpec

ATTRIBUTION_VERSION = "attribution_version"
UNSIGNED = "UInt64"
"""Doc of fields whose 64 bits are those of an unsigned integer."""
DICTIONARY = "dictionary"
DELTA = "DELTA_BINARY_PACKED"
SPLIT = "BYTE_STREAM_SPLIT"

_PLAIN: dict[str, type[IcebergType]] = {
    "String": StringType,
    "UInt8": IntegerType,
    "UInt16": IntegerType,
    "Int8": IntegerType,
    "Int16": IntegerType,
    "Int32": IntegerType,
    "UInt32": LongType,
    "Int64": LongType,
    "UInt64": LongType,
    "Float64": DoubleType,
}
_WRAPPED = re.compile(r"(Nullable|LowCardinality)\((.*)\)")
_PERIODS: dict[str, Transform[int, int]] = {
    "day": DayTransform(),
    "month": MonthTransform(),
    "year": YearTransform(),
}


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """One column of a table in the lake.

    Attributes:
        name: Its name, as in the hot store.
        hot_type: ClickHouse type there, without Nullable and LowCardinality.
        is_noisy: Successive values mostly differ.
    """

    name: str
    hot_type: str
    is_noisy: bool

    @property
    def encoding(self) -> str:
        """Return how values are written: by `DICTIONARY`, `DELTA` or `SPLIT`."""
        if self.hot_type in ("String", "Float64", "UInt128") or self.hot_type.startswith(("Map", "Array", "Decimal")):
            return DICTIONARY  # DuckDB reads bytes of a fixed length in no other encoding
        if self.is_noisy:
            return SPLIT
        return DELTA


def lake_columns(table: LakeTable) -> tuple[LakeColumn, ...]:
    """Return the columns of a table in the lake, in the order of the hot store's."""
    return tuple(_column(table, column) for column in table.spec.columns)


def new_schema(table: LakeTable) -> Schema:
    """Return the schema that a table is created with; ids are in order."""
    ids = iter(range(1, 1_000_000))
    columns = lake_columns(table)
    required = {"tenant_id", "cluster_id", table.time_column}
    numbers = {column.name: next(ids) for column in columns}
    return Schema(
        *(
            NestedField(
                numbers[column.name],
                column.name,
                iceberg_type(column.hot_type, ids),
                required=column.name in required,
                doc=column.hot_type,
            )
            for column in columns
        )
    )


def missing_columns(table: LakeTable, schema: Schema) -> tuple[LakeColumn, ...]:
    """Return the columns that a table of the lake lacks."""
    known = set(schema.column_names)
    return tuple(column for column in lake_columns(table) if column.name not in known)


def partition_spec(table: LakeTable, schema: Schema) -> PartitionSpec:
    """Return the partitions of a table: its period and cluster."""
    time_id = schema.find_field(table.time_column).field_id
    cluster_id = schema.find_field("cluster_id").field_id
    return PartitionSpec(
        PartitionField(time_id, 1000, _PERIODS[table.period], f"{table.time_column}_{table.period}"),
        PartitionField(cluster_id, 1001, IdentityTransform(), "cluster_id"),
    )


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema, with the fields' ids, that files of a table are written with."""
    return schema_to_pyarrow(schema, include_field_ids=True)


def bare_type(hot_type: str) -> str:
    """Return a ClickHouse type without Nullable and LowCardinality around it."""
    while found := _WRAPPED.fullmatch(hot_type):
        hot_type = found[2]
    return hot_type


def iceberg_type(hot_type: str, ids: Iterable[int]) -> IcebergType:
    """Return the type that a ClickHouse type becomes.

    Args:
        hot_type: ClickHouse type.
        ids: Gives the ids of what lies inside lists and maps.

    Raises:
        ValueError: The lake has no such type.
    """
    bare = bare_type(hot_type)
    if bare in _PLAIN:
        return _PLAIN[bare]()
    if bare == "UInt128":
        return FixedType(16)
    if bare.startswith("DateTime"):
        return TimestamptzType()
    if bare.startswith("Decimal("):
        precision, scale = (int(number) for number in bare[8:-1].split(","))
        return DecimalType(precision, scale)
    return _nested_type(bare, ids)


def _nested_type(bare: str, ids: Iterable[int]) -> IcebergType:
    numbers = iter(ids)
    if bare.startswith("Array("):
        return ListType(next(numbers), iceberg_type(bare[6:-1], numbers), element_required=False)
    if bare.startswith("Map("):
        key, _, value = bare[4:-1].partition(", ")
        return MapType(
            next(numbers),
            iceberg_type(key, numbers),
            next(numbers),
            iceberg_type(value, numbers),
            value_required=False,
        )
    raise ValueError(f"the lake has no type for {bare}")


def _column(table: LakeTable, column: ColumnSpec) -> LakeColumn:
    if table.is_raw and column.name == table.version_column:
        return LakeColumn(ATTRIBUTION_VERSION, "UInt32", is_noisy=False)
    return LakeColumn(column.name, bare_type(column.type), "T64" in column.codec)
