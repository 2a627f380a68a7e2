"""Read the form that a model filled: the same typed question as the planner's, held against views, names and times.

What a model writes counts for nothing until it is found here: metrics and columns in the registry, names among those
the caller may see, statistics by what the metric's kind allows, times by the rules of time.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from secondsight.ask.calendar import Calendar, zone_of
from secondsight.ask.defaults import assumed_range, choose, natural_bucket
from secondsight.ask.known import NAMED_COLUMNS, Known
from secondsight.ask.measures import QUANTILES, unit_of
from secondsight.ask.plan import Planner
from secondsight.ask.question import (
    DERIVED,
    ERROR_EVENTS,
    Bucket,
    Filter,
    Kind,
    Measure,
    Question,
    Range,
    Ranking,
    Stat,
    Treatment,
)
from secondsight.ask.rules import clarify, no_such_name, refuse, unanswerable
from secondsight.ask.timewords import TimeReader
from secondsight.ask.tokens import tokenise
from secondsight.ask.units import shown_in
from secondsight.errors import Rejected
from secondsight.guard.registry import MetricKind

STATISTICS = (
    "mean", "min", "max", "last", "p50", "p90", "p95", "p99", "total", "sum", "count", "share_above", "share_below",
)  # fmt: skip
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "required": ["treatment"],
    "additionalProperties": False,
    "properties": {
        "treatment": {"enum": ["answer", "clarify", "refuse", "unanswerable"]},
        "message": {"type": "string", "description": "for clarify: one short question"},
        "measures": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["metric", "statistic"],
                "properties": {
                    "metric": {"type": "string", "description": "a name of the list of metrics"},
                    "statistic": {"enum": list(STATISTICS)},
                    "threshold": {"type": "number", "description": "for shares, in the metric's unit"},
                    "unit": {"type": "string"},
                },
            },
        },
        "group_by": {"type": "array", "items": {"enum": [*NAMED_COLUMNS, "kind", "code", "severity"]}},
        "filters": {"type": "object", "description": "column -> list of values that the caller named"},
        "time": {"type": "string", "description": "the words of time as they were asked: `last week`, `since Monday`"},
        "bucket": {"enum": [bucket.value for bucket in Bucket]},
        "top": {"type": "integer"},
        "bottom": {"type": "integer"},
        "sql": {"type": "string", "description": "only where no form says it: one SELECT over the views"},
    },
}  # fmt: skip
"""What a model has to fill in."""

MESSAGE_CHARACTERS = 300
FORM_CHARACTERS = 20_000
_PLAIN = {"mean": Stat.MEAN, "min": Stat.MIN, "max": Stat.MAX, "last": Stat.LAST, "sum": Stat.SUM}
_GAUGE = frozenset(
    {Stat.MEAN, Stat.MIN, Stat.MAX, Stat.LAST, Stat.QUANTILE, Stat.SUM, Stat.SHARE_ABOVE, Stat.SHARE_BELOW}
)
_KINDS = frozenset({"xid", "ecc", "thermal", "nvlink", "pcie", "gap", "ras", "driver", "reset", "other"})
_SEVERITIES = frozenset({"info", "warning", "error", "critical", "fatal"})


@dataclass(frozen=True, slots=True)
class Draft:
    """What a model proposed: a question, or SQL of its own."""

    question: Question
    sql: str = ""


def draft_of(text: str, planner: Planner, known: Known, zone: str, now_ms: int) -> Draft:
    """Return what a model proposes.

    Raises:
        Rejected(bad_form): The form cannot be read or does not fit; message and hint tell the model what to mend.
    """
    form = _form(text)
    treatment = form.get("treatment")
    message = str(form.get("message") or "")[:MESSAGE_CHARACTERS]
    match treatment:
        case "clarify":
            return Draft(clarify("model", message))
        case "refuse":
            return Draft(refuse("model", "That is not something I may answer."))
        case "unanswerable":
            return Draft(unanswerable("model", "This is not measured here; I do not guess."))
        case "answer":
            return _answer(form, planner, known, zone, now_ms)
        case _:
            raise _bad("treatment is answer, clarify, refuse or unanswerable")


def _form(text: str) -> Mapping[str, Any]:
    """Return the object of a model's text; a fence of code around it is dropped."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start or len(text) > FORM_CHARACTERS:
        raise _bad("answer with one JSON object of the schema, and nothing else")
    try:
        form = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        raise _bad("the JSON cannot be read") from None
    if not isinstance(form, dict) or set(form) - set(SCHEMA["properties"]):
        raise _bad("the object has a field that the schema does not name")
    return form


def _answer(form: Mapping[str, Any], planner: Planner, known: Known, zone: str, now_ms: int) -> Draft:
    sql = form.get("sql")
    one = _range(form, zone, now_ms)
    if sql:
        if not isinstance(sql, str):
            raise _bad("sql is a text")
        question = Question(Treatment.ANSWER, Kind.FIGURES, ranges=(one,), rule="model_sql")
        return Draft(replace(question, view=planner.views.fine.name), sql)
    measures = tuple(_measure(item, planner) for item in _list(form, "measures"))
    if not measures:
        raise _bad("an answer needs at least one measure")
    filters = _filters(form, known)
    if filters is None:
        return Draft(no_such_name())
    bucket = _bucket(form)
    question = Question(
        Treatment.ANSWER, Kind.FIGURES, measures, _groups(form), filters, ranges=(one,), bucket=bucket,
        ranking=_ranking(form), rule="model",
    )  # fmt: skip
    if bucket is None and not question.dimensions and form.get("time") and "trend" in str(form["time"]):
        question = replace(question, bucket=natural_bucket((one,)))
    return Draft(choose(question, planner.views, now_ms))


