"""What every hot store must do, whatever engine is behind it.

A test module makes a class of `StoreContract` and gives it the fixtures `writer` (a fresh database) and `reader` (a
store that reads what `writer` wrote, perhaps the same). Nothing here names an engine.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondsight.catalog.load import load_catalog
from secondsight.contracts import Store
from secondsight.errors import Permanent, Rejected
from secondsight.model import EntityKind
from secondsight.store.failures import QueryLimited, StatementFailed
from secondsight.store.migrate import existing_columns, migrate, schema_version
from secondsight.store.rows import (
    ColumnValues,
    DictionaryColumn,
    ListColumn,
    MapColumn,
    NullableColumn,
    WideColumn,
    arrow_table,
)
from secondsight.store.schema import DATABASE, raw_table, table, tables
from secondsight.store.spec import ColumnSpec, TableSpec
from secondsight.store.views import curated_views

NUMBERS: dict[str, tuple[str, Sequence[Any]]] = {
    "UInt8": ("u1", [0, 1, 255]),
    "UInt16": ("u2", [0, 1, 2**16 - 1]),
    "UInt32": ("u4", [0, 1, 2**32 - 1]),
    "UInt64": ("u8", [0, 1, 2**64 - 1]),
    "Int8": ("i1", [-128, 0, 127]),
    "Int16": ("i2", [-(2**15), 0, 2**15 - 1]),
    "Int32": ("i4", [-(2**31), 0, 2**31 - 1]),
    "Int64": ("i8", [-(2**63), 0, 2**63 - 1]),
    "Float64": ("f8", [-0.0, 5e-324, 1.7976931348623157e308]),
}
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
ENDLESS = "SELECT count() AS n FROM numbers(1000000000000) WHERE NOT ignore(sipHash64(number))"


def rows(store: Store, sql: str, params: dict[str, Any] | None = None, limits: dict[str, Any] | None = None) -> Any:
    return store.query(sql, params, limits).to_pylist()


def wide(value: int) -> WideColumn:
    return WideColumn(np.array([value >> 64], np.uint64), np.array([value & (2**64 - 1)], np.uint64))


def raw_row(spec: TableSpec, version: int, power: int | None, entity: str = "GPU-1") -> pa.Table:
    columns: dict[str, ColumnValues] = {
        "tenant_id": ["t"],
        "cluster_id": ["c"],
        "host_id": ["h"],
        "entity": [entity],
        "event_time": np.array([1_767_225_600_000], np.int64),
        "version": wide(version),
        "gpu_power_watts": NullableColumn(np.array([power or 0], np.uint32), np.array([power is not None])),
    }
    return arrow_table(spec, columns)


class StoreContract:
    @pytest.fixture
    def reader(self, writer: Store) -> Store:
        return writer

    @pytest.fixture
    def gpu(self, writer: Store) -> TableSpec:
        migrate(writer, load_catalog())
        return table(load_catalog(), raw_table(EntityKind.GPU))

    def make(self, writer: Store, spec: TableSpec) -> None:
        database = rows(writer, "SELECT currentDatabase() AS name")[0]["name"]
        writer.query(spec.create_statement(database))

    def test_migrate_makes_every_table_once(self, writer: Store, reader: Store) -> None:
        catalog = load_catalog()
        made = migrate(writer, catalog)
        assert sum(statement.startswith("CREATE TABLE") for statement in made) == len(tables(catalog))
        assert sum(" VIEW " in statement for statement in made) == 2 * len(curated_views(catalog, DATABASE))
        assert migrate(writer, catalog) == ()
        found = existing_columns(reader)
        assert {spec.name: frozenset(c.name for c in spec.columns) for spec in tables(catalog)} == found
        assert schema_version(reader) == 1

    def test_migrate_brings_settings_up_to_date(self, writer: Store) -> None:
        migrate(writer, load_catalog())
        writer.query("ALTER TABLE gpu_1s MODIFY SETTING merge_selector_base = 5")
        (statement,) = migrate(writer, load_catalog())
        assert statement.endswith("MODIFY SETTING merge_selector_base = 20")
        assert migrate(writer, load_catalog()) == ()

    def test_migrate_adds_a_column_that_older_rows_lack(self, writer: Store, reader: Store, gpu: TableSpec) -> None:
        writer.insert(gpu.name, raw_row(gpu, 1, 400))
        writer.query("ALTER TABLE gpu_1s DROP COLUMN gpu_sm_active_ratio")
        assert len(migrate(writer, load_catalog())) == 1
        assert rows(reader, "SELECT gpu_power_watts AS p, gpu_sm_active_ratio AS s FROM gpu_1s") == [
            {"p": 400, "s": None}
        ]
        assert schema_version(reader) == 2

    @pytest.mark.parametrize("order", list(permutations([0, 1, 2])))
    def test_the_greatest_version_wins_in_any_order(
        self, writer: Store, reader: Store, gpu: TableSpec, order: tuple[int, ...]
    ) -> None:
        written = [raw_row(gpu, 2**64 - 1, 1), raw_row(gpu, 2**64, 2), raw_row(gpu, 2**127 + 5, 3)]
        for index in order:
            writer.insert(gpu.name, written[index])
        assert rows(reader, "SELECT gpu_power_watts AS p FROM gpu_1s FINAL") == [{"p": 3}]

    def test_repeating_an_insert_changes_nothing(self, writer: Store, reader: Store, gpu: TableSpec) -> None:
        for _ in range(3):
            writer.insert(gpu.name, raw_row(gpu, 7, 500))
        assert rows(reader, "SELECT count() AS n, sum(gpu_power_watts) AS p FROM gpu_1s FINAL") == [{"n": 1, "p": 500}]

    def test_absent_is_neither_zero_nor_nan(self, writer: Store, reader: Store, gpu: TableSpec) -> None:
        writer.insert(gpu.name, raw_row(gpu, 1, None, "GPU-1"))
        writer.insert(gpu.name, raw_row(gpu, 1, 0, "GPU-2"))
        answer = rows(reader, "SELECT gpu_power_watts AS p, gpu_sm_active_ratio AS s FROM gpu_1s ORDER BY entity")
        assert answer == [{"p": None, "s": None}, {"p": 0, "s": None}]

    @pytest.mark.parametrize("type_", NUMBERS)
    @pytest.mark.parametrize("codec", ["ZSTD(1)", "T64('bit'),ZSTD(1)", "Delta,T64('bit'),ZSTD(1)", "Delta,ZSTD(1)"])
    def test_numbers_come_back(self, writer: Store, reader: Store, type_: str, codec: str) -> None:
        if type_ == "Float64" and "T64" in codec:
            return
        numpy_type, values = NUMBERS[type_]
        columns = (
            ColumnSpec("i", "UInt8"),
            ColumnSpec("v", type_, codec),
            ColumnSpec("n", f"Nullable({type_})", codec),
        )
        spec = TableSpec("numbers_", columns, "MergeTree", ("i",), settings=table(load_catalog(), "gpu_1s").settings)
        self.make(writer, spec)
        array = np.array(values, numpy_type)
        present = np.array([True, False, True])
        writer.insert(
            spec.name,
            arrow_table(spec, {"i": np.arange(3, dtype=np.uint8), "v": array, "n": NullableColumn(array, present)}),
        )
        expected = [{"v": v, "n": v if p else None} for v, p in zip(values, present, strict=True)]
        assert rows(reader, "SELECT v, n FROM numbers_ ORDER BY i") == expected

    def test_not_a_number_is_not_null(self, writer: Store, reader: Store) -> None:
        spec = TableSpec("floats", (ColumnSpec("v", "Nullable(Float64)"),), "MergeTree", ("tuple()",))
        self.make(writer, spec)
        writer.insert("floats", arrow_table(spec, {"v": NullableColumn(np.array([math.nan]), np.array([True]))}))
        assert rows(reader, "SELECT isNull(v) AS absent, isNaN(v) AS bad FROM floats") == [{"absent": 0, "bad": 1}]

    def test_texts_times_maps_and_lists_come_back(self, writer: Store, reader: Store) -> None:
        spec = composite_table()
        self.make(writer, spec)
        times = np.array([-1, 0, 1_767_225_600_123], np.int64)
        columns: dict[str, ColumnValues] = {
            "i": np.arange(3, dtype=np.uint8),
            "name": DictionaryColumn(np.array([1, 0, 1], np.int32), ["", "it's \\ \n é"]),
            "text": ["", "a'b", "\t"],
            "ms": times,
            "maybe_ms": NullableColumn(times, np.array([True, False, True])),
            "s": np.array([0, 1, 2**32 - 1], np.int64),
            "counts": MapColumn(np.array([0, 2, 2]), np.array([1, 0, 1]), ["x", "y"], np.array([1, 2, 3], np.uint32)),
            "names": MapColumn(np.array([1]), np.array([0]), ["k"], ["v"]),
            "items": ListColumn(np.array([0, 0, 2, 3]), np.array([1, 2**64 - 1, 3], np.uint64)),
            "wide": WideColumn(np.array([0, 1, 2**64 - 1], np.uint64), np.array([1, 0, 2**64 - 1], np.uint64)),
        }
        writer.insert(spec.name, arrow_table(spec, columns))
        answer = rows(
            reader,
            "SELECT name, text, toUnixTimestamp64Milli(ms) AS ms, toUnixTimestamp64Milli(maybe_ms) AS maybe_ms, "
            "toUnixTimestamp(s) AS s, counts, names, items, toString(wide) AS wide FROM composites ORDER BY i",
        )
        assert [tuple(row.values()) for row in answer] == [
            ("it's \\ \n é", "", -1, -1, 0, [("y", 1)], [], [], "1"),
            ("", "a'b", 0, None, 1, [], [("k", "v")], [1, 2**64 - 1], str(2**64)),
            ("it's \\ \n é", "\t", times[2], times[2], 2**32 - 1, [("x", 2), ("y", 3)], [], [3], str(2**128 - 1)),
        ]

    def test_columns_that_hold_nothing_come_back_so(self, writer: Store, reader: Store) -> None:
        spec = composite_table()
        self.make(writer, spec)
        nothing = MapColumn(np.zeros(0, np.int64), np.zeros(0, np.int64), (), np.zeros(0, np.uint32))
        columns: dict[str, ColumnValues] = {
            "i": np.arange(2, dtype=np.uint8),
            "name": DictionaryColumn(np.zeros(2, np.int32), [""]),
            "counts": nothing,
        }
        writer.insert(spec.name, arrow_table(spec, columns))
        assert rows(reader, "SELECT i, name, counts FROM composites ORDER BY i") == [
            {"i": 0, "name": "", "counts": []},
            {"i": 1, "name": "", "counts": []},
        ]

    def test_an_empty_insert_is_nothing(self, writer: Store, reader: Store, gpu: TableSpec) -> None:
        writer.insert(gpu.name, raw_row(gpu, 1, 1).slice(0, 0))
        assert rows(reader, "SELECT count() AS n FROM gpu_1s") == [{"n": 0}]

    @pytest.mark.usefixtures("gpu")
    def test_an_empty_answer_has_its_columns(self, reader: Store) -> None:
        answer = reader.query("SELECT entity, gpu_power_watts FROM gpu_1s")
        assert (answer.num_rows, answer.column_names) == (0, ["entity", "gpu_power_watts"])

    def test_a_refused_insert_leaves_the_store_well(self, writer: Store, reader: Store, gpu: TableSpec) -> None:
        with pytest.raises(Permanent):
            writer.insert(gpu.name, pa.table({"no_such_column": [1]}))
        with pytest.raises(Permanent):
            writer.insert("no_such_table", raw_row(gpu, 1, 1))
        writer.insert(gpu.name, raw_row(gpu, 1, 1))
        assert rows(reader, "SELECT count() AS n FROM gpu_1s") == [{"n": 1}]

    def test_chunked_dictionaries_are_one_column(self, writer: Store, reader: Store, gpu: TableSpec) -> None:
        pieces = [raw_row(gpu, 1, 1, entity) for entity in ("GPU-a", "GPU-b", "GPU-a")]
        encoded = [
            piece.set_column(3, "entity", piece["entity"].combine_chunks().dictionary_encode()) for piece in pieces
        ]
        writer.insert(gpu.name, pa.concat_tables(encoded))
        assert rows(reader, "SELECT DISTINCT entity FROM gpu_1s ORDER BY entity") == [
            {"entity": "GPU-a"},
            {"entity": "GPU-b"},
        ]

    def test_parameters_arrive_as_they_are(self, reader: Store) -> None:
        types = {"a": "String", "b": "Array(String)", "c": "Int64", "d": "Float64", "e": "Nullable(String)"}
        sql = "SELECT " + ", ".join(f"{{{name}:{type_}}} AS {name}" for name, type_ in types.items())

        @settings(max_examples=40, deadline=None)
        @given(TEXTS, st.lists(TEXTS, max_size=4), st.integers(-(2**63), 2**63 - 1), st.floats())
        def check(text: str, texts: list[str], number: int, real: float) -> None:
            answer = rows(reader, sql, {"a": text, "b": texts, "c": number, "d": real, "e": None})[0]
            assert (answer["a"], answer["b"], answer["c"], answer["e"]) == (text, texts, number, None)
            assert answer["d"] == real or (math.isnan(answer["d"]) and math.isnan(real))

        check()

    @pytest.mark.parametrize(
        ("sql", "limits", "code"),
        [
            (ENDLESS, {"max_execution_time": 1}, "query_timeout"),
            ("SELECT count() FROM numbers(1000000)", {"max_rows_to_read": 10}, "too_many_rows_read"),
            ("SELECT sum(number) FROM numbers(1000000)", {"max_bytes_to_read": 10}, "too_many_bytes_read"),
            ("SELECT number FROM numbers(1000)", {"max_result_rows": 10}, "result_too_large"),
            ("SELECT groupArray(number) FROM numbers(10000000)", {"max_memory_usage": 10_000_000}, "memory_limit"),
        ],
    )
    def test_limits_are_refusals_with_a_code(self, reader: Store, sql: str, limits: dict[str, Any], code: str) -> None:
        with pytest.raises(QueryLimited) as caught:
            reader.query(sql, None, limits)
        assert caught.value.code == code
        assert rows(reader, "SELECT 1 AS one") == [{"one": 1}]

    def test_settings_bind_one_statement(self, reader: Store) -> None:
        for _ in range(8):
            with pytest.raises(QueryLimited):
                reader.query("SELECT number FROM numbers(100)", None, {"max_result_rows": 10})
            assert reader.query("SELECT number FROM numbers(100)").num_rows == 100
            assert reader.query("SELECT number FROM numbers(9)", None, {"max_result_rows": 10}).num_rows == 9
            assert reader.query("SELECT number FROM numbers(100)").num_rows == 100

    def test_a_wrong_statement_is_permanent_and_says_why(self, reader: Store) -> None:
        with pytest.raises(StatementFailed) as caught:
            reader.query("SELECT no_such_column FROM system.one")
        assert (caught.value.engine_code, caught.value.name) == (47, "UNKNOWN_IDENTIFIER")
        assert "no_such_column" not in caught.value.safe_message

    def test_rows_of_a_failed_query_never_come_back(self, reader: Store) -> None:
        for _ in range(6):
            with pytest.raises(Permanent):
                reader.query(
                    "SELECT number, throwIf(number = 150000) AS t FROM numbers(200000) SETTINGS max_block_size = 1000"
                )
            assert rows(reader, "SELECT 'mine' AS whose") == [{"whose": "mine"}]

    def test_a_read_cannot_hide_a_write(self, writer: Store, reader: Store, gpu: TableSpec) -> None:
        writer.insert(gpu.name, raw_row(gpu, 1, 1))
        with pytest.raises(Permanent):
            reader.query("SELECT 1; TRUNCATE TABLE gpu_1s")
        assert rows(reader, "SELECT count() AS n FROM gpu_1s") == [{"n": 1}]

    def test_answers_do_not_mix_between_threads(self, reader: Store) -> None:
        def ask(number: int) -> int:
            return int(
                rows(reader, "SELECT {n:UInt32} + sum(number) * 0 AS n FROM numbers(1000)", {"n": number})[0]["n"]
            )

        with ThreadPoolExecutor(16) as pool:
            assert list(pool.map(ask, range(200))) == list(range(200))

    def test_a_setting_is_a_name_not_sql(self, reader: Store) -> None:
        with pytest.raises(Rejected) as caught:
            reader.query("SELECT 1", None, {"max_threads = 1; DROP TABLE t": 1})
        assert caught.value.code == "bad_setting"

    def test_close_twice(self, reader: Store) -> None:
        reader.close()
        reader.close()


def composite_table() -> TableSpec:
    types = {
        "i": "UInt8",
        "name": "LowCardinality(String)",
        "text": "String",
        "ms": "DateTime64(3, 'UTC')",
        "maybe_ms": "Nullable(DateTime64(3, 'UTC'))",
        "s": "DateTime('UTC')",
        "counts": "Map(LowCardinality(String), UInt32)",
        "names": "Map(LowCardinality(String), String)",
        "items": "Array(UInt64)",
        "wide": "UInt128",
    }
    return TableSpec("composites", tuple(ColumnSpec(name, type_) for name, type_ in types.items()), "MergeTree", ("i",))
