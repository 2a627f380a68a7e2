"""Put files into a table and take others out, in one snapshot, once.

A commit asserts the snapshot that it was planned on and carries a token. Whatever a commit was answered with, the table
is read again and its snapshots are asked for the token before anything else happens. A request that is still on its way
can do no harm: either it lands, and is found by its token, or what came in its place moved the table, and it fails.
"""

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from secondsight.clock import Clock
from secondsight.errors import Retryable
from secondsight.lake.layout import LakeTable
from secondsight.lake.summary import Copied, has_landed, properties_of
from secondsight.lake.tables import AWAY, Lake

logger = logging.getLogger(__name__)

WAITS_SECONDS = (0.5, 2.0, 5.0)
"""Pauses before a commit whose outcome was unknown, and which is not in the table, is sent again."""


class Moved(Retryable):
    """Somebody else changed the table since the commit was planned; plan it again."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit does.

    Attributes:
        added: Files that it puts in.
        removed: Live files that it takes out.
        copied: What is copied then.
    """

    added: Sequence[DataFile]
    removed: Sequence[DataFile]
    copied: Copied


def commit(lake: Lake, planned: Table, shape: LakeTable, change: Change, clock: Clock) -> Table:
    """Commit a change and return the table as it is then.

    Args:
        lake: Where the table is read again.
        planned: The table as it was when the change was planned.
        shape: How it lies in the lake.
        change: What to do.
        clock: Waits between attempts.

    Raises:
        Moved: Somebody else was faster; nothing was changed.
        Retryable: The catalogue is away; whether the commit landed is told by the table when it is back.
    """
    token = uuid.uuid4().hex
    table = planned
    for wait_seconds in (*WAITS_SECONDS, None):
        try:
            _send(table, shape, change, token)
        except (*AWAY, CommitFailedException, ValidationException) as error:
            logger.warning("a commit to %s was answered with %s: looking whether it landed", shape.name, _words(error))
        table = _read_again(lake, shape)
        if has_landed(table, token):
            return table
        if _head(table) != _head(planned):
            raise Moved(f"{shape.name} was changed by somebody else in the lake")
        if wait_seconds is not None:
            clock.sleep(wait_seconds)
    raise Retryable(f"a commit to {shape.name} does not land in the lake")


def _send(table: Table, shape: LakeTable, change: Change, token: str) -> None:
    """Send a commit; it asserts the snapshot that `table` was read at."""
    transaction = table.transaction()
    update = transaction.update_snapshot(snapshot_properties=properties_of(change.copied, shape, token))
    with update.overwrite() if change.removed else update.merge_append() as snapshot:
        for file in change.added:
            snapshot.append_data_file(file)
        for file in change.removed:
            snapshot.delete_data_file(file)
    transaction.commit_transaction()


def _read_again(lake: Lake, shape: LakeTable) -> Table:
    table = lake.table(shape.name)
    if table is None:
        raise Retryable(f"{shape.name} is gone from the lake's catalogue")
    return table


def _head(table: Table) -> int | None:
    snapshot = table.current_snapshot()
    return None if snapshot is None else snapshot.snapshot_id


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"
