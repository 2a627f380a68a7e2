"""Keep what a gateway refused for good in a bounded folder, for a person to look at; the oldest goes first."""

import logging
import re
from pathlib import Path

from secondsight.clock import Clock

logger = logging.getLogger(__name__)

CODE_CHARACTERS = 60
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
"""Codes are a gateway's words, and name no path."""


class Aside:
    """A folder of refused frames, `<ms>-<sequence>-<code>.frame`."""

    def __init__(self, folder: Path, max_bytes: int, clock: Clock) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._clock = clock

    def keep(self, payload: bytes, sequence: int, code: str) -> None:
        """Keep one refused frame; a disk that refuses costs only this copy, and is logged."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._make_room(len(payload))
            name = f"{self._clock.now_ms()}-{sequence}-{_UNSAFE.sub('_', code)[:CODE_CHARACTERS]}.frame"
            (self._folder / name).write_bytes(payload)
        except OSError as error:
            logger.warning("a refused frame could not be kept aside: %s", error)

    def _make_room(self, size_bytes: int) -> None:
        files = sorted(self._folder.glob("*.frame"))
        total = sum(path.stat().st_size for path in files) + size_bytes
        for path in files:
            if total <= self._max_bytes:
                return
            total -= path.stat().st_size
            path.unlink(missing_ok=True)
