"""Run the statements of a question and put their rows side by side.

Statements go through the caller's runner, which is the guard: nothing here reaches an engine. Instants are folded,
pieces of time without events become 0, and what is computed here is marked as derived.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from statistics import median

from secondsight.ask.calendar import Calendar, zone_of
from secondsight.ask.compile import Column, Fold, Statement
from secondsight.ask.question import ERROR_EVENTS, GPU_HOURS, GPUS, Bucket, Kind, Measure, Question, Stat
from secondsight.ask.sqltext import bucket_name
from secondsight.errors import Rejected

Cell = float | int | str | None
FORECAST_WEEKS = 4
FULL_WEEKS_LEAST = 3
FILLED_MAXIMUM = 1_000
DAYS_MAXIMUM = 100_000
"""A smaller number that is a date counts days since 1970, a greater one seconds."""
RATE = "events_per_gpu_day"
_JOINED = frozenset({"figures", "by cluster", "over all"})
"""Tables whose statements go side by side."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What a statement gave.

    Attributes:
        truncated: True where there were more rows than one answer may have.
        warnings: What is said of the quality of what was read.
    """

    names: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    truncated: bool = False
    warnings: tuple[str, ...] = ()


Runner = Callable[[str], Rows]
"""Runs one statement of the planner or a model under the caller's scope.

Raises:
    Rejected: The statement is refused, or was too much.
    Retryable: The store is away or busy.
"""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of an answer.

    Attributes:
        keys: Names of the columns that say what a row is of.
        derived: Names of columns that were computed from the others.
    """

    name: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    keys: tuple[str, ...] = ()
    derived: frozenset[str] = frozenset()
    truncated: bool = False

    def index(self, name: str) -> int:
        """Return where a column stands."""
        return [column.name for column in self.columns].index(name)

    def cells(self, name: str) -> list[Cell]:
        """Return the cells of a column."""
        at = self.index(name)
        return [row[at] for row in self.rows]

    def has(self, name: str) -> bool:
        """Tell whether there is such a column."""
        return any(column.name == name for column in self.columns)


@dataclass(frozen=True, slots=True)
class Ran:
    """All tables of a question, the statements that gave them, and what is said of the quality of their rows."""

    tables: tuple[Table, ...]
    statements: tuple[Statement, ...]
    warnings: tuple[str, ...] = ()


def run_statements(statements: Sequence[Statement], question: Question, runner: Runner, now_ms: int) -> Ran:
    """Return the tables of a question.

    Raises:
        Rejected, Retryable: As the runner says.
    """
    given = [_checked(runner(statement.sql), statement) for statement in statements]
    zone = question.zone
    tables = [_table(statement, rows, zone) for statement, rows in zip(statements, given, strict=True)]
    warnings = dict.fromkeys(warning for rows in given for warning in rows.warnings)
    joined = _joined(tables, statements)
    done = tuple(_finished(table, question, now_ms) for table in joined)
    return Ran(with_count(done, question), tuple(statements), tuple(warnings))


def _checked(rows: Rows, statement: Statement) -> Rows:
    if rows.truncated and statement.instants:
        message = "there are too many instants to add up GPUs at each"
        raise Rejected("cost_instants", message, "ask for a shorter range or one cluster")
    return rows


def _table(statement: Statement, rows: Rows, zone: str) -> Table:
    zones = [_time_zone(column, zone) for column in statement.columns]
    cells = tuple(
        tuple(time_cell(value, at) if at else plain_cell(value) for value, at in zip(row, zones, strict=True))
        for row in rows.rows
    )
    table = Table(statement.name, statement.columns, cells, statement.keys, truncated=rows.truncated)
    return _folded(table) if statement.instants else table


def _time_zone(column: Column, zone: str) -> str:
    """Return the zone that the times of a column are in; "" where it holds none."""
    if column.name in _LOCAL_TIMES:
        return zone
    return "UTC" if column.name in _TIMES else ""


_LOCAL_TIMES = frozenset(bucket_name(one) for one in Bucket) - {"hour_of_day", "weekday"}
_TIMES = frozenset({"window_start", "event_time", "step_at", "first_seen", "last_seen"})


def time_cell(value: object, zone: str) -> Cell:
    """Return a time as text in a zone: engines give seconds or days since 1970, or a moment."""
    if isinstance(value, datetime) and value.tzinfo:
        return plain_cell(value.astimezone(zone_of(zone)).replace(tzinfo=None))
    if not isinstance(value, int):
        return plain_cell(value)
    if value < DAYS_MAXIMUM:
        return str(date(1970, 1, 1) + timedelta(days=value))
    return plain_cell(datetime.fromtimestamp(value, UTC).astimezone(zone_of(zone)).replace(tzinfo=None))


