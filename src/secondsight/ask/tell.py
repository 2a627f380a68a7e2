"""Tell a result in sentences: what was found, how the question was read, and what limits the answer.

Every sentence that holds a figure is checked against the cells afterwards; this module only writes.
"""

from collections.abc import Callable, Mapping, Sequence

from secondsight.ask.calendar import HOUR_MS
from secondsight.ask.compile import Column, is_by_size
from secondsight.ask.defaults import cuts_half_hours
from secondsight.ask.diagnose import diagnosis_sentences
from secondsight.ask.finish import COUNT
from secondsight.ask.format import column_words, figure, local_time, measure_words, range_words
from secondsight.ask.jobs import STRAGGLER_BELOW_RATIO
from secondsight.ask.question import ERROR_EVENTS, GPUS, HOSTS, JOBS, Bucket, Kind, Question, Stat
from secondsight.ask.reading import Reading
from secondsight.ask.run import RATE
from secondsight.ask.tables import Cell, Table
from secondsight.ask.views import Views

LISTED = 5
COVERAGE_LEAST = 0.99
_TREND_ROWS = 3
_THINGS = frozenset({GPUS, HOSTS, JOBS})
TIMES = frozenset({"window_start", "event_time", "step_at", "first_seen", "last_seen"})


def sentences_of(question: Question, tables: Sequence[Table]) -> list[str]:
    """Return what was found, the most telling sentence first."""
    if is_empty(tables):
        return [_nothing(question)]
    special = _SPECIAL.get(question.kind)
    if special is not None:
        return special(question, tables)
    found = [text for table in tables for text in _of_table(question, table)]
    return found or [_nothing(question)]


def is_empty(tables: Sequence[Table]) -> bool:
    """Tell whether a result has no rows, or no figure in any; none of the things that have rows is no figure either."""
    if not any(table.rows for table in tables if table.name != COUNT):
        return True
    cells = [
        (row[table.index(column.name)], column.measure)
        for table in tables
        for row in table.rows
        for column in table.columns
        if column.measure is not None
    ]
    return bool(cells) and all(cell is None or (not cell and measure.metric in _THINGS) for cell, measure in cells)


def _nothing(question: Question) -> str:
    if question.kind is Kind.QUIET:
        return "None: everything that reports had such errors in this range."
    events = question.measures and all(measure.metric == ERROR_EVENTS for measure in question.measures)
    if events:
        return "None recorded in this range."
    if question.conditions or question.kind is Kind.IDLE:
        return "None: nothing in this range passes the limit."
    return "No data: nothing that you may see has rows for this in the range."


def _of_table(question: Question, table: Table) -> list[str]:
    if table.name == COUNT:
        return [f"Number of rows that pass the limit: {figure(table.rows[0][0], '')}."]
    figures = [column for column in table.columns if column.measure is not None]
    if not figures or not table.rows:
        return []
    if question.bucket is not None and table.name == "figures":
        return _of_series(question, table, figures[0])
    if not table.keys:
        return _single(question, table, figures)
    if is_by_size(question) and question.ranking is None:
        return _increases(table, figures)
    return [_list(table, figures[0])]


def _increases(table: Table, figures: Sequence[Column]) -> list[str]:
    """Return who has an increase at all, the largest first, for each counter by itself."""
    found = []
    for column in figures:
        at = table.index(column.name)
        rows = sorted((row for row in table.rows if row[at]), key=lambda row, at=at: -_value(row[at]))  # type: ignore[misc]
        if rows:
            found.append(_list(_with_rows(table, rows), column))
    return found or [f"None: {', '.join(column_words(column) for column in figures)} is 0 in every row."]


def _single(question: Question, table: Table, figures: Sequence[Column]) -> list[str]:
    row = table.rows[0]
    found = []
    for column in figures:
        cell = row[table.index(column.name)]
        if column.measure is None or cell is None:
            continue
        if column.measure.metric == ERROR_EVENTS and cell == 0:
            found.append("None recorded in this range: 0 events.")
        else:
            found.append(f"{_capital(column_words(column))}: {figure(cell, column.unit)}.")
    del question
    return found


