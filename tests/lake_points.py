"""Points of a copy or compaction at which a test lets something happen: a kill, an error, a lost answer."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from pyiceberg.catalog.sql import SqlCatalog

from secondsight.clock import ManualClock
from secondsight.lake import files
from secondsight.lake.config import CatalogConfig
from secondsight.lake.tables import open_lake
from secondsight.store.client import FlightStore
from secondsight.store.spec import TableSpec

Happening = Callable[[str, str], None]
"""Called with the name of a point and what it is about; may raise, or end the process."""


@contextmanager
def points(happen: Happening) -> Iterator[None]:
    """Let `happen` be called before and after each step that leaves a trace on disk or in the catalogue."""
    stream = files._DurableStream
    begin, write, close, commit = stream.__init__, stream.write, stream.close, SqlCatalog.commit_table

    def begun(self: Any, path: Path) -> None:
        happen("create", path.name)
        begin(self, path)

    def written(self: Any, data: bytes) -> int:
        first = self.tell() == 0
        count = write(self, data)
        if first:
            self.flush()
            happen("written", self._path.name)
        return count

    def closed(self: Any) -> None:
        if not self.closed:
            try:
                happen("close", self._path.name)
            except BaseException:
                self._stream.close()
                raise
            close(self)
            happen("closed", self._path.name)

    def committed(self: Any, *arguments: Any) -> Any:
        happen("commit", "")
        answer = commit(self, *arguments)
        happen("committed", "")
        return answer

    with (
        mock.patch.object(stream, "__init__", begun),
        mock.patch.object(stream, "write", written),
        mock.patch.object(stream, "close", closed),
        mock.patch.object(SqlCatalog, "commit_table", committed),
    ):
        yield


def work_until(folder: str, address: str, specs: dict[str, TableSpec], kill_at: int, what: str) -> None:
    """Copy or compact in this process, and kill it at a point; leaves the number of points in a file where it ends."""
    from lake_rig import DAY_MS, START_MS, Rig

    seen = 0

    def count(_point: str, _about: str) -> None:
        nonlocal seen
        seen += 1
        if seen == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    lake = open_lake(CatalogConfig(), Path(folder))
    rig = Rig(FlightStore(address), lake, ManualClock(START_MS + 3 * DAY_MS), specs)
    with points(count):
        getattr(rig, what)()
    (Path(folder) / "points").write_text(str(seen))
