"""Turn a statement of the read side, written for the hot store, into one that DuckDB runs, with the same meaning.

There is one compiler of questions, and one place that writes scopes into them. So the cold side translates what comes
out of it: functions become macros of the connection, the few forms that no macro can take are rewritten here. Values
stay bound parameters.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MACROS = (
    "toInt64(x) AS CAST(x AS BIGINT)",
    "toUInt8(x) AS CAST(x AS INTEGER)",
    "toInt32(x) AS CAST(x AS INTEGER)",
    "toUInt32(x) AS CAST(x AS BIGINT)",
    "toUInt64(x) AS CAST(x AS HUGEINT)",
    "toInt128(x) AS CAST(x AS HUGEINT)",
    "toFloat64(x) AS CAST(x AS DOUBLE)",
    "toString(x) AS CAST(x AS VARCHAR)",
    "isNotNull(x) AS (x IS NOT NULL)",
    "is_null(x) AS (x IS NULL)",
    "assumeNotNull(x) AS x",
    "intDiv(a, b) AS (a // b)",
    "exp2(x) AS pow(2::DOUBLE, x)",
    "bitShiftRight(a, b) AS (a >> b)",
    "bitAnd(a, b) AS (a & b)",
    "mapContains(m, k) AS map_contains(m, k)",
    "multiIf(a, x, b, y, e) AS (CASE WHEN a THEN x WHEN b THEN y ELSE e END), "
    "(a, x, b, y, c, z, e) AS (CASE WHEN a THEN x WHEN b THEN y WHEN c THEN z ELSE e END)",
    "groupArrayIf(x, c) AS coalesce(list(x) FILTER (WHERE c), [])",
    "arraySort(l) AS list_sort(l)",
    "roundDown(t, l) AS list_max(list_filter(l, lambda x: x <= t))",
    "minIf(x, c) AS (min(x) FILTER (WHERE c))",
    "maxIf(x, c) AS (max(x) FILTER (WHERE c))",
    "arrayResize(l, n) AS list_resize(l, n, 0)",
    "list_fell(late, early) AS "
    "coalesce(list_bool_or(list_transform(range(1, len(late) + 1), lambda i: late[i] < early[i])), false)",
    "list_grown(late, early) AS list_transform(range(1, len(late) + 1), lambda i: greatest(late[i] - early[i], 0))",
    "list_ahead(late, early, n) AS least(list_sum(late) - list_sum(early), greatest(list_max(list_transform("
    "range(1, n + 1), lambda i: list_sum(late[1:i]) - list_sum(early[1:i]))), 0))",
    "list_moved(late, early) AS list_transform(range(1, len(late) + 1), "
    "lambda n: list_ahead(late, early, n) - if(n > 1, list_ahead(late, early, n - 1), 0))",
    "arraySum(l) AS coalesce(list_sum(l), 0)",
    "list_sums(lists) AS list_transform(range(1, coalesce(list_max(list_transform(lists, lambda l: len(l))), 0) + 1), "
    "lambda i: CAST(coalesce(list_sum(list_transform(lists, lambda l: l[i])), 0) AS BIGINT))",
    "sumForEach(x) AS list_sums(list(x))",
    "uniqExact(x) AS count(DISTINCT x)",
    "toUnixTimestamp64Milli(t) AS epoch_ms(t)",
    "toUnixTimestamp(t) AS (epoch_ms(t) // 1000)",
    "fromUnixTimestamp64Milli(ms, zone) AS CAST(make_timestamp(ms * 1000) AS TIMESTAMPTZ)",
    "toDateTime(s, zone) AS CAST(make_timestamp(s * 1000000) AS TIMESTAMPTZ)",
    *(f"{bucket}(t) AS t" for bucket in ("toStartOfTenMinutes", "toStartOfHour", "toStartOfDay")),
    *(f"{bucket}(t) AS t" for bucket in ("toStartOfMonth", "toStartOfYear")),
)
"""Functions of the hot store by DuckDB's.

Buckets of order keys stand beside the bounds that they follow from; here they are the time itself.
"""

_PARAMETER = re.compile(r"\{(\w+):([^}]+)\}")
_FORMS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"`((?:[^`\\]|\\.)*)`", r'"\1"'),
        (r"\bany\(", "any_value("),
        (r"\bisNull\(", "is_null("),
        (r"\bANY LEFT JOIN\b", "LEFT JOIN"),
        (r"\b(lag|lead)InFrame\(", r"\1("),
        (r"\bposition\(", "instr("),
        (r"\bPREWHERE (.+?) WHERE\b", r"WHERE \1 AND"),
        (
            r"\bquantileExactWeighted\(([0-9.]+)\)\((\w+), toUInt64\((\w+)\)\)",
            r"weighted_quantile(\1, list(\2), list(\3))",
        ),
        (
            r"\bquantileExactWeightedArray\(([0-9.]+)\)\((\w+), (\w+)\)",
            r"weighted_quantile(\1, flatten(list(\2)), flatten(list(\3)))",
        ),
        (r"\b(resets|changes|state_ms|quality)\[(\$\w+)\]", r"coalesce(\1[\2], 0)"),
        (r"\bgroupArrayIf\(\((\w+), (\w+)\)", r"groupArrayIf([\1, \2]"),
        (r"\barrayExists\(\(late, early\) -> late < early, (\w+), (\w+)\)", r"list_fell(\1, \2)"),
        (
            r"\barrayMap\(step -> .+?, (\w+), (\w+)\)\), 1, place\), 0\)\)\), arrayEnumerate\(\w+\)\), 0\)\)\)\)",
            r"list_moved(\1, \2)",
        ),
        (r"\barrayMap\(\(late, early\) -> if\(late >= early, .+?, (\w+), (\w+)\)", r"list_grown(\1, \2)"),
    )
)
_TABLE = re.compile(r'\bFROM "(\w+)"( FINAL)?')


@dataclass(frozen=True, slots=True)
class Translated:
    """A statement for DuckDB.

    Attributes:
        tables: Names that it reads from, each to be defined by the caller, as a view of rows of which each key is one.
    """

    sql: str
    params: Mapping[str, Any]
    tables: tuple[str, ...]


def translate(sql: str, params: Mapping[str, Any]) -> Translated:
    """Return what DuckDB runs for a statement of the read side.

    Tables lose `FINAL`: rows of the lake are merged always, as what is written again is appended there.
    """
    values: dict[str, Any] = {}

    def bound(match: re.Match[str]) -> str:
        return _bound(match[1], params[match[1]], values, is_list=match[2] == "Array(Int64)")

    text = _PARAMETER.sub(bound, sql)
    for pattern, replacement in _FORMS:
        text = pattern.sub(replacement, text)
    tables = tuple(dict.fromkeys(match[1] for match in _TABLE.finditer(text)))
    return Translated(_TABLE.sub(r'FROM "\1"', text), values, tables)


def _bound(name: str, value: Any, values: dict[str, Any], *, is_list: bool) -> str:
    """Return the text that stands for a parameter; texts become what `IN` takes, numbers a list."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        values[name] = value
        return f"${name}::BIGINT" if isinstance(value, int) else f"${name}"
    each = {f"{name}_{position}": item for position, item in enumerate(value)}
    values |= each
    if is_list:
        return f"[{', '.join(f'${item}::BIGINT' for item in each)}]"
    return f"({', '.join(f'${item}' for item in each)})"


def macro_statements() -> list[str]:
    """Return the statements that a connection runs before the first question."""
    return [f"CREATE OR REPLACE TEMP MACRO {macro}" for macro in MACROS]