def _list(table: Table, column: Column) -> str:
    """Return the first rows with their figure, in the order of the table."""
    at = table.index(column.name)
    named = [f"{_key(row, table)}: {figure(row[at], column.unit)}" for row in table.rows[:LISTED]]
    more = "" if len(table.rows) <= LISTED else "; the table has the others"
    return f"{_capital(column_words(column))} - {'; '.join(named)}{more}."


def _key(row: Sequence[Cell], table: Table) -> str:
    return " ".join(str(cell) if cell not in (None, "") else "(none)" for cell in row[: len(table.keys)])


def _of_series(question: Question, table: Table, column: Column) -> list[str]:
    """Return first, last and highest of a series, or its ranking."""
    at = table.index(column.name)
    rows = [row for row in table.rows if row[at] is not None]
    if not rows:
        return []
    if question.ranking is not None or len(table.keys) > 1:
        if question.ranking is None:
            rows = sorted(rows, key=lambda row: -_value(row[at]))
        return [_list(_with_rows(table, rows), column)]
    top = max(rows, key=lambda row: _value(row[at]))
    low = min(rows, key=lambda row: _value(row[at]))
    what = _capital(column_words(column))
    found = [
        f"{what} by {question.bucket}: highest {figure(top[at], column.unit)} ({top[0]}), "
        f"lowest {figure(low[at], column.unit)} ({low[0]})."
    ]
    if len(rows) >= _TREND_ROWS and question.bucket not in (Bucket.HOUR_OF_DAY, Bucket.WEEKDAY):
        first, last = rows[0], rows[-1]
        found.append(
            f"It began at {figure(first[at], column.unit)} ({first[0]}) and ended at "
            f"{figure(last[at], column.unit)} ({last[0]})."
        )
    return found


def _with_rows(table: Table, rows: Sequence[tuple[Cell, ...]]) -> Table:
    return Table(table.name, table.columns, tuple(rows), table.keys, table.derived, table.truncated)


def _value(cell: Cell) -> float:
    return float(cell) if isinstance(cell, int | float) else 0.0


def _change(question: Question, tables: Sequence[Table]) -> list[str]:
    table = tables[0]
    column = table.columns[len(table.keys)]
    row, unit = table.rows[0], column.unit
    at, before, after = (row[table.index(name)] for name in ("step_at", "from_level", "to_level"))
    place = f" of {_key(row, table)}" if table.keys else ""
    what = "rise" if question.rising else "drop"
    return [
        f"The largest {what}{place} was from {figure(before, unit)} to {figure(after, unit)}, in the window from "
        f"{local_time(at, question.zone)}.",
        "Compared are windows that follow each other; missing windows make no step.",
    ]


def _extreme(question: Question, tables: Sequence[Table]) -> list[str]:
    table = tables[0]
    column = table.columns[-1]
    row = table.rows[0]
    places = [f"{name.removesuffix('_id')} {row[table.index(name)]}" for name in table.keys if name not in TIMES]
    time = next(name for name in table.keys if name in TIMES)
    return [
        f"{_capital(column_words(column))}: {figure(row[-1], column.unit)}, {', '.join(places)}, in the window from "
        f"{local_time(row[table.index(time)], question.zone)}."
    ]


def _correlation(question: Question, tables: Sequence[Table]) -> list[str]:
    del question
    first = tables[0]
    if first.has("coefficient"):
        row = first.rows[0]
        return [f"Correlation coefficient {figure(row[0], '')} over {figure(row[1], '')} windows."]
    events, mean = first.rows[0]
    base, _ = tables[1].rows[0]
    unit = first.columns[1].unit
    return [
        f"Before {figure(events, '')} events the mean was {figure(mean, unit)}; over all windows it was "
        f"{figure(base, unit)}."
    ]


