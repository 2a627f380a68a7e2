"""Write the pieces of SQL that questions are made of: literals, times, buckets, predicates.

Values come from lists of known names, from closed lists and from numbers; they are quoted all the same.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from secondsight.ask.question import Bucket, Filter, Range
from secondsight.guard.registry import Role, View

_BUCKETS: dict[Bucket, tuple[str, str]] = {
    Bucket.SECOND: ("second", "{time}"),
    Bucket.FIVE_MINUTES: ("window_5m", "toStartOfFiveMinutes({time})"),
    Bucket.HOUR: ("hour_start", "toStartOfHour({local})"),
    Bucket.DAY: ("day", "toDate({local})"),
    Bucket.WEEK: ("week_start", "toMonday({local})"),
    Bucket.MONTH: ("month_start", "toStartOfMonth({local})"),
    Bucket.QUARTER: ("quarter_start", "toStartOfQuarter({local})"),
    Bucket.HOUR_OF_DAY: ("hour_of_day", "toHour({local})"),
    Bucket.WEEKDAY: ("weekday", "toDayOfWeek({local})"),
}


def quoted(text: str) -> str:
    """Return a text as a literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def bucket_name(bucket: Bucket) -> str:
    """Return the name of the column that holds a bucket."""
    return _BUCKETS[bucket][0]


def bucket_expression(bucket: Bucket, view: View, zone: str, alias: str = "") -> str:
    """Return the expression of the bucket that a row lies in, in a zone."""
    time = f"{alias}{view.time_column}"
    local = time if zone == "UTC" else f"toTimeZone({time}, {quoted(zone)})"
    return _BUCKETS[bucket][1].format(time=time, local=local)


def instant(view: View, time_ms: int) -> str:
    """Return a time as a literal of the type of a view's time column."""
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    if view.time_column == "window_start":
        return f"toDateTime('{moment:%Y-%m-%d %H:%M:%S}', 'UTC')"
    return f"toDateTime64('{moment:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d}', 3, 'UTC')"


def within(one: Range, view: View, alias: str = "") -> list[str]:
    """Return the predicates that hold rows to a range, its hours and its weekdays."""
    time = f"{alias}{view.time_column}"
    found = [f"{time} >= {instant(view, one.from_ms)}", f"{time} < {instant(view, one.to_ms)}"]
    local = time if one.zone == "UTC" else f"toTimeZone({time}, {quoted(one.zone)})"
    if one.weekdays:
        found.append(f"toDayOfWeek({local}) IN ({', '.join(map(str, sorted(one.weekdays)))})")
    if one.hours:
        start, end = one.hours
        joint = "AND" if start < end else "OR"
        found.append(f"(toHour({local}) >= {start} {joint} toHour({local}) < {end})")
    return found


def held(filters: Sequence[Filter], view: View, alias: str = "") -> list[str]:
    """Return the predicates that hold rows to filters; a filter on a column that a view has not is left out."""
    return [_filter(one, view, alias) for one in filters if view.get(one.column) is not None]


def _filter(one: Filter, view: View, alias: str) -> str:
    column = view.get(one.column)
    is_code = column is not None and column.role is Role.CODE
    values = [str(int(value)) if is_code else quoted(value) for value in one.values]
    name = f"{alias}{one.column}"
    if len(values) == 1:
        return f"{name} {'!=' if one.negated else '='} {values[0]}"
    return f"{name} {'NOT IN' if one.negated else 'IN'} ({', '.join(values)})"


def scaled(expression: str, factor: float, offset: float) -> str:
    """Return an expression in another unit; a factor below 1 is written as the division that it stands for."""
    text = expression
    if factor != 1:
        inverse = 1 / factor
        whole = inverse > 1 and abs(inverse - round(inverse)) < 1e-9 * inverse
        text = f"{text} / {round(inverse)}" if whole else f"{text} * {number(factor)}"
    return f"{text} + {number(offset)}" if offset else text


def number(value: float) -> str:
    """Return a number as a literal without exponent."""
    return str(int(value)) if value == int(value) else f"{value:.17g}" if abs(value) >= 1e-4 else f"{value:.17f}"


def query(
    items: Sequence[str],
    source: str,
    where: Sequence[str] = (),
    *,
    group: Sequence[str] = (),
    tail: Sequence[str] = (),
) -> str:
    """Write a SELECT; `tail` is what follows GROUP BY."""
    clauses = [f"SELECT {', '.join(items)}", f"FROM {source}"]
    if where:
        clauses.append(f"WHERE {' AND '.join(where)}")
    if group:
        clauses.append(f"GROUP BY {', '.join(group)}")
    return " ".join([*clauses, *tail])
