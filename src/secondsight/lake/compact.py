"""Join small files of partitions whose time is over, so that a day is a few files and not one for every hour.

Compaction yields: between two groups it asks whether there is something to copy, and it gives up when somebody else
changed the table meanwhile. It changes no row, so it copies forward what the snapshot said.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from secondsight.errors import Retryable
from secondsight.lake.commit import Change, Moved, commit
from secondsight.lake.export import Means
from secondsight.lake.layout import LakeTable, period_bounds
from secondsight.lake.rewrite import Job, Rewriter
from secondsight.lake.stored import live_files, tenant_of, time_bounds
from secondsight.lake.summary import copied_of

logger = logging.getLogger(__name__)

SMALL_SHARE = 0.5
"""Files below that share of the size that files are made to have are joined."""


def compact_table(means: Means, shape: LakeTable, over_ms: int, yields: Callable[[], bool]) -> int:
    """Join small files of one table; return how many files are gone.

    Args:
        means: What all tables share.
        shape: The table.
        over_ms: Partitions that end after this instant are left alone.
        yields: Tells that there is other work to do.

    Raises:
        Retryable: The lake is away.
    """
    gone = 0
    while not yields():
        table = means.lake.table(shape.name)
        group = None if table is None else next(_groups(table, shape, over_ms, means.bound.file_bytes), None)
        if table is None or group is None:
            break
        try:
            gone += _join(means, table, shape, group)
        except Moved as error:
            logger.info("compaction steps back: %s", error)
            break
    return gone


def _join(means: Means, table: Table, shape: LakeTable, group: Sequence[DataFile]) -> int:
    """Join some files; return how many are gone."""
    start_ms, _ = time_bounds(group[0], table.schema(), shape)
    mine: set[str] = set()
    job = Job((), tuple(group), start_ms, str(group[0].partition[1]))
    try:
        made = Rewriter(table, shape, None, means.bound, mine).make(job)
    finally:
        means.handed |= mine
    if made.rows != sum(file.record_count for file in group):
        message = f"files of {shape.name} are not joined: rows of one key stand in several of them"
        raise Retryable(message)
    change = Change(made.added, made.removed, copied_of(table, shape))
    commit(means.lake, table, shape, change, means.clock)
    means.handed -= mine
    means.metrics.count("lake_compactions_total", table=shape.name)
    means.metrics.count("lake_files_joined_total", len(group), table=shape.name)
    return len(group) - len(made.added)


def _groups(table: Table, shape: LakeTable, over_ms: int, file_bytes: int) -> Iterator[list[DataFile]]:
    """Return groups of small files that follow each other in time, of one partition and tenant."""
    schema = table.schema()
    places: dict[tuple[object, ...], list[tuple[int, DataFile]]] = defaultdict(list)
    for file in live_files(table):
        tenant = tenant_of(file, schema)
        start_ms, _ = time_bounds(file, schema, shape)
        is_known = tenant is not None and start_ms > 0
        is_small = file.file_size_in_bytes < SMALL_SHARE * file_bytes
        if is_known and is_small and period_bounds(shape.period, start_ms)[1] <= over_ms:
            places[(file.partition[0], file.partition[1], tenant)].append((start_ms, file))
    for place in sorted(places, key=str):
        files = [file for _, file in sorted(places[place], key=lambda each: each[0])]
        yield from (group for group in _of_size(files, file_bytes) if len(group) > 1)


def _of_size(files: Sequence[DataFile], file_bytes: int) -> Iterator[list[DataFile]]:
    group: list[DataFile] = []
    size = 0
    for file in files:
        if group and size + file.file_size_in_bytes > file_bytes:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.file_size_in_bytes
    if group:
        yield group
