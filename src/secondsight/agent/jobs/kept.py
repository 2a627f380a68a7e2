"""Keep the intervals of one allocator in a small file beside the spool, so that a restart of the agent ends nothing.

The file is replaced whole. One that cannot be read is put aside and counted: the agent then starts as if new, and the
platform ends nothing for it.
"""

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

from secondsight.agent.counts import Counts
from secondsight.agent.wholefile import write_whole
from secondsight.mapping.allocation import Interval, Owner, Share
from secondsight.mapping.intervals import Identity, Intervals, Kept

logger = logging.getLogger(__name__)

FORMAT = 1
SAVE_EVERY_MS = 60_000
"""How far behind the file's "last seen" may be; changes are written at once."""


class KeptIntervals:
    """The state file of one allocator. One thread uses it.

    Counts `job_state_unreadable` and `job_state_write_failed`.
    """

    def __init__(self, path: Path, counts: Counts) -> None:
        self._path = path
        self._counts = counts
        self._saved_ms: int | None = None

    def load(self) -> Kept:
        """Return what the last run knew; nothing where there is no file, or none that can be read."""
        try:
            return _kept(json.loads(self._path.read_text()))
        except FileNotFoundError:
            return Kept()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._counts.add("job_state_unreadable")
            logger.warning("%s cannot be read and is put aside, allocations start anew: %r", self._path, error)
            self._put_aside()
            return Kept()

    def save(self, intervals: Intervals, tick_ms: int) -> None:
        """Write what changed; a disk that refuses is counted, and asked again at the next tick."""
        changed = intervals.take_changed()
        if not changed and self._saved_ms is not None and abs(tick_ms - self._saved_ms) < SAVE_EVERY_MS:
            return
        try:
            write_whole(self._path, json.dumps(_fields(intervals.kept()), separators=(",", ":")).encode())
        except OSError as error:
            self._counts.add("job_state_write_failed")
            self._saved_ms = None
            logger.debug("%s cannot be written: %s", self._path, error)
            return
        self._saved_ms = tick_ms

    def _put_aside(self) -> None:
        try:
            self._path.replace(self._path.with_name(self._path.name + ".damaged"))
        except OSError as error:
            logger.debug("%s cannot be put aside: %s", self._path, error)


def _fields(kept: Kept) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "open": [asdict(interval) for interval in kept.open],
        "closed": [asdict(interval) for interval in kept.closed],
        "unsure": [list(identity) for identity in kept.unsure],
    }


def _kept(fields: dict[str, Any]) -> Kept:
    if fields["format"] != FORMAT:
        raise ValueError(f"format {fields['format']!r} is not {FORMAT}")
    return Kept(
        tuple(map(_interval, fields["open"])),
        tuple(map(_interval, fields["closed"])),
        tuple(map(_identity, fields["unsure"])),
    )


def _interval(fields: dict[str, Any]) -> Interval:
    owner, share = Owner(**fields.pop("owner")), Share(fields.pop("share"))
    made = Interval(owner=owner, share=share, **fields)
    numbers = (made.start_ms, made.last_seen_ms, made.version, made.correction_ms)
    if not all(isinstance(number, int) for number in numbers) or not isinstance(made.end_ms, int | None):
        raise ValueError("an interval's times are no integers")
    return made


def _identity(fields: list[Any]) -> Identity:
    entity, part, job, start_ms = fields
    return str(entity), str(part), str(job), int(start_ms)
