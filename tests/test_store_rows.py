from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondsight.store.failures import QueryLimited, StatementFailed, StoreBusy, failure_of
from secondsight.store.params import ParameterText, parameter_text
from secondsight.store.rows import (
    DictionaryColumn,
    ListColumn,
    MapColumn,
    NullableColumn,
    WideColumn,
    arrow_table,
    constant,
)
from secondsight.store.statement import insert_statement, is_read, without_blanks
from store_contract import composite_table

SPEC = composite_table()
UNTIMED = settings(deadline=None)


@UNTIMED
@given(st.lists(st.tuples(st.integers(0, 255), st.booleans())))
def test_absent_cells_are_null(cells: list[tuple[int, bool]]) -> None:
    values = np.array([value for value, _ in cells], np.uint8)
    present = np.array([here for _, here in cells], bool)
    got = arrow_table(SPEC, {"i": NullableColumn(values, present)})["i"].to_pylist()
    assert got == [value if here else None for value, here in cells]


@UNTIMED
@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 9), max_size=3), min_size=1))
def test_maps_keep_their_entries(maps: list[dict[str, int]]) -> None:
    entries = [(row, "abc".index(key), value) for row, items in enumerate(maps) for key, value in items.items()]
    row, code, value = (
        (np.array(column, np.int64) for column in zip(*entries, strict=True))
        if entries
        else [np.zeros(0, np.int64)] * 3
    )
    columns = {"counts": MapColumn(row, code, list("abc"), value.astype(np.uint32)), "i": np.zeros(len(maps), np.uint8)}
    assert [dict(items) for items in arrow_table(SPEC, columns)["counts"].to_pylist()] == maps


@UNTIMED
@given(st.lists(st.lists(st.integers(0, 2**64 - 1), max_size=4), min_size=1))
def test_lists_keep_their_items(lists: list[list[int]]) -> None:
    offsets = np.cumsum([0, *map(len, lists)])
    items = np.array([item for some in lists for item in some], np.uint64)
    assert arrow_table(SPEC, {"items": ListColumn(offsets, items)})["items"].to_pylist() == lists


def test_texts_by_code_stay_a_dictionary() -> None:
    got = arrow_table(SPEC, {"name": DictionaryColumn(np.array([1, 0], np.int32), ["x", "y"])})["name"]
    assert (str(got.type.value_type), got.to_pylist()) == ("string", ["y", "x"])
    assert arrow_table(SPEC, {"name": constant("z", 2)})["name"].to_pylist() == ["z", "z"]


def test_columns_that_hold_nothing_are_left_to_the_engine() -> None:
    nothing = MapColumn(np.zeros(0, np.int64), np.zeros(0, np.int64), (), np.zeros(0, np.uint32))
    some = MapColumn(np.array([1]), np.array([0]), ("k",), np.array([7], np.uint32))
    blank, number = constant("", 2), {"i": np.zeros(2, np.int32)}
    for columns, kept in (
        ({"name": blank, "counts": nothing, **number}, ["i"]),
        ({"name": constant("z", 2), "counts": some, **number}, ["name", "counts", "i"]),
        ({"name": DictionaryColumn(np.array([1, 0], np.int32), ["", "y"]), **number}, ["name", "i"]),
        ({"text": ["", ""], **number}, ["text", "i"]),
        ({"name": blank}, ["name"]),
    ):
        assert without_blanks(arrow_table(SPEC, columns)).column_names == kept
    lacking = pa.table({"name": pa.array(["", None]).dictionary_encode(), "i": [1, 2]})
    assert without_blanks(lacking).column_names == ["name", "i"]


def test_times_are_instants() -> None:
    got = arrow_table(SPEC, {"ms": np.array([1_767_225_600_123], np.int64), "s": np.array([1], np.int64)}).to_pylist()
    assert got == [{"ms": datetime(2026, 1, 1, 0, 0, 0, 123_000, UTC), "s": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}]


