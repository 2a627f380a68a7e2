"""Copy slices of one hot table into the lake whenever they changed, and commit them together.

What was found to have changed is forgotten in a crash and found again: a snapshot says which inserts have all their
slices copied. A slice is compared with what the current snapshot says of it before it is read, so copying it twice is
only work.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.errors import Retryable
from secondsight.lake.commit import Change, Moved, commit
from secondsight.lake.hot import slice_marks
from secondsight.lake.layout import LakeTable, Slice
from secondsight.lake.rewrite import Bound, Job, Made, Rewriter
from secondsight.lake.rows import Mark
from secondsight.lake.stored import overlapping_files
from secondsight.lake.summary import copied_of
from secondsight.lake.tables import Lake
from secondsight.lake.watch import changed_slices
from secondsight.selfmetrics import SelfMetrics

logger = logging.getLogger(__name__)

COMPARED_AT_ONCE = 200
PLAN_AGAIN = 3


@dataclass(frozen=True, slots=True)
class Pace:
    """When slices are copied and committed.

    Attributes:
        settle_ms: After its end a slice waits that long for its last rows.
        patience_ms: It waits no longer for collectors that are behind.
        recheck_seconds: One that changed waits that long for more.
        commit_seconds: Files are committed after that time at the latest.
        commit_bytes: Files are committed at that size at the latest.
    """

    settle_ms: int
    patience_ms: int
    recheck_seconds: float
    commit_seconds: float
    commit_bytes: int


@dataclass(slots=True)
class _Change:
    """A slice that changed.

    Attributes:
        first_seconds, last_seconds: When that was found, monotonic.
        before: Newest insert that was seen before it was found.
    """

    first_seconds: float
    last_seconds: float
    before: int


@dataclass(slots=True)
class Means:
    """What all tables share.

    Attributes:
        handed: Addresses of files that are being made or whose commit is not known to have landed.
    """

    store: Store
    lake: Lake
    clock: Clock
    metrics: SelfMetrics
    bound: Bound
    pace: Pace
    handed: set[str] = field(default_factory=set)


class TableExporter:
    """Copies one table. For one thread, and one process a lake; several cost work and do no harm."""

    def __init__(self, means: Means, shape: LakeTable) -> None:
        self._means = means
        self._shape = shape
        self._changes: dict[Slice, _Change] = {}
        self._seen: int | None = None
        self._first_ms = 0
        self._committed = 0

    @property
    def waiting(self) -> int:
        """Return how many slices changed and are not copied yet."""
        return len(self._changes)

    def oldest_ms(self) -> int | None:
        """Return the end of the first slice that changed and is not copied, in ms."""
        return min((each.end_ms for each in self._changes), default=None)

    def look(self, shape: LakeTable, newest: int, first_ms: int) -> None:
        """Note what changed since the last look.

        Args:
            shape: The table, with the columns that it has now.
            newest: Newest insert that it has.
            first_ms: Time of the first row that it has.

        Raises:
            Retryable: The hot store or the lake is away.
        """
        self._shape, self._first_ms = shape, first_ms
        if self._seen is None:
            table = self._means.lake.table(shape.name)
            self._seen = 0 if table is None else copied_of(table, shape).seen
        before = self._seen
        if newest == before:
            return
        if newest < before:
            logger.warning("%s holds fewer inserts than were seen; all of its slices are compared again", shape.name)
            before = 0
        slices, found = changed_slices(self._means.store, shape, before)
        now = self._means.clock.monotonic_seconds()
        for each in slices:
            change = self._changes.setdefault(each, _Change(now, now, before))
            change.last_seconds = now
        self._seen = found if slices else newest

    def check(self) -> int:
        """Look whether the lake still says what it said after the last commit; if not, look at all changes again.

        Somebody may have rolled it back, or changed its rows.

        Raises:
            Retryable: The lake is away.
        """
        table = self._means.lake.table(self._shape.name)
        found = 0 if table is None else copied_of(table, self._shape).seen
        if found < self._committed:
            logger.warning("%s was changed in the lake by somebody else; it is compared again", self._shape.name)
            self._seen, self._committed = None, found
        return 0

    def due(self, complete: Callable[[str, Slice], int]) -> list[Slice]:
        """Return the slices that are to be copied now, the oldest first.

        Args:
            complete: Gives up to when the rows of a table and a slice's cluster are all written, in ms.
        """
        pace, clock = self._means.pace, self._means.clock
        now, now_ms = clock.monotonic_seconds(), clock.now_ms()
        return sorted(
            each
            for each, change in self._changes.items()
            if now_ms >= each.end_ms + pace.settle_ms
            and (complete(self._shape.name, each) >= each.end_ms or now_ms >= each.end_ms + pace.patience_ms)
            and (
                now - change.last_seconds >= pace.recheck_seconds
                or now - change.first_seconds >= 4 * pace.recheck_seconds
                or change.before == 0
            )
        )

    def copy(self, due: Sequence[Slice], stopped: Callable[[], bool]) -> int:
        """Copy those of some slices that are not as the lake has them; return how many.

        Raises:
            Retryable: The hot store or the lake is away; what was not committed is due again.
        """
        copied = 0
        for first in range(0, len(due), COMPARED_AT_ONCE):
            if stopped():
                break
            copied += self._copy_some(due[first : first + COMPARED_AT_ONCE], stopped)
        return copied

    def _copy_some(self, slices: Sequence[Slice], stopped: Callable[[], bool]) -> int:
        now = slice_marks(self._means.store, self._shape, slices)
        for attempt in range(PLAN_AGAIN):
            try:
                return self._copy_changed(slices, now, stopped)
            except Moved as error:
                logger.info("planned again, %d: %s", attempt + 1, error)
        raise Retryable(f"{self._shape.name} is changed in the lake all the time by somebody else")

    def _copy_changed(self, slices: Sequence[Slice], now: Mapping[Slice, Mark], stopped: Callable[[], bool]) -> int:
        known = self._means.lake.table(self._shape.name)
        marks = {} if known is None else copied_of(known, self._shape).marks
        changed = [each for each in slices if each in now and marks.get(each) != now[each]]
        for each in slices:
            if each not in changed:
                self._changes.pop(each, None)
        if not changed:
            return 0
        batch = _Batch(self._means, self._shape, self._means.lake.made_table(self._shape))
        began = self._means.clock.monotonic_seconds()
        copied = 0
        for job in batch.jobs(changed):
            batch.add(job)
            is_late = self._means.clock.monotonic_seconds() - began >= self._means.pace.commit_seconds
            if batch.size_bytes >= self._means.pace.commit_bytes or is_late or stopped():
                break
        copied += self._commit(batch)
        rest = [each for each in changed if each in self._changes]
        return copied + (self._copy_changed(rest, now, stopped) if rest and not stopped() else 0)

    def _commit(self, batch: "_Batch") -> int:
        marks = batch.marks
        left = [change.before for each, change in self._changes.items() if each not in marks]
        seen = min([self._seen or 0, *left])
        batch.commit(seen, self._first_ms)
        self._committed = seen
        for each in marks:
            self._changes.pop(each, None)
        return len(marks)


class _Batch:
    """Files of some slices that are committed together."""

    def __init__(self, means: Means, shape: LakeTable, table: Table) -> None:
        self._means = means
        self._shape = shape
        self._table = table
        self._mine: set[str] = set()
        self._rewriter = Rewriter(table, shape, means.store, means.bound, self._mine)
        self._made: list[Made] = []

    @property
    def size_bytes(self) -> int:
        """Return the size of the files made so far."""
        return sum(made.size_bytes for made in self._made)

    @property
    def marks(self) -> dict[Slice, Mark]:
        """Return what the hot store's rows of each slice said."""
        return {each: mark for made in self._made for each, mark in made.marks.items()}

    def jobs(self, slices: Sequence[Slice]) -> list[Job]:
        """Return what is to be made: slices that share a live file are made together.

        Raises:
            Retryable: Some metadata of the lake cannot be read.
        """
        jobs: list[Job] = []
        for each in slices:
            files = {file.file_path: file for file in overlapping_files(self._table, self._shape, each)}
            jobs = _with(jobs, each, files)
        return jobs

    def add(self, job: Job) -> None:
        """Make the files of a job.

        Raises:
            Retryable: The hot store or the lake is away.
        """
        try:
            self._made.append(self._rewriter.make(job))
        finally:
            self._means.handed |= self._mine

    def commit(self, seen: int, first_ms: int) -> None:
        """Commit what was made.

        Raises:
            Moved: Somebody else changed the table.
            Retryable: The lake is away.
        """
        copied = copied_of(self._table, self._shape).since(first_ms).with_marks(self.marks, seen)
        added = [file for made in self._made for file in made.added]
        removed = [file for made in self._made for file in made.removed]
        try:
            commit(self._means.lake, self._table, self._shape, Change(added, removed, copied), self._means.clock)
        except Moved:
            self._means.handed -= self._mine
            raise
        self._means.handed -= self._mine
        self._count(added, removed)

    def _count(self, added: Sequence[DataFile], removed: Sequence[DataFile]) -> None:
        count, name = self._means.metrics.count, self._shape.name
        count("lake_commits_total", table=name)
        count("lake_slices_copied_total", len(self.marks), table=name)
        count("lake_rows_written_total", sum(made.rows for made in self._made), table=name)
        count("lake_bytes_written_total", self.size_bytes, table=name)
        count("lake_files_added_total", len(added), table=name)
        count("lake_files_replaced_total", len(removed), table=name)
        if left := sum(made.left for made in self._made):
            count("lake_rows_left_total", left, table=name)
            logger.warning(
                "%d rows of %s were made of less than the lake has of their windows, which stay as they are there;"
                " rows that came late for them are in finer tables alone, until replay lake brings the others back",
                left,
                name,
            )


def _with(jobs: Sequence[Job], wanted: Slice, files: Mapping[str, DataFile]) -> list[Job]:
    """Return jobs with one more slice, united with those that take over one of the same files."""
    apart, slices, taken = [], [wanted], dict(files)
    for job in jobs:
        if any(file.file_path in taken for file in job.files):
            slices = [*job.slices, *slices]
            taken |= {file.file_path: file for file in job.files}
        else:
            apart.append(job)
    return [*apart, Job(tuple(slices), tuple(taken.values()), wanted.start_ms, wanted.cluster)]
