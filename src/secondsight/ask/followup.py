"""Read a question that leans on the turns before: what it leaves out is taken from them, what it names replaces theirs.

Only words carry over; what a caller may see is decided anew for each question.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from secondsight.ask.question import Range
from secondsight.ask.reading import Reading

TURNS_MAXIMUM = 10
_STARTS = frozenset(
    {"and", "also", "now", "then", "only", "just", "same", "again", "instead", "no", "sorry", "actually", "but"}
)
_STARTS_OF_TWO = frozenset({("what", "about"), ("how", "about"), ("break", "it"), ("break", "this"), ("split", "it")})
_BEFORE = (
    "week before",
    "day before",
    "month before",
    "hour before",
    "year before",
    "before that",
    "period before",
    "one before",
)
_ABOUT_TIME = frozenset({"trend"})


def with_context(readings: Sequence[Reading]) -> Reading:
    """Return the last reading with what it leaves out taken from those before, oldest first."""
    *before, last = readings[-TURNS_MAXIMUM:]
    earlier: Reading | None = None
    for one in before:
        earlier = one if earlier is None or not leans(one) else merged(earlier, one)
    if earlier is None or not leans(last):
        return last
    return replace(merged(earlier, last), context_used=True)


def leans(reading: Reading) -> bool:
    """Tell whether a question names too little to stand by itself, or says that it goes on."""
    words = reading.words
    goes_on = bool(words) and (words[0] in _STARTS or tuple(words[:2]) in _STARTS_OF_TWO)
    stands = bool(reading.metrics or reading.terms.get("help") or reading.terms.get("cost"))
    stands = stands or bool(
        set(reading.terms.get("analysis", ())) - _ABOUT_TIME - {"inventory", "when", "detail", "drop"}
    )
    about_errors = bool(reading.events) and "severity" not in reading.events
    whole = stands or about_errors
    return (
        goes_on or not whole or (reading.has("follow", "instead") and reading.has("follow", "pronoun") and not stands)
    )


def merged(earlier: Reading, later: Reading) -> Reading:
    """Return a reading of both turns: the later one wins wherever it says something."""
    swaps = bool(later.metrics or (later.events and "kind" in later.events))
    corrects = later.has("follow", "instead")
    return replace(
        later,
        metrics=_metrics(earlier, later, swaps=swaps),
        events=_events(earlier, later, swaps=swaps),
        aggregates=later.aggregates or (() if swaps and later.limits else earlier.aggregates),
        dimensions=_dimensions(earlier, later),
        asked=later.asked or (() if later.dimensions else earlier.asked),
        nouns=(*earlier.nouns, *later.nouns),
        names=_names(earlier.names, later, corrects=corrects),
        without={**earlier.without, **later.without},
        times=later.times or _shifted(earlier, later),
        words=(*earlier.words, *later.words),
        hours=later.hours or earlier.hours,
        weekdays=later.weekdays or earlier.weekdays,
        bucket=later.bucket
        or (None if later.dimensions or (later.times and not earlier.terms.get("bucket")) else earlier.bucket),
        ranking=later.ranking or (None if later.dimensions else earlier.ranking),
        limits=later.limits or (() if swaps else earlier.limits),
        units=later.units or (() if swaps else earlier.units),
        terms=_terms(earlier.terms, later.terms),
        zone=later.zone,
        foreign=later.foreign or (() if later.names else earlier.foreign),
        future=later.future or (earlier.future and not later.times),
    )


def _shifted(earlier: Reading, later: Reading) -> tuple[Range, ...]:
    """Return the ranges of the turn before, moved back by their length for `and the week before?`."""
    text = " ".join(later.words)
    if not any(word in text for word in _BEFORE) or len(earlier.times) != 1:
        return earlier.times
    one = earlier.times[0]
    width = one.to_ms - one.from_ms
    return (
        replace(
            one,
            from_ms=one.from_ms - width,
            to_ms=one.from_ms,
            words=f"the same length before {one.words}",
            open_ended=False,
        ),
    )


def _metrics(earlier: Reading, later: Reading, *, swaps: bool) -> tuple[str, ...]:
    return later.metrics if swaps or later.metrics else earlier.metrics


def _events(earlier: Reading, later: Reading, *, swaps: bool) -> Mapping[str, tuple[str, ...]]:
    if swaps and not later.events:
        return {}
    if swaps and "kind" in later.events:
        return dict(later.events)
    return {**earlier.events, **later.events}


def _dimensions(earlier: Reading, later: Reading) -> tuple[str, ...]:
    if later.dimensions:
        return later.dimensions
    held = {column for column, values in later.names.items() if len(values) == 1}
    return tuple(column for column in earlier.dimensions if column not in held)


def _names(earlier: Mapping[str, tuple[str, ...]], later: Reading, *, corrects: bool) -> Mapping[str, tuple[str, ...]]:
    """Return the names of both; a place inside another narrows it, one of the same kind takes its place."""
    found = dict(earlier)
    for column, values in later.names.items():
        joins = later.has("compare") and not corrects and column in earlier
        found[column] = tuple(dict.fromkeys((*earlier[column], *values))) if joins else values
    return found


def _terms(
    earlier: Mapping[str, tuple[str, ...]], later: Mapping[str, tuple[str, ...]]
) -> Mapping[str, tuple[str, ...]]:
    subject = {table: values for table, values in earlier.items() if table in ("analysis", "compare", "rank")}
    said = set(later.get("analysis", ())) - {"inventory"}
    if said:
        subject.pop("analysis", None)
    return {**subject, **{table: values for table, values in later.items() if table != "analysis" or said}}