def _stragglers(question: Question, tables: Sequence[Table]) -> list[str]:
    del question
    table = tables[0]
    ratios = [column for column in table.columns if column.name.endswith("_to_median")]
    slow = [row for row in table.rows if _below(row, table, ratios)]
    if not slow:
        return ["No GPU of the job lies that far below the median."]
    named = []
    for row in slow[:LISTED]:
        parts = [
            f"{column_words(c)} {figure(row[table.index(c.name)], '1')}"
            for c in ratios
            if row[table.index(c.name)] is not None
        ]
        named.append(f"{_key(row, table)} ({', '.join(parts)})")
    return [f"Below the rule, against the median: {'; '.join(named)}."]


def _below(row: Sequence[Cell], table: Table, ratios: Sequence[Column]) -> bool:
    cells = [row[table.index(column.name)] for column in ratios]
    return any(isinstance(cell, int | float) and cell < 1 - STRAGGLER_BELOW_RATIO for cell in cells)


def _events(question: Question, tables: Sequence[Table]) -> list[str]:
    table = tables[0]
    row = dict(zip([column.name for column in table.columns], table.rows[0], strict=True))
    code = f" {row['code']}" if row["code"] else ""
    word = "First" if question.rising else "Newest"
    return [
        f"{word}: {row['kind']}{code} ({row['severity']}) on {row['host_id']} {row['gpu_id']} at "
        f"{local_time(row['event_time'], question.zone)}."
    ]


def _lifetime(question: Question, tables: Sequence[Table]) -> list[str]:
    table = tables[0]
    found = []
    for row in table.rows[:LISTED]:
        first, last = (local_time(row[table.index(name)], question.zone) for name in ("first_seen", "last_seen"))
        found.append(f"{_key(row, table)}: first window {first}, last window {last}.")
    if "job_id" not in question.dimensions:
        return found
    return [*found, "A job that began before the range, or whose host was silent, may have run longer."]


def _forecast(question: Question, tables: Sequence[Table]) -> list[str]:
    table = tables[0]
    column = next(column for column in table.columns if column.measure is not None)
    at, kind = table.index(column.name), table.index("kind_of_value")
    ahead = [row for row in table.rows if row[kind] == "forecast"]
    if not ahead:
        return ["There are too few whole weeks in the range for a forecast."]
    low, high = table.index("low"), table.index("high")
    named = [
        f"week of {row[0]}: {figure(row[at], column.unit)} (band {figure(row[low], column.unit)} to "
        f"{figure(row[high], column.unit)})"
        for row in ahead
    ]
    del question
    return [f"Forecast of {column_words(column)} - {'; '.join(named)}."]


def _periods(question: Question, tables: Sequence[Table]) -> list[str]:
    table = tables[0]
    figures = [column for column in table.columns if column.measure is not None]
    chosen = next((column for column in figures if column.name == RATE), figures[0])
    at = table.index(chosen.name)
    named = [f"{_key(row, table)}: {figure(row[at], chosen.unit)}" for row in table.rows[: 2 * LISTED]]
    del question
    return [f"{_capital(column_words(chosen))} - {'; '.join(named)}."]


def _quiet(question: Question, tables: Sequence[Table]) -> list[str]:
    del question
    table = tables[0]
    if not table.keys:
        return [f"Number without such errors: {figure(table.rows[0][0], '')}."]
    more = "" if len(table.rows) <= LISTED else "; the table has the others"
    return [f"Without such errors - {'; '.join(_key(row, table) for row in table.rows[:LISTED])}{more}."]


def _idle(question: Question, tables: Sequence[Table]) -> list[str]:
    table = tables[0]
    hours, share = table.index("idle_hours"), table.index("idle_share")
    named = [
        f"{_key(row, table)}: {figure(row[hours], 'h')} ({figure(row[share], '1')} of covered time)"
        for row in table.rows[:LISTED]
    ]
    del question
    return [f"Idle time, longest first - {'; '.join(named)}."]


def _summary(question: Question, tables: Sequence[Table]) -> list[str]:
    del question
    found = []
    for table in tables:
        figures = [column for column in table.columns if column.measure is not None]
        if not table.rows:
            found.append("No events were recorded.")
        for column in figures:
            found.append(_list(table, column))
    return found


