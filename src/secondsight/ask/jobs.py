"""Plan questions about jobs and single GPUs: slow, straggling, idle, to be replaced, without errors, first seen."""

from collections.abc import Sequence
from dataclasses import replace

from secondsight.ask.diagnose import LIMITS
from secondsight.ask.links import DENIALS
from secondsight.ask.measures import CLOCK, UTILISATION, base_unit
from secondsight.ask.question import (
    ERROR_EVENTS,
    GPU_HOURS,
    GPUS,
    Condition,
    Filter,
    Kind,
    Measure,
    Question,
    Ranking,
    Stat,
)
from secondsight.ask.reading import Reading
from secondsight.ask.rules import clarify
from secondsight.ask.work import ERROR_WORDS, Work, leaves_out_errors, question_of

IDLE_BELOW_RATIO = 0.05
QUIET_COLUMNS = ("gpu_id", "host_id", "cluster_id", "job_id")
_DENIALS = frozenset({"no", "without", "zero", "never"})
_DENIAL_PAIRS = frozenset(
    {("free", "of"), ("free", "from")}
    | {(no, have) for no in DENIALS for have in ("have", "had", "any", "see", "show")}
)
_DENIED_WITHIN = 4
_QUIET_RULE = "Listed is what sent samples in the range and is named by no such event."
STRAGGLER_BELOW_RATIO = 0.1
"""A straggler lies so far below the median of its job."""
_STRAGGLER_RULE = (
    f"Rule used: a straggler is a GPU whose mean utilisation or clock lies more than {STRAGGLER_BELOW_RATIO:.0%} below "
    "the median of the job's GPUs. Held-back GPU-hours are what the job's GPUs lose if all wait for this one: an "
    "estimate."
)
_REPLACEMENT_RULE = (
    "Rule used (a policy, yours may differ): any uncorrected ECC error, or an Xid 48, 63, 64, 94 or 95, in the range."
)
_IDLE_RULE = f"Rule used: idle means windows of 30 s whose mean utilisation is below {IDLE_BELOW_RATIO:.0%}."


def plan_gpu_by_index(work: Work) -> Question | None:
    """Ask for a UUID where a GPU is named by its position."""
    if not work.reading.gpu_index:
        return None
    options = ("the UUID of the GPU", "all GPUs of the host")
    return clarify("gpu_index", "Which GPU is meant? Positions are not kept; name its UUID.", options)


def plan_slow_job(work: Work) -> Question | None:
    """Plan why a job was slow; its id has to be known."""
    reading = work.reading
    about_job = "job_id" in reading.nouns or "job_id" in reading.names
    if not (work.says("slow") and (about_job or work.says("why"))) and not (work.says("why") and about_job):
        return None
    jobs = reading.names.get("job_id", ())
    if len(jobs) != 1:
        return clarify("which_job", "Which job do you mean? Name its id.", ("a job id",))
    question = question_of(work, Kind.SLOW_JOB, work.usual("day"), "slow_job", Measure(UTILISATION, Stat.MEAN))
    return replace(question, dimensions=("host_id", "gpu_id"), caveats=(LIMITS,))


def plan_why(work: Work) -> Question | None:
    """Ask back where a cause is asked for of anything else than a job."""
    if not work.says("why"):
        return None
    options = ("What happened in that time?", "Why was job X slow?")
    message = "Causes I look for in jobs. Which job, or which figure and range, do you want to see?"
    return clarify("why", message, options)


def plan_stragglers(work: Work) -> Question | None:
    """Plan which GPUs hold a job back."""
    holds_back = {"hold", "holds", "holding", "held"} & set(work.reading.words) and "back" in work.reading.words
    if not work.says("straggler") and not holds_back:
        return None
    if len(work.reading.names.get("job_id", ())) != 1:
        return clarify("which_job", "In which job? Name its id.", ("a job id",))
    stats = (Measure(UTILISATION, Stat.MEAN), Measure(CLOCK, Stat.MEAN), Measure(GPU_HOURS, Stat.TOTAL))
    question = question_of(work, Kind.STRAGGLERS, work.usual("day"), "stragglers", *stats)
    return replace(question, dimensions=("host_id", "gpu_id"), caveats=(_STRAGGLER_RULE,))


def plan_replacement(work: Work) -> Question | None:
    """Plan which GPUs reach the rule for replacement."""
    if not work.says("replace"):
        return None
    metrics = [name for name in ("gpu_ecc_uncorrected_volatile_total",) if work.views.measures(name)]
    measures = (*(Measure(name, Stat.TOTAL) for name in metrics), Measure(ERROR_EVENTS, Stat.COUNT))
    question = question_of(work, Kind.REPLACEMENT, work.usual("month"), "replacement", *measures)
    return replace(question, dimensions=("host_id", "gpu_id"), caveats=(_REPLACEMENT_RULE,))


def plan_left_out(work: Work) -> Question | None:
    """Ask which errors are meant where a kind is left out that is counted elsewhere than among the events."""
    if work.reading.events or not leaves_out_errors(work.reading.words):
        return None
    message = "Which kinds of errors do you want to see? ECC errors are counted, Xid and other errors are events."
    return clarify("left_out", message, ("Errors by kind in the last 24 hours", "Errors without Xid 31 yesterday"))


