"""Say why a job was slow, from figures of its GPUs and the errors on them: a tree of checks, each with its evidence.

    uneven GPUs      -> a straggler: throttled, at lower clocks, with errors, or none of these
    little use       -> the GPUs waited: data, network, or the host's CPU, which these views do not hold
    much use         -> throttled, else bound by memory bandwidth, else by compute

Every limit of a check is named beside it. What the views do not hold is said, not guessed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import median

from secondsight.ask.compile import Column, Statement, compile_figures
from secondsight.ask.figures import weighted_mean
from secondsight.ask.format import figure
from secondsight.ask.question import ERROR_EVENTS, Kind, Measure, Question, Stat
from secondsight.ask.sqltext import held, query, within
from secondsight.ask.tables import Cell, Table
from secondsight.ask.views import Views
from secondsight.query.times import format_time

UTILISATION, CLOCK = "gpu_utilization_ratio", "gpu_sm_clock_hertz"
UNEVEN_BELOW = 0.9
"""A GPU whose mean utilisation is below this part of the median holds the others back."""
LITTLE_BELOW, MUCH_ABOVE = 0.5, 0.8
CLOCK_BELOW = 0.95
THROTTLED_ABOVE = 0.01
"""Share of covered time."""
AROUND_MS = 30_000
"""So much before and behind the begin of a GPU's worst window does the link to its seconds show."""
BANDWIDTH_ABOVE = 0.6
RESETS = "counter_reset"
"""Events of this kind say that counters began again, as at each load of the driver: no error slows a job down by it."""
_COUNTED = (
    ("gpu_throttle_hw_thermal_seconds_total", "thermal_throttle_seconds"),
    ("gpu_throttle_sw_thermal_seconds_total", "software_thermal_throttle_seconds"),
    ("gpu_throttle_sw_power_cap_seconds_total", "power_throttle_seconds"),
    ("gpu_pcie_replay_total", "pcie_replays"),
    ("gpu_nvlink_replay_errors_total", "nvlink_replays"),
    ("gpu_ecc_uncorrected_volatile_total", "uncorrected_ecc"),
)
_MEANS = (
    (UTILISATION, "utilisation"),
    (CLOCK, "clock"),
    ("gpu_dram_active_ratio", "memory_bandwidth"),
    ("gpu_sm_active_ratio", "sm_activity"),
)
_UNITS = {"utilisation": "1", "memory_bandwidth": "1", "sm_activity": "1", "clock": "Hz"}
_THROTTLES = ("thermal_throttle_seconds", "software_thermal_throttle_seconds", "power_throttle_seconds")
_UNITS |= dict.fromkeys((*_THROTTLES, "covered_seconds"), "s")

