"""Turn what a row is about into whose it is: the holder of a GPU, the job that a run names, the job of an engine.

A GPU, its parts, and a process on it belong to who has the GPU at that instant. A training run (`job` or `job/run`) and
a job's own rows are those of the job that they name; its team, workload and model are what its allocations agree on. An
inference engine (`host:port/model`) serves the model that it names, for whoever has GPUs of its host for that model.
Every answer is a pure function of names and known facts.
"""

from bisect import bisect_right
from collections.abc import Iterable
from functools import partial

from secondsight.model import EntityKind
from secondsight.process.enrich import FOREVER_MS, NOBODY, Allocations, Fact, Span, Subject
from secondsight.process.groups import Change, GroupKey, Groups, lifelong, momentary

JOB_LEAD_MS = 600_000
"""A job's own rows have its team from so long before its first GPU was given."""
JOB, HOST = "job:", "host:"

Root = str
"""What rows are found by when an owner changes: a GPU, `JOB` and the first word of a job's id, `HOST` and a host."""

_OF_JOBS = (EntityKind.PROCESS_JOB, EntityKind.TRAINING)
_VERSIONS = 0xFFFF_FFFF


class Owners:
    """All known facts, by what they are of. One thread uses it.

    Attributes:
        things: Facts by GPU.
    """

    def __init__(self) -> None:
        self.things = Allocations()
        self._jobs = Groups(_job_key, partial(lifelong, lead_ms=JOB_LEAD_MS))
        self._engines = Groups(_engine_key, momentary)

    def add(self, fact: Fact) -> dict[Root, Change]:
        """Take in a fact; return what it changes: root -> range of time."""
        old = self.things.known(fact)
        if not self.things.is_news(fact):
            return {}
        own = self.things.add(fact)
        return _joined(
            [
                *([] if own is None else [(fact.subject[2], own)]),
                *((JOB + _first_word(key[2]), change) for key, change in self._jobs.replace(old, fact).items()),
                *((HOST + key[2], change) for key, change in self._engines.replace(old, fact).items()),
            ]
        )

    def at(self, kind: EntityKind, host_id: str, subject: Subject, time_ms: int) -> Span:
        """Return the span of an instant of what a row is about."""
        gpu = gpu_of(kind, subject)
        if gpu is not None:
            return self.things.at(gpu, time_ms)
        return self._of_job(kind, subject, time_ms) if kind in _OF_JOBS else self._of_engine(host_id, subject, time_ms)

    def count_old(self, subject: Subject, versions: int) -> None:
        """Take note of the sum of versions of a GPU's facts that ended too long ago to be kept one by one."""
        self.things.count_old(subject, versions)

    def count_old_job(self, job: GroupKey, versions: int) -> None:
        """Take note of the same of a job's facts."""
        self._jobs.count_old(job, versions)

    def count_old_engine(self, engine: GroupKey, versions: int) -> None:
        """Take note of the same of the facts of a model on a host."""
        self._engines.count_old(engine, versions)

    def start_over(self, before_ms: int) -> None:
        """Forget facts that ended before an instant and all sums of versions, for both are read anew."""
        for each in (self.things, self._jobs, self._engines):
            each.start_over(before_ms)

    def _of_job(self, kind: EntityKind, subject: Subject, time_ms: int) -> Span:
        """Return the owner of a run or a job: the longest beginning of its name that is a known job's id."""
        tenant, cluster, entity, _ = subject
        words = entity.split("/")
        found = [self._jobs.find((tenant, cluster, name, "")) for name in _beginnings(words)]
        versions = sum(each for _, each in found) & _VERSIONS
        known = next((_at(spans, time_ms) for spans, _ in found if spans), None)
        if known is not None:
            return Span(known.start_ms, known.end_ms, known.attribution, versions)
        is_named = kind is EntityKind.TRAINING or len(words) == 1
        return Span(-FOREVER_MS, FOREVER_MS, (words[0], "", "", "") if is_named else NOBODY, versions)

    def _of_engine(self, host_id: str, subject: Subject, time_ms: int) -> Span:
        model = subject[2].partition("/")[2].partition("#")[0]
        spans, versions = self._engines.find((*subject[:2], host_id, model))
        known = _at(spans, time_ms) if spans else Span(-FOREVER_MS, FOREVER_MS, NOBODY, 0)
        return Span(known.start_ms, known.end_ms, (*known.attribution[:3], model), versions)


def gpu_of(kind: EntityKind, subject: Subject) -> Subject | None:
    """Return the thing whose holder a row belongs to, or None of a row that is about a job or an engine."""
    if kind in (EntityKind.TRAINING, EntityKind.INFERENCE):
        return None
    if kind is not EntityKind.PROCESS_JOB:
        return subject
    pairs = dict(pair.partition("=")[::2] for pair in subject[3].split(","))
    return (*subject[:2], pairs["gpu"], f"gi={pairs['gi']}" if "gi" in pairs else "") if "gpu" in pairs else None


def root_of(kind: EntityKind, host_id: str, subject: Subject) -> Root:
    """Return what a row is looked up by."""
    gpu = gpu_of(kind, subject)
    if gpu is not None:
        return gpu[2]
    return JOB + _first_word(subject[2]) if kind in _OF_JOBS else HOST + host_id


def roots_of(fact: Fact) -> list[Root]:
    """Return what rows whose owner may depend on a fact, or on one that it replaces, are looked up by.

    The fact that it replaces may have named a model where this one names none.
    """
    job = fact.attribution[0]
    return [fact.subject[2], *([JOB + _first_word(job)] if job else []), HOST + fact.host_id]


def root_column(kind: EntityKind) -> str:
    """Return `root_of` as an SQL expression over rows of a kind."""
    job = f"concat('{JOB}', splitByChar('/', toString(entity))[1])"
    match kind:
        case EntityKind.TRAINING:
            return job
        case EntityKind.INFERENCE:
            return f"concat('{HOST}', toString(host_id))"
        case EntityKind.PROCESS_JOB:
            gpu = "extract(toString(part), '(?:^|,)gpu=([^,]*)')"
            return f"if(match(toString(part), '(^|,)gpu='), {gpu}, {job})"
        case _:
            return "toString(entity)"


def _job_key(fact: Fact) -> GroupKey | None:
    return (*fact.subject[:2], fact.attribution[0], "") if fact.attribution[0] else None


def _engine_key(fact: Fact) -> GroupKey | None:
    return (*fact.subject[:2], fact.host_id, fact.attribution[3]) if fact.attribution[3] else None


def _first_word(job: str) -> str:
    return job.partition("/")[0]


def _beginnings(words: list[str]) -> list[str]:
    """Return `a/b/c`, `a/b`, `a`."""
    return ["/".join(words[:count]) for count in range(len(words), 0, -1)]


def _at(spans: list[Span], time_ms: int) -> Span:
    return spans[bisect_right(spans, time_ms, key=lambda span: span.start_ms) - 1]


def _joined(changes: Iterable[tuple[Root, Change]]) -> dict[Root, Change]:
    """Return one range of time for each root."""
    found: dict[Root, Change] = {}
    for root, (start_ms, end_ms) in changes:
        known = found.get(root, (start_ms, end_ms))
        found[root] = (min(known[0], start_ms), max(known[1], end_ms))
    return found
