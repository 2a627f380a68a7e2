"""Find the files of the lake that can hold rows of a question, and write them as a source that DuckDB reads.

Files are pruned by partition and by the least and greatest values of keys that their manifests hold. What was planned
is kept while the table does not change. Columns are found by the ids of their fields; a file that is older than a
column has none of it, and reads as absent.
"""

import itertools
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow.dataset as pads
from pyiceberg import expressions as untyped_expressions
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from secondsight.clock import Clock
from secondsight.lake.cold_request import Reach
from secondsight.lake.layout import TIMES
from secondsight.lake.schema import UNSIGNED, arrow_schema, bare_type, iceberg_type
from secondsight.lake.tables import AWAY, Lake, away
from secondsight.store.spec import TableSpec

FRESH_SECONDS = 2.0
"""How long a table is taken for unchanged."""
KEPT_PLANS = 512
NAMES_MAXIMUM = 200
"""More names than this prune nothing."""
_TYPES = {"int": "INTEGER", "long": "BIGINT", "double": "DOUBLE", "string": "VARCHAR", "timestamptz": "TIMESTAMPTZ"}
_TWO_TO_64 = 1 << 64
_expressions: Any = untyped_expressions
"""Its constructors take more than their types say."""


@dataclass(frozen=True, slots=True)
class Source:
    """Rows of one table.

    Attributes:
        sql: SELECT of the columns asked for, under their names and with the hot store's meaning.
        dataset: Arrow dataset that the SELECT reads by the name `relation`, where files are not of this machine.
        files: How many are read.
        size_bytes: Their size.
    """

    sql: str
    relation: str
    dataset: Any
    files: int
    size_bytes: int


class ColdFiles:
    """Plans sources of one lake. For one thread.

    Args:
        open_lake: Opens the lake; called when it is first needed, and again after trouble.
        specs: Tables of the hot store, for what a table has that was never written to the lake.
    """

    def __init__(self, open_lake: Callable[[], Lake], specs: Mapping[str, TableSpec], clock: Clock) -> None:
        self._open = open_lake
        self._specs = specs
        self._clock = clock
        self._lake: Lake | None = None
        self._tables: dict[str, tuple[float, Table | None]] = {}
        self._plans: OrderedDict[Any, tuple[tuple[str, int], ...]] = OrderedDict()

    def source(self, name: str, plain: Collection[str], quoted: Collection[str], reach: Reach) -> Source:
        """Return the rows of a table that a question can want.

        Args:
            name: The table.
            plain: Words of the statement, of which some may be columns.
            quoted: Identifiers of the statement that are columns of some table.
            reach: What files are pruned by.

        Raises:
            Retryable: The lake is away.
        """
        table = self._table(name)
        types = self._types(name, table)
        columns = {word: types.get(word, "BIGINT") for word in sorted({*quoted, *(types.keys() & set(plain))})}
        try:
            files = () if table is None else self._planned(name, table, reach)
        except AWAY as error:
            self._forget()
            raise away(error) from error
        if table is None or not files:
            shown = ", ".join(_absent(column, kind) for column, kind in columns.items())
            return Source(f"SELECT {shown or '1'} WHERE false", "", None, 0, 0)
        return _source(name, table, columns, files)

    def unsigned(self, name: str) -> frozenset[str]:
        """Return the columns of a table whose numbers have no sign in the hot store."""
        spec = self._specs.get(name)
        columns = () if spec is None else spec.columns
        return frozenset(column.name for column in columns if bare_type(column.type).startswith("UInt"))

    def close(self) -> None:
        """Close the lake; may be called twice."""
        self._forget()

    def _table(self, name: str) -> Table | None:
        now = self._clock.monotonic_seconds()
        known = self._tables.get(name)
        if known is not None and now - known[0] < FRESH_SECONDS:
            return known[1]
        self._lake = self._lake or self._open()
        table = self._lake.table(name)
        self._tables[name] = (now, table)
        return table

    def _planned(self, name: str, table: Table, reach: Reach) -> tuple[tuple[str, int], ...]:
        """Return (address, size) of files, in no order."""
        key = (name, table.metadata_location, reach)
        known = self._plans.get(key)
        if known is None:
            tasks = table.scan(row_filter=pruning(table.schema(), reach)).plan_files()
            known = tuple((task.file.file_path, task.file.file_size_in_bytes) for task in tasks)
            self._plans[key] = known
            while len(self._plans) > KEPT_PLANS:
                self._plans.popitem(last=False)
        self._plans.move_to_end(key)
        return known

    def _types(self, name: str, table: Table | None) -> dict[str, str]:
        """Return column -> DuckDB's type of it, of what the hot store or the lake has."""
        spec = self._specs.get(name)
        hot = () if spec is None else spec.columns
        types = {column.name: _type(iceberg_type(column.type, itertools.count(1))) for column in hot}
        return types | (
            {} if table is None else {field.name: _type(field.field_type) for field in table.schema().fields}
        )

    def _forget(self) -> None:
        if self._lake is not None:
            self._lake.close()
        self._lake = None
        self._tables.clear()


