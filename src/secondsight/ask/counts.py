"""Plan questions about what there is and how complete it is: summaries, events, coverage, waste, allocation, counts."""

from dataclasses import replace
from itertools import pairwise

from secondsight.ask.measures import (
    ENERGY,
    QUANTILES,
    UTILISATION,
)
from secondsight.ask.question import (
    BUSY_GPU_HOURS,
    COVERAGE,
    ECC,
    ERROR_EVENTS,
    GPU_HOURS,
    GPUS,
    HOSTS,
    IDLE_GPU_HOURS,
    JOBS,
    MISSING,
    Bucket,
    Filter,
    Kind,
    Measure,
    Question,
    Ranking,
    Stat,
)
from secondsight.ask.rules import clarify, unanswerable, vague
from secondsight.ask.work import RANKING_ROWS, Work, question_of, ranking_of

_IN_USE = frozenset({"used", "busy", "active", "utilised", "utilized"})


def plan_summary(work: Work) -> Question | None:
    """Plan what happened: errors and levels by cluster."""
    named = bool(work.metrics()) or work.has_event()
    if not work.says("summary") or named or work.reading.has("vague", "performance"):
        return None
    measures = (Measure(ERROR_EVENTS, Stat.COUNT), Measure(UTILISATION, Stat.MEAN))
    question = question_of(work, Kind.SUMMARY, work.usual("day"), "summary", *measures)
    return replace(question, dimensions=("cluster_id",))


def plan_recent_events(work: Work) -> Question | None:
    """Single events: the newest, or the first of a range."""
    reading = work.reading
    first = work.has_event() and (work.says("first") or (work.says("when") and not reading.bucket))
    if not (work.says("recent") or first) or work.metrics():
        return None
    question = question_of(work, Kind.EVENTS, work.usual("month"), "recent_events", Measure(ERROR_EVENTS, Stat.COUNT))
    ranking = work.reading.ranking
    rows = ranking.count if ranking and ranking.count else RANKING_ROWS
    oldest = work.says("first")
    return replace(
        question, filters=work.event_filters(), dimensions=(), ranking=Ranking(rows, not oldest), rising=oldest
    )


def plan_completeness(work: Work) -> Question | None:
    """Coverage by cluster, gaps by host."""
    reading = work.reading
    if MISSING in reading.metrics and not reading.events:
        question = question_of(work, Kind.FIGURES, work.usual("day"), "gaps", Measure(MISSING, Stat.TOTAL))
        groups = work.groups() or ("host_id",)
        silent = "A host that reported nothing at all in the range has no rows and is not listed."
        return replace(question, dimensions=groups, bucket=reading.bucket, caveats=(silent,))
    if COVERAGE not in reading.metrics and not work.says("complete"):
        return None
    question = question_of(work, Kind.FIGURES, work.usual("day"), "coverage", Measure(COVERAGE, Stat.MEAN))
    late = "Late data may still raise the coverage of the newest windows."
    groups = work.groups() or ("cluster_id",)
    return replace(question, dimensions=groups, bucket=reading.bucket, caveats=(late,))


def plan_waste(work: Work) -> Question | None:
    """Plan the GPU-hours that nobody used."""
    reading = work.reading
    idle_hours = work.says("idle") and GPU_HOURS in reading.metrics
    if not work.says("waste") and IDLE_GPU_HOURS not in reading.metrics and not idle_hours:
        return None
    if work.says("waste") and ENERGY in reading.metrics:
        return clarify("waste", "Wasted by what measure: idle GPU-hours?", ("idle GPU-hours by cluster",))
    idle = Measure(IDLE_GPU_HOURS, Stat.TOTAL)
    both = GPU_HOURS in reading.metrics and bool(_IN_USE & set(reading.words))
    measures = (Measure(BUSY_GPU_HOURS, Stat.TOTAL), idle) if both else (idle,)
    question = question_of(work, Kind.FIGURES, work.usual("month"), "waste", *measures)
    caveat = "Counted is the share of time without utilisation of GPUs that report; allocation is not looked at."
    groups = work.groups() or ("cluster_id",)
    return replace(question, dimensions=groups, bucket=reading.bucket, ranking=ranking_of(work), caveats=(caveat,))