LIMITS = (
    f"Limits used: a GPU below {UNEVEN_BELOW:.0%} of the median utilisation is uneven; below {LITTLE_BELOW:.0%} is "
    f"little use, above {MUCH_ABOVE:.0%} much; throttled is more than {THROTTLED_ABOVE:.0%} of the time; a clock below "
    f"{CLOCK_BELOW:.0%} of the median is low; memory bandwidth above {BANDWIDTH_ABOVE:.0%} is a bound."
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One check that found something.

    Attributes:
        place: Host and GPU, or "all GPUs".
        link: Where the seconds of it are.
    """

    check: str
    place: str
    value: Cell
    unit: str
    link: str


def compile_diagnosis(question: Question, views: Views, now_ms: int) -> tuple[Statement, ...]:
    """Return the statements: figures of each GPU of the job, with its worst window, and the errors on them."""
    del now_ms
    view = views.fine
    means = [(name, alias) for name, alias in _MEANS if views.measures(name)]
    counts = [(name, alias) for name, alias in _COUNTED if views.measures(name)]
    covered = views.column(UTILISATION, "count", view)
    items = [
        "host_id", "gpu_id",
        *(f"{weighted_mean(name, view, views)} AS {alias}" for name, alias in means),
        *(f"sum({views.column(name, 'increase', view)}) AS {alias}" for name, alias in counts),
        f"sum({covered}) AS covered_seconds",
        f"argMin(window_start, {views.column(UTILISATION, 'avg', view)}) AS step_at",
    ]  # fmt: skip
    where = [*within(question.range, view), *held(question.filters, view)]
    keys = ("host_id", "gpu_id")
    sql = query(items, view.name, where, group=keys, tail=["ORDER BY utilisation, host_id, gpu_id"])
    named = [*(alias for _, alias in (*means, *counts)), "covered_seconds"]
    first = Column("utilisation", "1", Measure(UTILISATION, Stat.MEAN))
    figures = [first if name == "utilisation" else Column(name, _UNITS.get(name, "")) for name in named]
    columns = (*(Column(name) for name in keys), *figures, Column("step_at"))
    errors = replace(
        question, kind=Kind.FIGURES, measures=(Measure(ERROR_EVENTS, Stat.COUNT),), dimensions=("gpu_id", "kind")
    )
    return (
        Statement("gpus", sql, columns, keys, view.name),
        *(replace(one, name="errors") for one in compile_figures(errors, views)),
    )


def with_evidence(tables: Sequence[Table], question: Question) -> tuple[Table, ...]:
    """Return the tables of a diagnosis with what the checks found before them."""
    gpus = next((table for table in tables if table.name == "gpus"), None)
    if gpus is None or not gpus.rows:
        return tuple(tables)
    errors = next((table for table in tables if table.name == "errors"), None)
    wrong = [row for row in _rows(errors) if row.get("kind") != RESETS] if errors else []
    found = _checks(_rows(gpus), wrong, question)
    rows = tuple((one.check, one.place, *_in_percent(one), one.link) for one in found)
    names = ("check", "place", "value", "unit", "link")
    columns = tuple(Column(name) for name in names)
    return (Table("evidence", columns, rows, ("check", "place"), frozenset({"value"})), *tables)


def _in_percent(one: Evidence) -> tuple[Cell, str]:
    """Return value and unit: ratios of checks as percent."""
    return (_number(one.value) * 100, "%") if one.unit == "1" else (one.value, one.unit)


def _rows(table: Table) -> list[dict[str, Cell]]:
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows]


def _checks(
    gpus: Sequence[Mapping[str, Cell]], errors: Sequence[Mapping[str, Cell]], question: Question
) -> list[Evidence]:
    levels = [_number(row["utilisation"]) for row in gpus]
    middle, mean = median(levels), sum(levels) / len(levels)
    slow = [row for row in gpus if middle and _number(row["utilisation"]) < UNEVEN_BELOW * middle]
    found = [Evidence("median utilisation", "all GPUs", middle, "1", "")]
    if slow:
        for row in slow[:5]:
            found += _straggler(row, gpus, errors, middle, question)
    elif mean < LITTLE_BELOW:
        found.append(Evidence("little use on all GPUs", "all GPUs", mean, "1", _link(gpus[0], question)))
    elif mean > MUCH_ABOVE:
        found += _busy(gpus, question)
    found += _throttled(gpus, question) if not slow else []
    found += [Evidence(f"{row['kind']} errors", str(row["gpu_id"]), _count(row), "", "") for row in errors[:5]]
    return found


def _straggler(
    row: Mapping[str, Cell],
    gpus: Sequence[Mapping[str, Cell]],
    errors: Sequence[Mapping[str, Cell]],
    middle: float,
    question: Question,
) -> list[Evidence]:
    """Return that a GPU holds the others back, and what is known to slow a GPU down of it."""
    place, link = _place(row), _link(row, question)
    found = [Evidence("below the median of utilisation", place, _number(row["utilisation"]) / middle, "1", link)]
    clock = median([_number(one.get("clock")) for one in gpus])
    if clock and _number(row.get("clock")) < CLOCK_BELOW * clock:
        found.append(Evidence("low clock, of the median", place, _number(row.get("clock")) / clock, "1", link))
    found += [
        Evidence(_words(name), place, row[name], _UNITS.get(name, ""), link)
        for _, name in _COUNTED
        if _number(row.get(name)) > _least(name, row)
    ]
    mine = [one for one in errors if one.get("gpu_id") == row["gpu_id"]]
    return [*found, *(Evidence(f"{one['kind']} errors on it", place, _count(one), "", link) for one in mine)]


def _least(name: str, row: Mapping[str, Cell]) -> float:
    """Return what a counter has to exceed: throttling a share of the time, errors nothing."""
    return THROTTLED_ABOVE * _number(row.get("covered_seconds")) if name in _UNITS else 0.0


def _busy(gpus: Sequence[Mapping[str, Cell]], question: Question) -> list[Evidence]:
    known = [_number(row["memory_bandwidth"]) for row in gpus if row.get("memory_bandwidth") is not None]
    link = _link(gpus[0], question)
    if known and sum(known) / len(known) > BANDWIDTH_ABOVE:
        return [Evidence("bound by memory bandwidth", "all GPUs", sum(known) / len(known), "1", link)]
    mean = sum(_number(row["utilisation"]) for row in gpus) / len(gpus)
    return [Evidence("busy: bound by compute", "all GPUs", mean, "1", link)]


def _throttled(gpus: Sequence[Mapping[str, Cell]], question: Question) -> list[Evidence]:
    found = []
    for name in _THROTTLES:
        for row in gpus:
            if _number(row.get(name)) > _least(name, row):
                found.append(Evidence(_words(name), _place(row), row[name], "s", _link(row, question)))
    return found[:5]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _place(row: Mapping[str, Cell]) -> str:
    return f"{row['host_id']} {row['gpu_id']}"


def _link(row: Mapping[str, Cell], question: Question) -> str:
    """Return where the seconds of a GPU are: its worst window, with a minute around it."""
    at = str(row.get("step_at") or "")
    from_ms, to_ms = question.range.from_ms, question.range.to_ms
    if at:
        at_ms = int(datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp()) * 1000
        from_ms, to_ms = at_ms - AROUND_MS, at_ms + AROUND_MS
    around = f"from={format_time(from_ms)}&to={format_time(to_ms)}"
    return f"/v1/gpus/{row['gpu_id']}/telemetry?metrics=gpu_utilization_ratio,gpu_sm_clock_hertz&{around}&resolution=1s"


def _count(row: Mapping[str, Cell]) -> Cell:
    return next((value for name, value in row.items() if name.startswith("count_of_")), 0)


def _number(cell: Cell) -> float:
    return float(cell) if isinstance(cell, int | float) else 0.0


def diagnosis_sentences(question: Question, tables: Sequence[Table]) -> list[str]:
    """Return the finding in words, the likely cause first."""
    del question
    evidence = next((table for table in tables if table.name == "evidence"), None)
    if evidence is None:
        return ["No rows of this job are in the range."]
    checks = [(str(row[0]), str(row[1]), row[2], str(row[3])) for row in evidence.rows]
    told = [f"{check}, {place}: {figure(value, unit)}" for check, place, value, unit in checks]
    return [_verdict({check for check, *_ in checks}), f"Evidence - {'; '.join(told[:8])}."]


def _verdict(checks: set[str]) -> str:
    if "below the median of utilisation" in checks:
        causes = sorted(checks & _CAUSES) or ["none of the causes that these views hold"]
        return f"The GPUs of the job are uneven: some hold the others back. With them: {', '.join(causes)}."
    if "little use on all GPUs" in checks:
        return (
            "All GPUs of the job were little used: they waited, for data, tokenising or the network. The host's CPU is "
            "not in these views; its page has it."
        )
    if checks & {_words(name) for name in _THROTTLES}:
        return "The GPUs were slowed down by temperature or by a limit of power."
    if "bound by memory bandwidth" in checks:
        return "The GPUs were busy and near their memory bandwidth: that is the bound."
    if "busy: bound by compute" in checks:
        return "The GPUs were busy and even: the job is bound by compute, not held back."
    return "Nothing in these views says that the job was held back: use is even and in the middle."


_CAUSES = frozenset(
    {"low clock, of the median", "thermal throttle seconds", "software thermal throttle seconds",
     "power throttle seconds", "pcie replays", "nvlink replays", "uncorrected ecc", "xid errors on it",
     "ecc errors on it", "thermal errors on it", "nvlink errors on it"}
)  # fmt: skip
