"""Say what a statement is, how long it may run, how it is killed, and how an INSERT from Arrow reads."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from secondsight.store.spec import quoted

ROWS = "arrow_rows"
"""Name under which an INSERT finds the Arrow table that it selects from."""

EXACT: dict[str, Any] = {"use_query_condition_cache": 0}
"""What every statement runs with: this cache loses rows of a table once a join found its right side empty."""
READ_PRIORITY, MUCH_PRIORITY, QUESTION_PRIORITY = 1, 2, 10
"""What the engine runs first: a question of somebody outside pauses while a read of the platform itself runs."""
DEADLINE_SECONDS = 60.0
KILL_GRACE_SECONDS = 1.0
WAIT_FOR_READER_SECONDS = 30.0
ANSWER_GRACE_SECONDS = 5.0
"""How long an answer may be on its way after its deadline."""

_BLANK = pa.array([""])
_READS = re.compile(
    r"\A(?:\s+|--[^\n]*\n|/\*.*?\*/)*\(*\s*(?:SELECT|WITH|EXPLAIN|SHOW|DESCRIBE|DESC|EXISTS)\b",
    re.IGNORECASE | re.DOTALL,
)


def is_read(sql: str) -> bool:
    """Tell whether a statement starts as one that only reads."""
    return _READS.match(sql) is not None


def kill_after_seconds(settings: Mapping[str, Any] | None, deadline_seconds: float = DEADLINE_SECONDS) -> float:
    """Return when a statement is killed: one second after its `max_execution_time`, or else after a deadline."""
    return float((settings or {}).get("max_execution_time") or deadline_seconds) + KILL_GRACE_SECONDS


def marked(sql: str, marker: str) -> str:
    """Return a statement that can be killed by its marker."""
    return f"/* {marker} */ {sql}"


def kill_statement(marker: str, on_cluster: str = "", *, sync: bool = False) -> str:
    """Return the statement that kills what is `marked`; with `sync` it ends when that has ended."""
    how = "SYNC" if sync else "ASYNC"
    return f"KILL QUERY{on_cluster} WHERE startsWith(query, '{marked('', marker).strip()}') {how}"


def wide_columns(names: Iterable[str]) -> list[str]:
    """Return the columns of 128 bits that come as halves X_hi and X_lo, sorted."""
    known = set(names)
    return sorted(name[:-3] for name in known if name.endswith("_hi") and f"{name[:-3]}_lo" in known)


def insert_statement(table: str, schema: pa.Schema) -> str:
    """Return the INSERT that fills a table's columns from an Arrow table called `ROWS`."""
    expressions = _expressions(schema.names)
    columns = ", ".join(quoted(name) for name in expressions)
    values = ", ".join(expressions.values())
    return f"INSERT INTO {quoted(table)} ({columns}) SELECT {values} FROM Python({ROWS})"  # noqa: S608 - all quoted


def without_blanks(rows: pa.Table) -> pa.Table:
    """Return rows without the columns of codes and maps that hold nothing: the engine fills them in for less."""
    blank = [name for name in rows.column_names if all(map(_is_blank, rows.column(name).chunks))]
    return rows if len(blank) == rows.num_columns else rows.drop_columns(blank)


def _is_blank(values: pa.Array) -> bool:
    """Tell whether a column holds what columns that are not given hold."""
    if values.null_count:
        return False
    if pa.types.is_dictionary(values.type):
        return bool(values.dictionary.equals(_BLANK))
    return bool(pa.types.is_map(values.type) and values.offsets[0] == values.offsets[-1])


def _expressions(names: list[str]) -> dict[str, str]:
    """Return column -> expression, joining the two halves of wide integers."""
    wide = wide_columns(names)
    halves = {f"{name}{half}" for name in wide for half in ("_hi", "_lo")}
    joined = {
        name: f"bitOr(bitShiftLeft(toUInt128({quoted(name + '_hi')}), 64), toUInt128({quoted(name + '_lo')}))"
        for name in wide
    }
    return {name: quoted(name) for name in names if name not in halves} | joined