def plan_allocated(work: Work) -> Question | None:
    """GPUs that had a job: per hour, their highest number per day, week or month."""
    reading = work.reading
    if not work.says("allocated") or work.metrics():
        return None
    stat = Stat.SUM if "mean" in reading.aggregates else Stat.PEAK_SUM
    question = question_of(work, Kind.FIGURES, work.usual("trend"), "allocated", Measure(GPUS, stat))
    bucket = reading.bucket or (None if "mean" in reading.aggregates or reading.times else Bucket.DAY)
    caveat = "Allocated are GPUs in windows of 1 h that carry a job."
    ranking = Ranking(1) if work.says("when") else ranking_of(work)
    groups = tuple(column for column in work.groups() if column != "gpu_id")
    return replace(
        question, dimensions=groups, bucket=bucket, ranking=ranking if bucket else None,
        filters=(*question.filters, Filter("job_id", ("",), negated=True)), caveats=(caveat,),
    )  # fmt: skip


def plan_listed(work: Work) -> Question | None:
    """Plan which things of a kind there are: `list every host in c1`."""
    reading = work.reading
    nouns = [noun for noun in reading.nouns if noun in _LISTED and noun not in reading.names]
    if "fleet" in reading.nouns and {"gpus", "cards"} & set(reading.words):
        nouns.append("gpu_id")
    named = work.metrics() or work.has_event() or reading.limits or reading.has("rank") or reading.has("analysis")
    if "list" not in reading.words[:2] or not nouns or named:
        return None
    question = question_of(work, Kind.FIGURES, work.usual("day"), "listed", Measure(GPUS, Stat.COUNT))
    return replace(question, dimensions=("host_id", "gpu_id") if nouns[0] == "gpu_id" else (nouns[0],))


_LISTED = frozenset({"gpu_id", "host_id", "job_id", "cluster_id", "owner_team", "model", "workload_id"})


def plan_inventory(work: Work) -> Question | None:
    """How many GPUs, hosts or jobs there are, or which."""
    reading = work.reading
    if work.metrics() or work.has_event() or reading.has("vague", "measure", "performance", "report", "comparison"):
        return None
    counted = {"gpu_id": GPUS, "host_id": HOSTS, "job_id": JOBS, "cluster_id": "clusters", "owner_team": "teams"}
    nouns = [noun for noun in reading.nouns if noun in counted and noun not in reading.dimensions]
    if (not work.says("inventory") and not (reading.asked and nouns)) or reading.limits or reading.has("rank"):
        return None
    if not nouns:
        return None
    if work.says("inventory"):
        question = question_of(
            work, Kind.FIGURES, work.usual("day"), "inventory", Measure(_counted(nouns[0]), Stat.COUNT)
        )
        return replace(question, dimensions=reading.dimensions, bucket=reading.bucket)
    if not (reading.names or reading.times or len(reading.nouns) > 1):
        question = question_of(work, Kind.FIGURES, work.usual("day"), "inventory", Measure(GPUS, Stat.COUNT))
        return replace(question, dimensions=(nouns[0],)) if nouns[0] != "gpu_id" else None
    question = question_of(work, Kind.FIGURES, work.usual("day"), "inventory", Measure(GPUS, Stat.COUNT))
    return replace(question, dimensions=work.groups())


def _counted(noun: str) -> str:
    return {"gpu_id": GPUS, "host_id": HOSTS, "job_id": JOBS}.get(noun, noun)


def plan_vague_words(work: Work) -> Question | None:
    """Ask back where a word names no figure by itself."""
    reading = work.reading
    if work.metrics() or work.has_event():
        return None
    for word in ("report", "comparison", "performance", "measure", "usage", "entity"):
        if reading.has("vague", word):
            if word == "entity" and not reading.nouns:
                continue
            return vague(word)
    return None


def plan_mean_of_percentiles(work: Work) -> Question | None:
    """`average p95` would be a mean of percentiles, which means nothing."""
    words = [word for word in work.reading.words if word not in ("of", "the", "all", "our")]
    for first, second in pairwise(words):
        if first in ("average", "mean", "avg", "averaged") and (
            second in QUANTILES or second in ("median", "percentile")
        ):
            options = ("the highest 95th percentile of any window", "the 95th percentile over the whole range")
            return clarify("mean_of_percentiles", "A mean of percentiles means nothing. Which of these?", options)
    return None


def plan_ecc_trend(work: Work) -> Question | None:
    """A question for errors of the memory that names no kind of figure."""
    if ECC not in work.reading.metrics or work.metrics():
        return None
    return unanswerable("not_measured", "ECC counters are not among the metrics of the views here.")