_SPECIAL: Mapping[Kind, Callable[[Question, Sequence[Table]], list[str]]] = {
    Kind.CHANGE: _change,
    Kind.EXTREME: _extreme,
    Kind.CORRELATION: _correlation,
    Kind.STRAGGLERS: _stragglers,
    Kind.EVENTS: _events,
    Kind.LIFETIME: _lifetime,
    Kind.FORECAST: _forecast,
    Kind.PERIODS: _periods,
    Kind.IDLE: _idle,
    Kind.QUIET: _quiet,
    Kind.SUMMARY: _summary,
    Kind.SLOW_JOB: diagnosis_sentences,
}


def caveats_of(question: Question, tables: Sequence[Table], reading: Reading | None, views: Views) -> list[str]:
    """Return what limits an answer: how it was read, assumed ranges, partial pieces, coverage, rules used."""
    found = [_read_as(question, views)]
    if question.range.assumed:
        found.append(f"No range was named, so {question.range.words} was taken.")
    found += _pieces(question)
    found += _statistics(question)
    found += question.caveats
    found += _covered(tables)
    if any(table.truncated for table in tables):
        found.append("The result was cut: there are more rows than one answer may have.")
    if reading is not None and reading.read_as:
        slips = ", ".join(f"{written!r} as {read!r}" for written, read in reading.read_as.items())
        found.append(f"Read {slips}.")
    return found


def _read_as(question: Question, views: Views) -> str:
    measures = ", ".join(dict.fromkeys(measure_words(measure) for measure in question.measures))
    cut = [*question.dimensions, *([question.bucket.value] if question.bucket else [])]
    by = f" by {', '.join(cut)}" if cut else ""
    held = "".join(
        f"; {one.column} {'not ' if one.negated else ''}{' or '.join(value or '(none)' for value in one.values)}"
        for one in question.filters
    )
    ranges = "; ".join(range_words(one) for one in question.ranges)
    view = views.named(question.view)
    width = f" in windows of {_width(view.grain_seconds)}" if view.grain_seconds > 1 else ""
    return f"Read as: {measures}{by}{held}; {ranges}; view {view.name}{width}."


def _width(seconds: int) -> str:
    return f"{seconds // 3600} h" if seconds >= 3600 else f"{seconds // 60} min" if seconds >= 60 else f"{seconds} s"


def _pieces(question: Question) -> list[str]:
    found = []
    one = question.range
    if question.bucket in (Bucket.DAY, Bucket.WEEK, Bucket.MONTH, Bucket.QUARTER) or question.kind is Kind.PERIODS:
        if any(each.open_ended for each in question.ranges):
            found.append("The newest piece is not over yet: its figure is of a part.")
        if question.bucket is Bucket.WEEK and one.assumed:
            found.append("The first week is cut by the start of the range.")
    hours = (one.to_ms - one.from_ms) / HOUR_MS
    if one.zone != "UTC" and not one.open_ended and 22.5 < hours < 25.5 and hours != 24:
        found.append(f"This day has {hours:g} hours, as the clocks change.")
    if cuts_half_hours(question):
        found.append("The zone is off by a part of an hour, so windows of 5 min are read.")
    return found


def _statistics(question: Question) -> list[str]:
    stats = {measure.stat for measure in question.measures}
    found = []
    if Stat.QUANTILE in stats:
        found.append("The percentile is one of window means, not of single seconds; percentiles are never averaged.")
    if Stat.SUM in stats:
        found.append("The sum adds the GPUs at each instant and takes the mean over time; the mean is one GPU's.")
    if stats & {Stat.TOTAL, Stat.PER_GPU} and question.kind in (Kind.FIGURES, Kind.PERIODS):
        found.append("Counters are told by their increase in the range; resets are taken into account.")
    return found


def _covered(tables: Sequence[Table]) -> list[str]:
    cells = [cell for table in tables if table.has("covered_share") for cell in table.cells("covered_share")]
    shares = [cell for cell in cells if isinstance(cell, int | float)]
    if shares and min(shares) < COVERAGE_LEAST:
        return [f"Coverage is below {COVERAGE_LEAST:.0%}: at least {figure(min(shares), '1')} of the expected time."]
    return []


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
