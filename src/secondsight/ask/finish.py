"""Complete the tables of a question: pieces of time without events, order, medians, a forecast.

What is computed here is marked as derived.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from statistics import median

from secondsight.ask.calendar import Calendar, zone_of
from secondsight.ask.compile import Column
from secondsight.ask.question import ERROR_EVENTS, GPU_HOURS, Bucket, Kind, Question, Stat
from secondsight.ask.sqltext import bucket_name
from secondsight.ask.tables import Cell, Table, as_number

FORECAST_WEEKS = 4
FULL_WEEKS_LEAST = 3
FILLED_MAXIMUM = 1_000
HELD_BACK = "held_back_gpu_hours"
COUNT = "count"
"""Name of the table that says how many things pass a condition."""
_CALENDAR = frozenset({Bucket.HOUR, Bucket.DAY, Bucket.WEEK, Bucket.MONTH, Bucket.QUARTER})


def finished(table: Table, question: Question, now_ms: int) -> Table:
    """Return a table as it is shown."""
    done = _zeros(table, question)
    if question.kind is Kind.FORECAST:
        return _with_forecast(done, question, now_ms)
    if question.kind is Kind.STRAGGLERS:
        return _with_medians(done)
    return _ranked(done, question) if question.kind in (Kind.FIGURES, Kind.REPLACEMENT) else done


def with_count(tables: Sequence[Table], question: Question) -> tuple[Table, ...]:
    """Return the tables, with the number of things that pass a condition before them."""
    first = tables[0] if tables else None
    asked = question.conditions or question.counted
    if first is None or not asked or not first.keys or question.bucket:
        return tuple(tables)
    count = Table(COUNT, (Column(f"{first.keys[-1].removesuffix('_id')}_count"),), ((len(first.rows),),))
    return (*tables, replace(count, derived=frozenset({count.columns[0].name})))


def _zeros(table: Table, question: Question) -> Table:
    """Give pieces of time without events their 0, and groups without events in a joined table too."""
    counts = {column.name for column in table.columns if column.measure and column.measure.metric == ERROR_EVENTS}
    if not counts:
        return table
    at = [table.index(name) for name in counts]
    rows = [tuple(0 if i in at and cell is None else cell for i, cell in enumerate(row)) for row in table.rows]
    bucket = question.bucket
    only = len(table.columns) == len(table.keys) + len(counts)
    if bucket in _CALENDAR and table.keys == (bucket_name(bucket),) and only:
        present = {str(row[0]): row for row in rows}
        rows = [present.get(key, (key, *(0 for _ in counts))) for key in _pieces(question)]
    return replace(table, rows=tuple(rows))


def _pieces(question: Question) -> list[str]:
    """Return every piece of a range in its zone, as the views name it."""
    one, bucket = question.range, question.bucket
    zone = zone_of(one.zone)
    at = datetime.fromtimestamp(one.from_ms / 1000, UTC).astimezone(zone)
    end = datetime.fromtimestamp((one.to_ms - 1) / 1000, UTC).astimezone(zone)
    if bucket is Bucket.HOUR:
        hours = (one.to_ms - one.from_ms) // 3_600_000 + 2
        moments = [
            datetime.fromtimestamp(one.from_ms / 1000 + 3600 * step, UTC).astimezone(zone) for step in range(hours)
        ]
        named = [f"{moment:%Y-%m-%d %H}:00:00" for moment in moments if moment <= end]
        return list(dict.fromkeys([*named, f"{end:%Y-%m-%d %H}:00:00"]))[:FILLED_MAXIMUM]
    days = [at.date() + timedelta(days=step) for step in range(min((end.date() - at.date()).days + 1, FILLED_MAXIMUM))]
    return list(dict.fromkeys(str(_start(day, bucket)) for day in days))


def _start(day: date, bucket: Bucket | None) -> date:
    match bucket:
        case Bucket.WEEK:
            return day - timedelta(days=day.weekday())
        case Bucket.MONTH:
            return day.replace(day=1)
        case Bucket.QUARTER:
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case _:
            return day


def _ranked(table: Table, question: Question) -> Table:
    """Order rows that were put together here, and drop those that no condition lets pass."""
    rows = [row for row in table.rows if _passes(row, table, question)]
    ranking = question.ranking
    figures = [column for column in table.columns if column.measure is not None]
    if question.kind is Kind.REPLACEMENT and figures:
        at = [table.index(column.name) for column in figures]
        rows = [tuple(0 if i in at and cell is None else cell for i, cell in enumerate(row)) for row in rows]
        rows = [row for row in rows if any(as_number(row[i]) > 0 for i in at)]
        rows.sort(key=lambda row: tuple(-as_number(row[i]) for i in at))
    elif ranking is not None and figures:
        at_one = table.index(figures[0].name)
        known = [row for row in rows if row[at_one] is not None]
        known.sort(key=lambda row: as_number(row[at_one]), reverse=ranking.descending)
        rows = known[: ranking.count or len(known)]
    return replace(table, rows=tuple(rows))


def _passes(row: tuple[Cell, ...], table: Table, question: Question) -> bool:
    for condition in question.conditions:
        wanted = question.measures[condition.measure] if condition.measure < len(question.measures) else None
        at = next(
            (i for i, column in enumerate(table.columns) if column.measure == wanted and wanted is not None), None
        )
        if at is None:
            continue
        value = row[at]
        if value is None or (
            as_number(value) <= condition.value if condition.above else as_number(value) >= condition.value
        ):
            return False
    return True


def _with_cost(table: Table) -> Table:
    """Return a table of GPUs with the GPU-hours that the job loses where all wait for each."""
    ratio = next((column.name for column in table.columns if column.name.endswith("ratio_to_median")), "")
    hours = next((c.name for c in table.columns if c.measure is not None and c.measure.metric == GPU_HOURS), "")
    if not ratio or not hours:
        return table
    whole = sum(as_number(cell) for cell in table.cells(hours))
    at = table.index(ratio)
    rows = tuple(
        (*row, max(1 - as_number(row[at]), 0.0) * whole if row[at] is not None else None) for row in table.rows
    )
    columns = (*table.columns, Column(HELD_BACK, "h"))
    return replace(table, columns=columns, rows=rows, derived=table.derived | {HELD_BACK})


def _with_medians(table: Table) -> Table:
    """Return a table of GPUs with how far each figure lies below the median of all, lowest first."""
    figures = [column for column in table.columns if column.measure is not None and column.measure.stat is Stat.MEAN]
    columns, rows = list(table.columns), [list(row) for row in table.rows]
    for column in figures:
        at = table.index(column.name)
        known = [as_number(row[at]) for row in table.rows if row[at] is not None]
        middle = median(known) if known else 0.0
        columns.append(Column(f"{column.name}_to_median", "1"))
        for row in rows:
            row.append(as_number(row[at]) / middle if middle and row[at] is not None else None)
    rows.sort(
        key=lambda row: min((as_number(cell) for cell in row[len(table.columns) :] if cell is not None), default=2.0)
    )
    names = frozenset(column.name for column in columns[len(table.columns) :])
    return _with_cost(replace(table, columns=tuple(columns), rows=tuple(map(tuple, rows)), derived=names))


def _with_forecast(table: Table, question: Question, now_ms: int) -> Table:
    """Return weekly figures with a straight line through the whole weeks, continued, and its band."""
    at = next((i for i, column in enumerate(table.columns) if column.measure is not None), None)
    if at is None:
        return table
    unit = table.columns[at].unit
    marks = (Column("kind_of_value"), Column("low", unit), Column("high", unit))
    rows: list[tuple[Cell, ...]] = [(*row, "measured", None, None) for row in table.rows]
    whole = _whole_weeks(table, question, now_ms)
    points = [(index, as_number(row[at])) for index, row in enumerate(whole) if row[at] is not None]
    if len(points) >= FULL_WEEKS_LEAST:
        last = date.fromisoformat(str(whole[-1][0]))
        for ahead, (value, spread) in enumerate(_extended(points, len(whole)), 1):
            row: list[Cell] = [None] * len(table.columns)
            row[0], row[at] = str(last + timedelta(weeks=ahead)), value
            rows.append((*row, "forecast", value - spread, value + spread))
    return replace(table, columns=(*table.columns, *marks), rows=tuple(rows), derived=frozenset({"low", "high"}))


def _whole_weeks(table: Table, question: Question, now_ms: int) -> list[tuple[Cell, ...]]:
    calendar = Calendar(zone_of(question.zone), now_ms)
    whole = []
    for row in table.rows:
        week = calendar.days(date.fromisoformat(str(row[0])[:10]), 7)
        if week.from_ms >= question.range.from_ms and week.to_ms <= question.range.to_ms:
            whole.append(row)
    return whole


def _extended(points: Sequence[tuple[int, float]], start: int) -> list[tuple[float, float]]:
    """Return (value, half width of the band) for weeks after the last, by least squares."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread_x = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread_x if spread_x else 0.0
    rest = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    error = math.sqrt(rest / max(count - 2, 1))
    done = []
    for ahead in range(FORECAST_WEEKS):
        x = start + ahead
        band = 2 * error * math.sqrt(1 + 1 / count + ((x - mean_x) ** 2 / spread_x if spread_x else 0.0))
        done.append((mean_y + slope * (x - mean_x), band))
    return done
