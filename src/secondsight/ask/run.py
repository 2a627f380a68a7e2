"""Run the statements of a question and put their rows side by side.

Statements go through the caller's runner, which is the guard: nothing here reaches an engine. Instants are folded, and
what is computed here is marked as derived.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from secondsight.ask.compile import Column, Fold, Statement
from secondsight.ask.finish import finished, with_count
from secondsight.ask.question import ERROR_EVENTS, GPUS, Bucket, Measure, Question, Stat
from secondsight.ask.sqltext import bucket_name
from secondsight.ask.tables import Cell, Table, as_number, plain_cell, time_cell
from secondsight.errors import Rejected

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
    done = tuple(finished(table, question, now_ms) for table in joined)
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
    rows = tuple((*row, as_number(row[at]) / (as_number(row[of]) * days) if row[of] else None) for row in table.rows)
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
