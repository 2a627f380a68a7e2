"""Say what a statement is, how long it may run, and how an INSERT from Arrow reads."""

import re

import pyarrow as pa

from secondsight.store.spec import quoted

ROWS = "arrow_rows"
"""Name under which an INSERT finds the Arrow table that it selects from."""

DEADLINE_SECONDS = 60.0
KILL_GRACE_SECONDS = 1.0
WAIT_FOR_READER_SECONDS = 30.0

_READS = re.compile(
    r"\A(?:\s+|--[^\n]*\n|/\*.*?\*/)*\(*\s*(?:SELECT|WITH|EXPLAIN|SHOW|DESCRIBE|DESC|EXISTS)\b",
    re.IGNORECASE | re.DOTALL,
)


def is_read(sql: str) -> bool:
    """Tell whether a statement starts as one that only reads."""
    return _READS.match(sql) is not None


def insert_statement(table: str, schema: pa.Schema) -> str:
    """Return the INSERT that fills a table's columns from an Arrow table called `ROWS`."""
    expressions = _expressions(schema.names)
    columns = ", ".join(quoted(name) for name in expressions)
    values = ", ".join(expressions.values())
    return f"INSERT INTO {quoted(table)} ({columns}) SELECT {values} FROM Python({ROWS})"  # noqa: S608 - all quoted


def _expressions(names: list[str]) -> dict[str, str]:
    """Return column -> expression, joining the two halves of wide integers."""
    wide = {name[:-3] for name in names if name.endswith("_hi") and f"{name[:-3]}_lo" in names}
    halves = {f"{name}{half}" for name in wide for half in ("_hi", "_lo")}
    joined = {
        name: f"bitOr(bitShiftLeft(toUInt128({quoted(name + '_hi')}), 64), toUInt128({quoted(name + '_lo')}))"
        for name in sorted(wide)
    }
    return {name: quoted(name) for name in names if name not in halves} | joined
