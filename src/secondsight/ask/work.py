"""Hold one reading on its way to a question: the ranges, filters and groups that it names, with what is usual."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from secondsight.ask.defaults import assumed_range
from secondsight.ask.known import NAMED_COLUMNS
from secondsight.ask.links import LEAVING_OUT
from secondsight.ask.measures import (
    metrics_of,
    with_units,
)
from secondsight.ask.question import (
    ERROR_EVENTS,
    Filter,
    Kind,
    Measure,
    Question,
    Range,
    Ranking,
    Treatment,
)
from secondsight.ask.reading import Reading
from secondsight.ask.rules import clarify, vague
from secondsight.ask.views import Views
from secondsight.ask.vocabulary import Vocabulary

RANKING_ROWS = 10


ERROR_WORDS = frozenset({"error", "xid", "ecc", "event", "fault", "failure", "incident"})
_LEFT_OUT_WITHIN = 3


def leaves_out_errors(words: Sequence[str]) -> bool:
    """Tell whether errors are asked for, and a kind of them is left out: `errors but not Xid`, `errors except 31`."""
    known = [at for at, word in enumerate(words) if word.rstrip("s") in ERROR_WORDS]
    return any(
        words[at] in LEAVING_OUT for later in known[1:] for at in range(max(later - _LEFT_OUT_WITHIN, known[0]), later)
    )


@dataclass(frozen=True, slots=True)
class Work:
    """One reading on its way to a question."""

    reading: Reading
    views: Views
    vocabulary: Vocabulary
    now_ms: int

    def usual(self, name: str) -> tuple[Range, ...]:
        """Return the ranges that were named, or one that is usual; hours and weekdays narrow them."""
        reading = self.reading
        past = [one for one in reading.times if one.from_ms < self.now_ms]
        ranges = past or [assumed_range(name, reading.zone, self.now_ms)]
        return tuple(replace(one, hours=reading.hours, weekdays=reading.weekdays) for one in ranges)

    def filters(self) -> tuple[Filter, ...]:
        """Return the rows that names and kinds of events hold a question to."""
        named = [Filter(column, values) for column, values in self.reading.names.items()]
        without = [Filter(column, values, negated=True) for column, values in self.reading.without.items()]
        return (*named, *without)

    def event_filters(self) -> tuple[Filter, ...]:
        """Return those for events as well; `errors without Xid 31` leaves that code out."""
        events = self.reading.events
        if leaves_out_errors(self.reading.words) and events:
            finest = "code" if "code" in events else next(iter(events))
            return (*self.filters(), Filter(finest, events[finest], negated=True))
        return (*self.filters(), *(Filter(column, values) for column, values in events.items()))

    def groups(self) -> tuple[str, ...]:
        """Return the columns by which rows are cut: named after `by`, looked for, or of several names compared."""
        reading = self.reading
        chosen = dict.fromkeys(reading.dimensions)
        for column in reading.asked:
            if len(reading.names.get(column, ())) != 1:
                chosen[column] = None
        for column, values in reading.names.items():
            if len(values) > 1:
                chosen[column] = None
        compared = reading.has("compare", "compare") and len(reading.times) < 2
        if compared and not chosen:
            chosen |= dict.fromkeys(noun for noun in reading.nouns if noun in NAMED_COLUMNS and noun != "gpu_id")
        return tuple(chosen)

    def says(self, *analyses: str) -> bool:
        """Tell whether a word of one of these analyses was there."""
        return self.reading.has("analysis", *analyses)

    def has_event(self) -> bool:
        """Tell whether errors are asked for."""
        return bool(self.reading.events) or ERROR_EVENTS in self.reading.metrics

    def metrics(self) -> tuple[str, ...]:
        """Return the metrics that were named."""
        return metrics_of(self.reading, self.views)

    def shown(self, *measures: Measure) -> tuple[Measure, ...] | Question:
        """Return figures with their units."""
        return with_units(measures, self.reading, self.views, self.vocabulary)


def question_of(work: Work, kind: Kind, ranges: tuple[Range, ...], rule: str, *measures: Measure) -> Question:
    """Return a question of a kind over some ranges, or what is asked where a unit does not fit."""
    shown = work.shown(*measures)
    if isinstance(shown, Question):
        return shown
    return Question(
        Treatment.ANSWER, kind, shown, filters=work.filters(), ranges=ranges, dimensions=work.groups(), rule=rule
    )


def ranking_of(work: Work, *, descending: bool | None = None) -> Ranking | None:
    """Return the ranking that was named, with a usual number of rows."""
    ranking = work.reading.ranking
    if ranking is None:
        return None
    rows = ranking.count or RANKING_ROWS
    return Ranking(rows, ranking.descending if descending is None else descending)


def missing(work: Work) -> Question:
    """Return what is asked where no figure was named."""
    reading = work.reading
    options = ("GPU utilisation", "temperature", "power", "errors")
    if reading.has("compare"):
        return clarify("compare_what", "What should be compared, and by which metric?", options)
    if reading.has("vague"):
        return vague(reading.terms["vague"][0])
    if reading.nouns or reading.names or reading.times or reading.has("rank") or work.says("trend", "when"):
        return clarify("which_metric", "Which metric do you mean?", options)
    if not reading.words:
        return clarify("empty", "What would you like to know?", options)
    return clarify("which_metric", "Which metric, of what, over which range?", options)
