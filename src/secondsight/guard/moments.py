"""Turn an expression of literals and `now()` into a point of time that the guard itself can compute.

A moment is kept as it was written, so that a plan that says `now() - INTERVAL 1 DAY` is right at any later time. Texts
without a zone are UTC, as in the views.
"""

import calendar
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from sqlglot import exp

from secondsight.guard.tree import interval_of, text_of, whole_number

MILLISECONDS = 1_000
_UNIT_MILLISECONDS = {
    "nanosecond": 0,
    "microsecond": 0,
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_UNIT_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_EARLIEST_MS = -5_000_000_000_000
_LATEST_MS = 20_000_000_000_000


@dataclass(frozen=True, slots=True)
class Step:
    """One thing done to a moment: `add` so many units, or cut it down (`floor`) to a multiple of so many."""

    verb: str
    unit: str
    amount: int = 1
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Moment:
    """A point of time.

    Attributes:
        base_ms: Epoch milliseconds, or None for now.
        steps: Done in order.
        is_date: True for a date, to which whole numbers are days.
    """

    base_ms: int | None
    steps: tuple[Step, ...] = ()
    is_date: bool = False

    def at(self, now_ms: int) -> int:
        """Return the epoch milliseconds it stands for at a time, kept within the years that the engine knows."""
        value_ms = now_ms if self.base_ms is None else self.base_ms
        for step in self.steps:
            value_ms = _done(step, value_ms)
        return min(max(value_ms, _EARLIEST_MS), _LATEST_MS)


Lookup = Callable[[exp.Expr], exp.Expr]
"""Returns what a name stands for, or the node itself."""


def moment_of(node: exp.Expr, lookup: Lookup) -> Moment | None:
    """Return the moment an expression stands for, or None where it depends on anything but literals and the clock."""
    node = lookup(node)
    while isinstance(node, exp.Paren | exp.Alias):
        node = lookup(node.this)
    if isinstance(node, exp.Literal):
        return _text(node.name, None) if node.is_string else None
    if isinstance(node, exp.Cast):
        return _cast(node, lookup)
    if isinstance(node, exp.Add | exp.Sub):
        return _sum(node, lookup)
    if isinstance(node, exp.Anonymous):
        handler = _CALLS.get(node.name)
        return handler(node, lookup) if handler is not None else None
    return None


def milliseconds_of(amount: int, unit: str) -> int:
    """Return the least length of an interval in milliseconds; a month has 28 days at least."""
    if unit in _UNIT_MONTHS:
        return amount * _UNIT_MONTHS[unit] * 28 * _UNIT_MILLISECONDS["day"]
    return amount * _UNIT_MILLISECONDS.get(unit, 0)


def _done(step: Step, value_ms: int) -> int:
    if step.verb == "add":
        if step.unit in _UNIT_MONTHS:
            return _add_months(value_ms, step.amount * _UNIT_MONTHS[step.unit])
        return value_ms + step.amount * _UNIT_MILLISECONDS.get(step.unit, 0)
    return _floor(value_ms, step)


def _add_months(value_ms: int, months: int) -> int:
    moment = _datetime(value_ms, UTC)
    total = moment.year * 12 + moment.month - 1 + months
    year, month = min(max(total // 12, 1), 9998), total % 12 + 1
    day = min(moment.day, calendar.monthrange(year, month)[1])
    return _milliseconds(moment.replace(year=year, month=month, day=day))


def _floor(value_ms: int, step: Step) -> int:
    unit_ms = _UNIT_MILLISECONDS.get(step.unit)
    if unit_ms is not None and step.unit not in ("day", "week"):
        width_ms = max(1, unit_ms * step.amount)
        return value_ms // width_ms * width_ms
    local = _datetime(value_ms, _zone(step.zone) or UTC)
    start = local.replace(hour=0, minute=0, second=0, microsecond=0)
    match step.unit:
        case "week":
            start -= timedelta(days=start.weekday())
        case "month" | "quarter" | "year":
            months = _UNIT_MONTHS[step.unit]
            start = start.replace(day=1, month=(start.month - 1) // months * months + 1)
        case _:
            pass
    return _milliseconds(start)


def _datetime(value_ms: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(min(max(value_ms, _EARLIEST_MS), _LATEST_MS) / MILLISECONDS, tz=zone)


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * MILLISECONDS)


def _zone(name: str) -> tzinfo | None:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def _text(text: str, zone_name: str | None) -> Moment | None:
    zone = _zone(zone_name) if zone_name is not None else UTC
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if zone is None or moment.microsecond % MILLISECONDS:
        return None
    is_date = len(text.strip()) <= len("2026-01-01")
    return Moment(_milliseconds(moment if moment.tzinfo else moment.replace(tzinfo=zone)), is_date=is_date)


def _cast(node: exp.Expr, lookup: Lookup) -> Moment | None:
    target = node.args["to"].this
    moment = moment_of(node.this, lookup)
    if moment is None or target not in (exp.DType.DATE, exp.DType.DATETIME, exp.DType.DATETIME64, exp.DType.TIMESTAMP):
        return None
    return _as_date(moment, "UTC") if target is exp.DType.DATE else _as_time(moment)


def _sum(node: exp.Expr, lookup: Lookup) -> Moment | None:
    left, right = lookup(node.this), lookup(node.expression)
    sign = -1 if isinstance(node, exp.Sub) else 1
    moment, other = moment_of(left, lookup), right
    if moment is None and sign == 1:
        moment, other = moment_of(right, lookup), left
    if moment is None:
        return None
    while isinstance(other, exp.Paren):
        other = lookup(other.this)
    number = whole_number(other)
    length = interval_of(other)
    if number is not None:
        length = (number, "day" if moment.is_date else "second")
    return _stepped(moment, Step("add", length[1], sign * length[0])) if length is not None else None


def _stepped(moment: Moment, step: Step) -> Moment:
    is_date = moment.is_date and step.unit not in ("second", "minute", "hour", "millisecond")
    return Moment(moment.base_ms, (*moment.steps, step), is_date)


def _as_date(moment: Moment, zone: str) -> Moment:
    return Moment(moment.base_ms, (*moment.steps, Step("floor", "day", zone=zone)), is_date=True)


def _as_time(moment: Moment) -> Moment:
    return Moment(moment.base_ms, moment.steps, is_date=False)


def _arguments(node: exp.Expr, lookup: Lookup) -> list[exp.Expr]:
    return [lookup(argument) for argument in node.expressions]


def _to_time(zone_position: int) -> Callable[[exp.Expr, Lookup], Moment | None]:
    def read(node: exp.Expr, lookup: Lookup) -> Moment | None:
        arguments = _arguments(node, lookup)
        zone = text_of(arguments[zone_position]) if len(arguments) > zone_position else None
        text, number = text_of(arguments[0]), whole_number(arguments[0])
        if text is not None:
            moment = _text(text, zone)
        elif number is not None:
            moment = Moment(number * MILLISECONDS)
        else:
            moment = moment_of(arguments[0], lookup)
        return _as_time(moment) if moment is not None else None

    return read


def _to_date(node: exp.Expr, lookup: Lookup) -> Moment | None:
    arguments = _arguments(node, lookup)
    moment = moment_of(arguments[0], lookup)
    zone = text_of(arguments[1]) if len(arguments) > 1 else "UTC"
    return _as_date(moment, zone or "UTC") if moment is not None else None


def _from_milliseconds(node: exp.Expr, lookup: Lookup) -> Moment | None:
    number = whole_number(lookup(node.expressions[0]))
    return Moment(number) if number is not None else None


def _now(node: exp.Expr, lookup: Lookup) -> Moment:
    del node, lookup
    return Moment(None)


def _today(days: int) -> Callable[[exp.Expr, Lookup], Moment]:
    def read(node: exp.Expr, lookup: Lookup) -> Moment:
        del node, lookup
        steps = (Step("floor", "day"), Step("add", "day", -days)) if days else (Step("floor", "day"),)
        return Moment(None, steps, is_date=True)

    return read


def _floor_to(unit: str, amount: int = 1) -> Callable[[exp.Expr, Lookup], Moment | None]:
    def read(node: exp.Expr, lookup: Lookup) -> Moment | None:
        arguments = _arguments(node, lookup)
        if unit == "week" and node.name != "toMonday":
            return None
        moment = moment_of(arguments[0], lookup)
        zone = (text_of(arguments[1]) if len(arguments) > 1 else None) or "UTC"
        return _stepped(_as_time(moment), Step("floor", unit, amount, zone)) if moment is not None else None

    return read


def _truncated(node: exp.Expr, lookup: Lookup) -> Moment | None:
    arguments = _arguments(node, lookup)
    unit = (text_of(arguments[0]) or "").lower()
    moment = moment_of(arguments[1], lookup)
    zone = (text_of(arguments[2]) if len(arguments) > 2 else None) or "UTC"
    if moment is None or unit not in (*_UNIT_MILLISECONDS, *_UNIT_MONTHS):
        return None
    return _stepped(_as_time(moment), Step("floor", unit, 1, zone))


def _moved(unit: str, sign: int) -> Callable[[exp.Expr, Lookup], Moment | None]:
    def read(node: exp.Expr, lookup: Lookup) -> Moment | None:
        arguments = _arguments(node, lookup)
        moment, amount = moment_of(arguments[0], lookup), whole_number(arguments[1])
        return _stepped(moment, Step("add", unit, sign * amount)) if moment is not None and amount is not None else None

    return read


def _same(node: exp.Expr, lookup: Lookup) -> Moment | None:
    return moment_of(node.expressions[0], lookup)


_CALLS: Mapping[str, Callable[[exp.Expr, Lookup], Moment | None]] = {
    "now": _now,
    "now64": _now,
    "today": _today(0),
    "yesterday": _today(1),
    "toDateTime": _to_time(1),
    "toDateTime64": _to_time(2),
    "parseDateTimeBestEffort": _to_time(1),
    "parseDateTimeBestEffortOrNull": _to_time(1),
    "parseDateTimeBestEffortOrZero": _to_time(1),
    "fromUnixTimestamp": _to_time(1),
    "fromUnixTimestamp64Milli": _from_milliseconds,
    "toDate": _to_date,
    "toDate32": _to_date,
    "date": _to_date,
    "toTimeZone": _same,
    "dateTrunc": _truncated,
    "date_trunc": _truncated,
    "toStartOfSecond": _floor_to("second"),
    "toStartOfMinute": _floor_to("minute"),
    "toStartOfFiveMinutes": _floor_to("minute", 5),
    "toStartOfTenMinutes": _floor_to("minute", 10),
    "toStartOfFifteenMinutes": _floor_to("minute", 15),
    "toStartOfHour": _floor_to("hour"),
    "toStartOfDay": _floor_to("day"),
    "toMonday": _floor_to("week"),
    "toStartOfMonth": _floor_to("month"),
    "toStartOfQuarter": _floor_to("quarter"),
    "toStartOfYear": _floor_to("year"),
    **{
        f"{verb}{unit.capitalize()}s": _moved(unit, sign)
        for verb, sign in (("add", 1), ("subtract", -1))
        for unit in ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
    },
}