def _measure(item: object, planner: Planner) -> Measure:
    if not isinstance(item, dict):
        raise _bad("each measure is an object with metric and statistic")
    name, word = str(item.get("metric", "")), str(item.get("statistic", ""))
    views = planner.views
    if not views.measures(name):
        raise _bad("a metric is not among the metrics of the list; if none fits, the treatment is unanswerable")
    measure = _of_word(name, word, item.get("threshold"))
    kind = views.kind(name)
    legal = {
        MetricKind.GAUGE: measure.stat in _GAUGE,
        MetricKind.COUNTER: measure.stat is Stat.TOTAL,
        MetricKind.STATE: measure.stat is Stat.CHANGES,
        MetricKind.CODE: measure.stat is Stat.CHANGES,
        MetricKind.BITMASK: measure.stat is Stat.SHARE_SET,
        None: name in DERIVED,
    }
    if not legal[kind] or (measure.stat is Stat.SUM and name not in planner.vocabulary.additive):
        raise _bad(f"that statistic of a {kind.value if kind else 'derived'} metric means nothing", _LEGAL_HINT)
    return _with_unit(measure, str(item.get("unit") or ""), planner)


_LEGAL_HINT = "gauges: mean, min, max, last, percentiles, shares; counters: total; events and derived: count or total"


def _of_word(name: str, word: str, threshold: object) -> Measure:
    if name == ERROR_EVENTS:
        return Measure(name, Stat.COUNT)
    if word in QUANTILES:
        return Measure(name, Stat.QUANTILE, quantile=QUANTILES[word])
    if word in ("share_above", "share_below"):
        if not isinstance(threshold, int | float):
            raise _bad("a share needs a threshold, a number in the metric's unit")
        return Measure(
            name, Stat.SHARE_ABOVE if word == "share_above" else Stat.SHARE_BELOW, threshold=float(threshold)
        )
    if word in ("total", "count"):
        return Measure(name, Stat.COUNT if word == "count" else Stat.TOTAL)
    if word not in _PLAIN:
        raise _bad("a statistic is not one of the schema's")
    return Measure(name, _PLAIN[word])


def _with_unit(measure: Measure, unit: str, planner: Planner) -> Measure:
    base = unit_of(measure, planner.views)
    shown = shown_in(base, unit or planner.vocabulary.usual_units.get(base, ""))
    if unit and shown is None:
        raise _bad("that unit does not fit the metric")
    return replace(measure, unit=shown.unit if shown else "")


def _groups(form: Mapping[str, Any]) -> tuple[str, ...]:
    groups = tuple(str(item) for item in _list(form, "group_by"))
    if set(groups) - {*NAMED_COLUMNS, "kind", "code", "severity"}:
        raise _bad("group_by has a column that rows cannot be grouped by")
    return tuple(dict.fromkeys(groups))


def _filters(form: Mapping[str, Any], known: Known) -> tuple[Filter, ...] | None:
    """Return the filters, or None where a name is not among those the caller may see."""
    filters = form.get("filters") or {}
    if not isinstance(filters, dict):
        raise _bad("filters is an object of lists")
    found = []
    for column, values in filters.items():
        chosen = [str(value) for value in (values if isinstance(values, list) else [values])]
        allowed = _allowed(str(column), known)
        if allowed is not None and set(chosen) - allowed:
            return None
        if allowed is None and not all(value.isdecimal() for value in chosen):
            raise _bad("codes are numbers")
        if chosen:
            found.append(Filter(str(column), tuple(chosen)))
    return tuple(found)


def _allowed(column: str, known: Known) -> frozenset[str] | None:
    if column in NAMED_COLUMNS:
        return known.names.get(column, frozenset())
    closed = {"kind": _KINDS, "severity": _SEVERITIES, "code": None}
    if column not in closed:
        raise _bad("filters has a column that rows cannot be held to")
    return closed[column]


def _range(form: Mapping[str, Any], zone: str, now_ms: int) -> Range:
    words = str(form.get("time") or "")
    if not words:
        return assumed_range("week", zone, now_ms)
    found = TimeReader(tokenise(words), Calendar(zone_of(zone), now_ms)).read()
    past = [one.stretch for one in found if not one.stretch.recurring and not one.stretch.future]
    if len(past) != 1:
        raise _bad("the words of time are not understood", "write them as they were asked, such as `last 3 days`")
    stretch = past[0]
    return Range(stretch.from_ms, stretch.to_ms, words[:60], zone, open_ended=stretch.to_ms >= now_ms)


def _bucket(form: Mapping[str, Any]) -> Bucket | None:
    word = form.get("bucket")
    if not word:
        return None
    if word not in [bucket.value for bucket in Bucket] or word == Bucket.SECOND:
        raise _bad("a bucket is not one of the schema's")
    return Bucket(word)


def _ranking(form: Mapping[str, Any]) -> Ranking | None:
    for name, descending in (("top", True), ("bottom", False)):
        count = form.get(name)
        if isinstance(count, int) and 0 < count <= 1_000:
            return Ranking(count, descending)
    return None


def _list(form: Mapping[str, Any], name: str) -> Sequence[object]:
    found = form.get(name) or []
    if not isinstance(found, list):
        raise _bad(f"{name} is a list")
    return found


def _bad(message: str, hint: str = "see the schema") -> Rejected:
    return Rejected("bad_form", message, hint)
