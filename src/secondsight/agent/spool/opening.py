"""Open the spools of all classes in one folder, and that of the earlier layout where it is still there."""

import logging
import shutil
from contextlib import ExitStack
from pathlib import Path

from secondsight.agent.counts import Counts
from secondsight.agent.spool.custody import ClassSpool
from secondsight.agent.spool.records import Spool
from secondsight.clock import Clock
from secondsight.log.disk import Disk
from secondsight.log.segments import SegmentConfig
from secondsight.model import Priority

logger = logging.getLogger(__name__)

EARLIER, DRAINED = "frames", "frames.drained"
LATE_FOLDERS = ("p1", "p2")
"""A power cut may cost the last seconds of these; every sync costs the host."""


def open_members(folder: Path, segments: SegmentConfig, clock: Clock, disk: Disk, counts: Counts) -> list[ClassSpool]:
    """Return all spools of a folder, the most important first; none stays open where one cannot be opened.

    Raises:
        Permanent: Another process has them open.
        OSError: The file system refuses.
    """
    members: list[ClassSpool] = []
    with ExitStack() as undo:
        shutil.rmtree(folder / DRAINED, ignore_errors=True)
        places = [(Priority.P0, folder / EARLIER, True)] if (folder / EARLIER / "cursor").exists() else []
        places += [(priority, folder / f"p{priority.value}", False) for priority in Priority]
        for priority, place, is_earlier in places:
            spool = Spool(place, segments, clock, disk, syncs_late=place.name in LATE_FOLDERS)
            undo.callback(spool.close)
            _tell(spool, counts)
            members.append(ClassSpool(priority, spool, is_earlier))
        undo.pop_all()
    return members


def _tell(spool: Spool, counts: Counts) -> None:
    """Log what opening a spool found."""
    if spool.was_wiped:
        logger.warning("segments of %s are gone: what they held cannot be counted", spool.folder)
    if spool.cut_bytes:
        logger.warning("%d bytes at the end of %s were torn and are cut", spool.cut_bytes, spool.folder)
        counts.add("spool_cut_bytes", spool.cut_bytes)