def plain_cell(value: object) -> Cell:
    """Return a value as a cell: times as text in UTC, no NaN."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        moment = value.astimezone(UTC) if value.tzinfo else value
        return f"{moment:%Y-%m-%d %H:%M:%S}" + (f".{moment.microsecond // 1000:03d}" if moment.microsecond else "")
    if value is None or isinstance(value, int | str):
        return value
    return str(value)


def _folded(table: Table) -> Table:
    """Fold the instants of each group: the last key column is the instant."""
    count = len(table.keys)
    groups: dict[tuple[Cell, ...], list[tuple[Cell, ...]]] = {}
    for row in table.rows:
        groups.setdefault(row[:count], []).append(row[count + 1 :])
    columns = (*table.columns[:count], *table.columns[count + 1 :])
    folds = [column.fold for column in columns[count:]]
    rows = []
    for key, instants in groups.items():
        values = zip(*instants, strict=True)
        rows.append((*key, *(_fold(fold, one) for fold, one in zip(folds, values, strict=True))))
    return replace(table, columns=columns, rows=tuple(rows))


def _fold(fold: Fold | None, values: Sequence[Cell]) -> Cell:
    known = [float(value) for value in values if isinstance(value, int | float)]
    if not known:
        return None
    match fold:
        case Fold.MAX:
            return max(known)
        case Fold.SUM:
            return math.fsum(known)
        case _:
            return math.fsum(known) / len(known)


def _joined(tables: Sequence[Table], statements: Sequence[Statement]) -> list[Table]:
    """Put tables of equal keys side by side, those of one period each; periods come below each other."""
    done: list[tuple[str, Table]] = []
    for table, statement in zip(tables, statements, strict=True):
        mate = next((at for at, (period, other) in enumerate(done) if _match(statement, period, table, other)), None)
        if mate is None:
            done.append((statement.period, table))
        else:
            done[mate] = (statement.period, _with_rate(_side_by_side(done[mate][1], table), statement.days))
    if len({period for period, _ in done}) > 1:
        names = dict.fromkeys(table.name for _, table in done)
        return [_stacked([(period, table) for period, table in done if table.name == name]) for name in names]
    return [table for _, table in done]


def _match(statement: Statement, period: str, table: Table, other: Table) -> bool:
    same = set(table.keys) == set(other.keys)
    return same and period == statement.period and table.name == other.name and table.name in _JOINED


def _side_by_side(left: Table, right: Table) -> Table:
    left_keys = len(left.keys)
    order = [right.index(name) for name in left.keys]
    found = {tuple(row[at] for at in order): row[len(right.keys) :] for row in right.rows}
    more = [column for column in right.columns[len(right.keys) :] if not left.has(column.name)]
    places = [right.index(column.name) - len(right.keys) for column in more]
    empty = (None,) * len(right.columns)
    rows = []
    for row in left.rows:
        other = found.pop(row[:left_keys], empty)
        rows.append((*row, *(other[at] for at in places)))
    blank = (None,) * (len(left.columns) - left_keys)
    rows += [(*key, *blank, *(other[at] for at in places)) for key, other in found.items()]
    truncated = left.truncated or right.truncated
    return replace(left, columns=(*left.columns, *more), rows=tuple(rows), truncated=truncated)


def _stacked(tables: Sequence[tuple[str, Table]]) -> Table:
    """Return tables of several periods as one, with the change from the first period to the last in a column."""
    first = tables[0][1]
    rows = [(period, *row) for period, table in tables for row in table.rows]
    whole = replace(first, columns=(Column("period"), *first.columns), rows=tuple(rows), keys=("period", *first.keys))
    return _with_change(whole, tables[0][0])


def _with_rate(table: Table, days: float) -> Table:
    """Return a table of events and GPUs of one range with the events per GPU and day."""
    events = next((c.name for c in table.columns if c.measure and c.measure.metric == ERROR_EVENTS), "")
    gpus = next((c.name for c in table.columns if c.measure and c.measure.metric == GPUS), "")
    if not (events and gpus and days) or table.has(RATE):
        return table
    at, of = table.index(events), table.index(gpus)
    rows = tuple((*row, _number(row[at]) / (_number(row[of]) * days) if row[of] else None) for row in table.rows)
    extra = Column(RATE, "1/d", Measure(ERROR_EVENTS, Stat.PER_GPU_DAY))
    return replace(table, columns=(*table.columns, extra), rows=rows, derived=table.derived | {RATE})


def _with_change(table: Table, first: str) -> Table:
    figures = [column for column in table.columns if column.measure is not None]
    if not figures:
        return table
    column = next((one for one in figures if one.name == RATE), figures[0])
    keys = len(table.keys)
    at = table.index(column.name)
    base = {row[1:keys]: row[at] for row in table.rows if row[0] == first}
    rows = []
    for row in table.rows:
        before, now = base.get(row[1:keys]), row[at]
        known = isinstance(before, int | float) and isinstance(now, int | float) and row[0] != first
        rows.append((*row, float(now) - float(before) if known else None))  # type: ignore[arg-type]
    extra = Column("change", column.unit)
    return replace(table, columns=(*table.columns, extra), rows=tuple(rows), derived=table.derived | {"change"})


def with_count(tables: Sequence[Table], question: Question) -> tuple[Table, ...]:
    """Return the tables, with the number of things that pass a condition before them."""
    first = tables[0] if tables else None
    asked = question.conditions or question.counted
    if first is None or not asked or not first.keys or question.bucket:
        return tuple(tables)
    count = Table("count", (Column(f"{first.keys[-1].removesuffix('_id')}_count"),), ((len(first.rows),),))
    return (*tables, replace(count, derived=frozenset({count.columns[0].name})))


def _finished(table: Table, question: Question, now_ms: int) -> Table:
    done = _zeros(table, question)
    if question.kind is Kind.FORECAST:
        return with_forecast(done, question, now_ms)
    if question.kind is Kind.STRAGGLERS:
        return with_medians(done)
    return _ranked(done, question) if question.kind in (Kind.FIGURES, Kind.REPLACEMENT) else done


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
        rows = [present.get(key, (key, *(0 for _ in counts))) for key in pieces(question)]
    return replace(table, rows=tuple(rows))


_CALENDAR = frozenset({Bucket.HOUR, Bucket.DAY, Bucket.WEEK, Bucket.MONTH, Bucket.QUARTER})


def pieces(question: Question) -> list[str]:
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
        rows = [row for row in rows if any(_number(row[i]) > 0 for i in at)]
        rows.sort(key=lambda row: tuple(-_number(row[i]) for i in at))
    elif ranking is not None and figures:
        at_one = table.index(figures[0].name)
        known = [row for row in rows if row[at_one] is not None]
        known.sort(key=lambda row: _number(row[at_one]), reverse=ranking.descending)
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
            _number(value) <= condition.value if condition.above else _number(value) >= condition.value
        ):
            return False
    return True


def _number(cell: Cell) -> float:
    return float(cell) if isinstance(cell, int | float) else 0.0


HELD_BACK = "held_back_gpu_hours"


def _with_cost(table: Table) -> Table:
    """Return a table of GPUs with the GPU-hours that the job loses where all wait for each."""
    ratio = next((column.name for column in table.columns if column.name.endswith("ratio_to_median")), "")
    hours = next((c.name for c in table.columns if c.measure is not None and c.measure.metric == GPU_HOURS), "")
    if not ratio or not hours:
        return table
    whole = sum(_number(cell) for cell in table.cells(hours))
    at = table.index(ratio)
    rows = tuple((*row, max(1 - _number(row[at]), 0.0) * whole if row[at] is not None else None) for row in table.rows)
    columns = (*table.columns, Column(HELD_BACK, "h"))
    return replace(table, columns=columns, rows=rows, derived=table.derived | {HELD_BACK})


def with_medians(table: Table) -> Table:
    """Return a table of GPUs with how far each figure lies below the median of all, lowest first."""
    figures = [column for column in table.columns if column.measure is not None and column.measure.stat is Stat.MEAN]
    columns, rows = list(table.columns), [list(row) for row in table.rows]
    for column in figures:
        at = table.index(column.name)
        known = [_number(row[at]) for row in table.rows if row[at] is not None]
        middle = median(known) if known else 0.0
        columns.append(Column(f"{column.name}_to_median", "1"))
        for row in rows:
            row.append(_number(row[at]) / middle if middle and row[at] is not None else None)
    rows.sort(
        key=lambda row: min((_number(cell) for cell in row[len(table.columns) :] if cell is not None), default=2.0)
    )
    names = frozenset(column.name for column in columns[len(table.columns) :])
    return _with_cost(replace(table, columns=tuple(columns), rows=tuple(map(tuple, rows)), derived=names))


def with_forecast(table: Table, question: Question, now_ms: int) -> Table:
    """Return weekly figures with a straight line through the whole weeks, continued, and its band."""
    at = next((i for i, column in enumerate(table.columns) if column.measure is not None), None)
    if at is None:
        return table
    unit = table.columns[at].unit
    marks = (Column("kind_of_value"), Column("low", unit), Column("high", unit))
    rows: list[tuple[Cell, ...]] = [(*row, "measured", None, None) for row in table.rows]
    whole = _whole_weeks(table, question, now_ms)
    points = [(index, _number(row[at])) for index, row in enumerate(whole) if row[at] is not None]
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