def test_wide_integers_travel_in_halves() -> None:
    got = arrow_table(SPEC, {"wide": WideColumn(np.array([1], np.uint64), np.array([2], np.uint64))})
    assert got.to_pylist() == [{"wide_hi": 1, "wide_lo": 2}]
    assert "bitShiftLeft(toUInt128(`wide_hi`), 64)" in insert_statement("t", got.schema)


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"i": np.zeros(1, np.uint8), "text": ["a", "b"]}, ValueError),
        ({"no_such_column": np.zeros(1)}, KeyError),
        ({"ms": np.zeros(1, np.float64)}, ValueError),
        ({"s": np.zeros(1, np.uint32)}, ValueError),
        ({}, ValueError),
        ({"counts": MapColumn(np.zeros(0, int), np.zeros(0, int), [], np.zeros(0, np.uint32))}, ValueError),
    ],
)
def test_what_makes_no_table_is_refused(columns: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        arrow_table(SPEC, columns)


def test_strided_columns_are_read_in_their_order() -> None:
    matrix = np.arange(6, dtype=np.uint8).reshape(3, 2)
    assert arrow_table(SPEC, {"i": matrix[:, 1]})["i"].to_pylist() == [1, 3, 5]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\\N"),
        (True, "1"),
        (-5, "-5"),
        (0.1, "0.1"),
        ("a'b\\c\td\n", "a'b\\\\c\\td\\n"),
        (["a'b\\", None, 1], "['a\\'b\\\\',NULL,1]"),
        ({"b", "a"}, "['a','b']"),
        ([["x"], []], "[['x'],[]]"),
        (datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC), "2026-01-02 03:04:05.678000"),
        ([datetime(2026, 1, 2, tzinfo=UTC)], "['2026-01-02 00:00:00.000000']"),
        (np.float64(1.5), "1.5"),
        (ParameterText("a\\nb"), "a\\nb"),
    ],
)
def test_parameters_as_text(value: Any, text: str) -> None:
    assert parameter_text(value) == text


def test_a_parameter_of_no_known_type_is_refused() -> None:
    with pytest.raises(TypeError):
        parameter_text(object())


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        ("SELECT 1", True),
        ("  with x as (select 1) select * from x", True),
        ("/* why */ -- how\n (SELECT 1) UNION ALL (SELECT 2)", True),
        ("EXPLAIN SELECT 1", True),
        ("DESCRIBE TABLE t", True),
        ("INSERT INTO t SELECT 1", False),
        ("SELECTED", False),
        ("-- SELECT\nDROP TABLE t", False),
        ("", False),
    ],
)
def test_reads_are_told_from_writes(sql: str, read: bool) -> None:
    assert is_read(sql) is read


@pytest.mark.parametrize(
    ("text", "inserting", "kind", "engine_code"),
    [
        ("Code: 159. DB::Exception: Timeout exceeded. (TIMEOUT_EXCEEDED)", False, QueryLimited, 159),
        ("Code: 241. DB::Exception: memory. (MEMORY_LIMIT_EXCEEDED)", False, QueryLimited, 241),
        ("Code: 241. DB::Exception: memory. (MEMORY_LIMIT_EXCEEDED)", True, StoreBusy, None),
        ("Code: 252. DB::Exception: Too many parts (600). (TOO_MANY_PARTS)", True, StoreBusy, None),
        ("Code: 243. DB::Exception: Cannot reserve. (NOT_ENOUGH_SPACE)", True, StoreBusy, None),
        ("Code: 60. DB::Exception: Table (X) is missing. (UNKNOWN_TABLE)", False, StatementFailed, 60),
        ("no code at all", False, StatementFailed, 0),
    ],
)
def test_engine_messages_become_errors(text: str, inserting: bool, kind: type, engine_code: int | None) -> None:
    error = failure_of(text, inserting=inserting)
    assert type(error) is kind
    assert getattr(error, "engine_code", None) == engine_code