def plan_quiet(work: Work) -> Question | None:
    """Plan what had no errors of a kind: it has no row among the events, so those that report are looked at."""
    if not (work.has_event() or work.metrics()) or not _denies_errors(work.reading.words):
        return None
    named = (*work.groups(), *(noun for noun in work.reading.nouns if noun in QUIET_COLUMNS))
    column = next((name for name in named if name in QUIET_COLUMNS), "gpu_id")
    dimensions = ("host_id", "gpu_id") if column == "gpu_id" else (column,)
    if not work.has_event():
        return _quiet_counters(work, dimensions)
    question = question_of(work, Kind.QUIET, work.usual("day"), "quiet", Measure(ERROR_EVENTS, Stat.COUNT))
    events = tuple(Filter(name, values) for name, values in work.reading.events.items())
    counted = "count" in work.reading.aggregates
    filters = (*question.filters, *events)
    return replace(question, dimensions=dimensions, filters=filters, counted=counted, caveats=(_QUIET_RULE,))


def _quiet_counters(work: Work, dimensions: tuple[str, ...]) -> Question | None:
    """Return which had no increase of any of some counters of errors."""
    counters = [name for name in work.metrics() if base_unit(name, work.views) == "count"]
    if not counters:
        return None
    measures = tuple(Measure(name, Stat.TOTAL) for name in counters)
    question = question_of(work, Kind.FIGURES, work.usual("day"), "quiet", *measures)
    conditions = tuple(Condition(index, above=False, value=1) for index in range(len(measures)))
    counted = "count" in work.reading.aggregates
    return replace(question, dimensions=dimensions, conditions=conditions, counted=counted, ranking=None)


def _denies_errors(words: Sequence[str]) -> bool:
    """Tell whether the first word for errors stands behind one that denies them: `had no Xid errors`, `free of faults`.

    `errors without ECC` asks for some of them.
    """
    first = next((at for at, word in enumerate(words) if word.rstrip("s") in ERROR_WORDS), 0)
    before = range(max(first - _DENIED_WITHIN, 0), first)
    return any(words[at] in _DENIALS or (words[at], words[at + 1]) in _DENIAL_PAIRS for at in before)


def plan_idle(work: Work) -> Question | None:
    """GPUs that were idle, with how long; a limit of utilisation or of time may be named."""
    reading = work.reading
    if not work.says("idle") or (reading.metrics and reading.metrics != (UTILISATION,)):
        return None
    measure = Measure(UTILISATION, Stat.SHARE_BELOW, threshold=_idle_below(reading), unit="%")
    question = question_of(work, Kind.IDLE, work.usual("day"), "idle", measure)
    groups = work.groups() or ("host_id", "gpu_id")
    groups = ("host_id", "gpu_id") if groups == ("gpu_id",) else groups
    rank = reading.ranking
    ranking = Ranking(rank.count) if rank and rank.count else None
    held = (Filter("job_id", ("",), negated=True),) if work.says("allocated") or "job_id" in reading.nouns else ()
    return replace(
        question,
        dimensions=groups,
        filters=(*question.filters, *held),
        caveats=(_idle_rule(reading),),
        ranking=ranking,
        conditions=_idle_hours(reading),
    )


def _idle_below(reading: Reading) -> float:
    limit = next((one for one in reading.limits if one.unit == "%" or (not one.unit and one.value <= 1)), None)
    if limit is None:
        return IDLE_BELOW_RATIO
    return limit.value / 100 if limit.unit == "%" else limit.value


def _idle_rule(reading: Reading) -> str:
    ratio = _idle_below(reading)
    return _IDLE_RULE if ratio == IDLE_BELOW_RATIO else _IDLE_RULE.replace(f"{IDLE_BELOW_RATIO:.0%}", f"{ratio:.4g}")


def _idle_hours(reading: Reading) -> tuple[Condition, ...]:
    """Return that the idle time of a group has to be longer than was named, in hours (figure 1 is idle hours)."""
    for limit in reading.limits:
        hours = {"h": 1.0, "min": 1 / 60, "s": 1 / 3600}.get(limit.unit)
        if hours is not None:
            return (Condition(1, limit.above, limit.value * hours),)
    return ()


def plan_lifetime(work: Work) -> Question | None:
    """Plan when something was first and last seen."""
    reading = work.reading
    named = [column for column in reading.asked if column not in reading.names]
    named += [column for column in ("job_id", "host_id", "gpu_id", "workload_id") if reading.names.get(column)]
    if not work.says("lifetime") or work.metrics() or work.has_event():
        return None
    if not named and {"fresh", "freshness", "stale"} & set(reading.words):
        named = ["cluster_id"]
    silent = bool({"offline", "unreachable", "online"} & set(reading.words))
    if not named and silent:
        named = [noun for noun in reading.nouns if noun in ("host_id", "gpu_id", "cluster_id")][:1]
    if not named:
        asked = [column for column in work.groups() if column == "job_id"]
        if not asked and "job_id" not in reading.nouns:
            return None
        if not asked:
            return clarify("which_job", "Which job do you mean? Name its id.", ("a job id",))
        named = asked
    question = question_of(work, Kind.LIFETIME, work.usual("month"), "lifetime", Measure(GPUS, Stat.COUNT))
    return replace(question, dimensions=(named[0],), rising=True if silent else None)
