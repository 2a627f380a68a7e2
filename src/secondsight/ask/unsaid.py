"""Ask back where a question says something that its reading would leave out: an answer to half of it is a wrong one."""

from collections.abc import Callable

from secondsight.ask.links import DENIALS
from secondsight.ask.measures import QUANTILES
from secondsight.ask.question import Kind, Question, Stat
from secondsight.ask.reading import Reading
from secondsight.ask.rules import clarify

_PLANNED_ALONE = frozenset({Kind.FIGURES, Kind.PERIODS, Kind.IDLE})
"""Kinds that measures and limits of a question shape; others have a form of their own."""
_PERCENT = "%"
_SHARES = frozenset({"percentage", "percent", "pct", "share", "fraction", "proportion"})
_THINGS = frozenset({"gpus", "hosts", "nodes", "machines", "servers", "jobs", "cards", "clusters", "teams", "models"})
_ALL = frozenset({"the", "our", "my", "all", "of", "these", "those"})
_SPANS = frozenset({"time", "hour", "hours", "day", "week", "month", "quarter", "period", "date", "weekday", "range"})
_HOW_OFTEN = (("how", "many", "times"), ("how", "often"), ("number", "of", "times"))


def unsaid(reading: Reading, question: Question) -> Question | None:
    """Return what is asked instead of answering `question`, or None where it holds all that was said."""
    if question.kind not in _PLANNED_ALONE:
        return None
    for lacks, message, options in _LACKS:
        if lacks(reading, question):
            return clarify(lacks.__name__.removeprefix("_"), message, options)
    return None


def _deviation(reading: Reading, question: Question) -> bool:
    del question
    return "deviation" in reading.aggregates


def _percentile_of_counter(reading: Reading, question: Question) -> bool:
    named = {QUANTILES[word] for word in reading.aggregates if word in QUANTILES}
    found = {measure.quantile for measure in question.measures if measure.stat is Stat.QUANTILE}
    return bool(named - found)


def _limit_unused(reading: Reading, question: Question) -> bool:
    thresholds = [measure for measure in question.measures if measure.threshold is not None]
    return len(reading.limits) > len(question.conditions) + bool(thresholds)


def _percentage(reading: Reading, question: Question) -> bool:
    return _PERCENT in reading.units and not any(measure.unit == _PERCENT for measure in question.measures)


def _share_of_things(reading: Reading, question: Question) -> bool:
    del question
    words = reading.words
    for at, word in enumerate(words[:-1]):
        if word in _SHARES and words[at + 1] == "of":
            behind = next((later for later in words[at + 2 :] if later not in _ALL), "")
            if behind in _THINGS:
                return True
    return False


def _times_of_seconds(reading: Reading, question: Question) -> bool:
    asked = any(
        words == reading.words[at : at + len(words)] for words in _HOW_OFTEN for at in range(len(reading.words))
    )
    return asked and any(measure.metric.endswith("_seconds_total") for measure in question.measures)


def _denial(reading: Reading, question: Question) -> bool:
    used = any(one.negated for one in question.filters) or question.rule in _DENYING
    return bool((DENIALS | {"never"}) & set(reading.words)) and not used


def _uncomputed(reading: Reading, question: Question) -> bool:
    del question
    return reading.has("uncomputed")


def _same_time(reading: Reading, question: Question) -> bool:
    """Tell whether a range is named by another one: `the same hour yesterday`."""
    words = reading.words
    return question.kind is Kind.PERIODS and any(
        word == "same" and words[at + 1 : at + 2] and words[at + 1] in _SPANS for at, word in enumerate(words)
    )


def _running_total(reading: Reading, question: Question) -> bool:
    return "cumulative" in reading.words and question.bucket is not None


def _how_high(reading: Reading, question: Question) -> bool:
    """Tell whether `high` or `low` stands for a limit that nobody named; after `how` it asks for the figure."""
    words = reading.words
    bare = any(word in ("high", "low") and words[max(at - 1, 0)] != "how" for at, word in enumerate(words))
    return bare and not (question.conditions or question.ranking or reading.aggregates or reading.limits)


def _best_of_each(reading: Reading, question: Question) -> bool:
    """Tell whether the first of each group is asked for: `the hottest GPU per cluster`."""
    if question.ranking is None or question.bucket is not None:
        return False
    asked = set(reading.asked) - {"kind", "code", "severity"}
    return bool(asked) and bool(set(reading.dimensions) - asked)


def _step(reading: Reading, question: Question) -> bool:
    del question
    return reading.has("step")


_DENYING = frozenset({"quiet", "gaps", "idle", "waste"})
_LACKS: tuple[tuple[Callable[[Reading, Question], bool], str, tuple[str, ...]], ...] = (
    (
        _deviation,
        "Deviations are not computed here. The lowest, median, mean, 95th percentile and highest value?",
        ("the distribution of it",),
    ),
    (
        _percentile_of_counter,
        "A counter has increases, of which there is no percentile here. The increase, or per hour or day?",
        ("the increase by hour",),
    ),
    (
        _limit_unused,
        "How long a figure lay beyond a limit is told as a share of the time. Which of these?",
        ("the share of time above the limit", "those that ever exceeded it"),
    ),
    (_percentage, "A percentage of what? Name the share that you mean.", ("share of memory in use",)),
    (
        _share_of_things,
        "Shares of things are not computed here. Their number, or the list of them?",
        ("how many of them", "which of them"),
    ),
    (
        _times_of_seconds,
        "This is measured in seconds, not in times. How long was it?",
        ("seconds throttled by GPU",),
    ),
    (
        _denial,
        "I do not know what is left out by that. Name what is asked for, or say `except`.",
        ("When was each host last seen?", "Utilisation of all clusters except c2"),
    ),
    (
        _uncomputed,
        "That is not computed here; the figures it is made of are. Which of them?",
        ("energy by team", "GPU-hours by team"),
    ),
    (
        _same_time,
        "From when to when is the other range? Name both.",
        ("this week and last week", "today and yesterday between 8:00 and 12:00"),
    ),
    (_running_total, "Running totals are not computed here. The increase of each piece?", ("energy by day",)),
    (_how_high, "Above or below what? Name the limit.", ("GPUs above 80 °C", "hosts below 20 % utilisation")),
    (
        _best_of_each,
        "The first of each group is not picked here. The first of all, or those of one group?",
        ("top 10 of the whole fleet", "top 3 of one cluster"),
    ),
    (_step, "Time is cut into 5 minutes, hours, days, weeks, months or quarters here. Which?", ("every 5 minutes",)),
)
