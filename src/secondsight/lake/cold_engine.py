"""Answer statements of the read side from files of the lake, by DuckDB, within bounds of memory.

A statement is translated (`cold_dialect.py`), the tables that it names become views of planned files
(`cold_files.py`), or of rows that the question brings along. The connection may touch nothing else.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from secondsight.lake.cold_dialect import Translated, macro_statements, translate
from secondsight.lake.cold_files import ColdFiles
from secondsight.lake.cold_request import ColdRequest
from secondsight.store.failures import QueryLimited, StatementFailed

_MEMORY_LIMIT, _RESULT_LIMIT = 241, 396
_WORDS = re.compile(r'"(\w+)"|(?<![$\w.])([A-Za-z_]\w*)')


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What one question may cost."""

    memory_mib: int = 1024
    threads: int = 2
    rows: int = 3_000_000
    bytes_read: int = 64 << 30


class ColdEngine:
    """Runs statements over one lake. For one thread."""

    def __init__(self, files: ColdFiles, limits: EngineLimits) -> None:
        self._files = files
        self._limits = limits
        self._connection = self._connect()

    def run(self, request: ColdRequest) -> Any:
        """Return the rows of a statement as an Arrow table.

        Raises:
            Retryable: The lake is away.
            QueryLimited: The statement needs more than it may.
            StatementFailed: The statement is wrong.
        """
        translated = translate(request.sql, request.params)
        defined = self._define(translated, request)
        sql = f"WITH {', '.join(defined)} {translated.sql}" if defined else translated.sql
        try:
            rows = self._connection.sql(sql, params=dict(translated.params)).to_arrow_table()
        except duckdb.OutOfMemoryException:
            raise QueryLimited(_MEMORY_LIMIT) from None
        except duckdb.Error as error:
            raise StatementFailed(0, str(error), type(error).__name__) from None
        finally:
            self._forget_tables(request)
        if rows.num_rows > self._limits.rows:
            raise QueryLimited(_RESULT_LIMIT)
        return _plain(rows, {name for each in translated.tables for name in self._files.unsigned(each)})

    def close(self) -> None:
        """Close the connection and the lake; may be called twice."""
        self._connection.close()
        self._files.close()

    def _define(self, translated: Translated, request: ColdRequest) -> list[str]:
        """Return the tables of a statement as common table expressions."""
        found = _WORDS.findall(translated.sql)
        quoted = {first for first, _ in found if first} - set(translated.tables)
        plain = {second for _, second in found if second}
        defined, total = [], 0
        for name in translated.tables:
            if name in request.tables:
                self._connection.register(f"given {name}", request.tables[name])
                defined.append(f'"{name}" AS NOT MATERIALIZED (SELECT * FROM "given {name}")')  # noqa: S608 - a table's name
                continue
            source = self._files.source(name, plain, quoted, request.reach)
            total += source.size_bytes
            if source.dataset is not None:
                self._connection.register(source.relation, source.dataset)
            defined.append(f'"{name}" AS NOT MATERIALIZED ({source.sql})')
        if total > self._limits.bytes_read:
            raise QueryLimited(307)
        return defined

    def _forget_tables(self, request: ColdRequest) -> None:
        for name in request.tables:
            self._connection.unregister(f"given {name}")

    def _connect(self) -> Any:
        connection: Any = duckdb.connect(":memory:")
        settings = {
            "memory_limit": f"'{self._limits.memory_mib}MiB'",
            "threads": str(self._limits.threads),
            "max_temp_directory_size": "'0B'",
            "temp_directory": "''",
            "autoinstall_known_extensions": "false",
            "preserve_insertion_order": "false",
            "parquet_metadata_cache": "true",
        }
        for name, value in settings.items():
            connection.execute(f"SET {name} = {value}")
        for statement in macro_statements():
            connection.execute(statement)
        connection.create_function(
            "weighted_quantile",
            weighted_quantiles,
            ["DOUBLE", "DOUBLE[]", "BIGINT[]"],
            "DOUBLE",
            type="arrow",
            null_handling="special",
        )
        connection.execute("SET lock_configuration = true")
        return connection


def _plain(rows: Any, unsigned: Collection[str]) -> Any:
    """Return rows with numbers of 64 bits where the engine gave 128, which is what sums have here."""
    for position, field in enumerate(rows.schema):
        if pa.types.is_decimal(field.type):
            column = rows.column(position)
            wanted = pa.uint64() if field.name in unsigned else pa.int64()
            rows = rows.set_column(position, field.name, column.cast(wanted))
        elif field.name in unsigned and pa.types.is_signed_integer(field.type):
            rows = rows.set_column(position, field.name, rows.column(position).cast(pa.uint64()))
    return rows


def weighted_quantiles(shares: Any, values: Any, weights: Any) -> pa.Array:
    """Return the exact nearest rank of each row's values by their weights; None where there are none.

    Args:
        shares: Quantile of each row, 0 to 1.
        values: Lists of values.
        weights: Lists of weights, as long as those of values.
    """
    made: list[float | None] = []
    for share, some, heavy in zip(shares.to_pylist(), values.combine_chunks(), weights.combine_chunks(), strict=True):
        if not some.is_valid or not len(some.values):
            made.append(None)
            continue
        there = some.values.to_numpy(zero_copy_only=False)
        order = np.argsort(there, kind="stable")
        total = np.cumsum(heavy.values.to_numpy(zero_copy_only=False)[order])
        made.append(float(there[order][np.searchsorted(total, np.ceil(total[-1] * share))]))
    return pa.array(made, pa.float64())