def pruning(schema: Schema, reach: Reach) -> Any:
    """Return the expression that files are pruned by."""
    names = set(schema.column_names)
    time = next((name for name in TIMES if name in names), "")
    pruned = _expressions.AlwaysTrue()
    if time:
        pruned = _expressions.GreaterThanOrEqual(time, _instant(reach.from_ms))
        pruned = _expressions.And(pruned, _expressions.LessThan(time, _instant(reach.to_ms)))
    wanted = (
        ("tenant_id", reach.tenants),
        ("cluster_id", reach.clusters),
        ("host_id", reach.hosts),
        ("entity", reach.entities),
    )
    for name, some in wanted:
        if name in names and 0 < len(some) <= NAMES_MAXIMUM:
            pruned = _expressions.And(pruned, _expressions.In(name, set(some)))
    return pruned


def _instant(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()


def _source(name: str, table: Table, columns: Mapping[str, str], files: Sequence[tuple[str, int]]) -> Source:
    known = {field.name: field for field in table.schema().fields}
    wanted = [known[column] for column in columns if column in known]
    lacking = [_absent(column, kind) for column, kind in columns.items() if column not in known]
    shown = ", ".join([*map(_shown, wanted), *lacking])
    paths = [_local(address) for address, _ in files]
    size = sum(each for _, each in files)
    if all(path is not None for path in paths):
        listed = ", ".join(_literal(str(path)) for path in paths)
        sql = f"SELECT {shown} FROM read_parquet([{listed}], schema = MAP {{{', '.join(map(_projected, wanted))}}})"  # noqa: S608 - quoted
        return Source(sql, "", None, len(files), size)
    relation = f"files of {name}"
    schema = arrow_schema(table.schema().select(*(field.name for field in wanted)))
    dataset = _remote(table, [address for address, _ in files], schema)
    return Source(f'SELECT {shown} FROM "{relation}"', relation, dataset, len(files), size)  # noqa: S608 - quoted


def _projected(field: Any) -> str:
    """Return a column as `read_parquet` is told of it; files without it have no value."""
    named = f"name: {_literal(field.name)}, type: {_literal(_type(field.field_type))}, default_value: NULL"
    return f"{field.field_id}: {{{named}}}"


def _remote(table: Table, addresses: list[str], schema: Any) -> Any:
    """Return an Arrow dataset over files of an object store, read by the client that the lake itself uses."""
    files: Any = table.io
    scheme, host, _ = files.parse_location(addresses[0], files.properties)
    file_system = files.fs_by_scheme(scheme, host)
    paths = [files.parse_location(address, files.properties)[2] for address in addresses]
    return pads.dataset(paths, schema=schema, filesystem=file_system, format="parquet")


def _local(address: str) -> Path | None:
    parts = urlsplit(address)
    if parts.scheme not in ("", "file"):
        return None
    return Path(unquote(parts.path) if parts.scheme and "%" in parts.path else parts.path)


def _type(field_type: Any) -> str:
    """Return DuckDB's name of a type of the lake."""
    text = str(field_type)
    if hasattr(field_type, "element_type"):
        return f"{_type(field_type.element_type)}[]"
    if hasattr(field_type, "key_type"):
        return f"MAP({_type(field_type.key_type)}, {_type(field_type.value_type)})"
    return _TYPES.get(text, "BLOB" if text.startswith("fixed") else text.upper())


def _shown(field: Any) -> str:
    """Return a column as the hot store means it: 64 bits without a sign are a number of 128 bits here."""
    name = _quoted(field.name)
    if field.doc == UNSIGNED:
        return f"CASE WHEN {name} < 0 THEN {name}::HUGEINT + {_TWO_TO_64}::HUGEINT ELSE {name}::HUGEINT END AS {name}"
    if hasattr(field.field_type, "element_type"):
        return f"coalesce({name}, []) AS {name}"
    return name


def _absent(column: str, kind: str) -> str:
    """Return a column that no file has."""
    value = "[]" if kind.endswith("[]") else "NULL"
    return f"CAST({value} AS {kind}) AS {_quoted(column)}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
