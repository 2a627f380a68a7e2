"""Keep one small value of this boot in a file beside the spool, replaced as a whole: after a crash it is old or new.

What another boot left, or what cannot be read, is the same as none. A disk that refuses costs the value its life over a
restart and nothing else.
"""

import json
import logging
from pathlib import Path
from typing import Any

from secondsight.agent.counts import Counts
from secondsight.agent.wholefile import write_whole

logger = logging.getLogger(__name__)

MAXIMUM_BYTES = 1 << 20


class BootFile:
    """One file. One thread uses it at a time. Counts `boot_file_unsaved`.

    Args:
        boot_id: Of this boot; "" where the kernel does not say, and then nothing outlives a restart.
    """

    def __init__(self, path: Path, boot_id: str, counts: Counts) -> None:
        self._path = path
        self._boot_id = boot_id
        self._counts = counts
        self._refused = False

    def load(self) -> Any:
        """Return what was saved in this boot, or None."""
        try:
            if self._path.stat().st_size > MAXIMUM_BYTES:
                return None
            said = json.loads(self._path.read_bytes())
            return said["value"] if said["boot_id"] == self._boot_id != "" else None
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None

    def save(self, value: Any) -> None:
        """Replace what is kept."""
        said = {"boot_id": self._boot_id, "value": value}
        try:
            write_whole(self._path, json.dumps(said, separators=(",", ":")).encode())
            self._refused = False
        except OSError as error:
            self._counts.add("boot_file_unsaved")
            level = logging.DEBUG if self._refused else logging.WARNING
            logger.log(level, "%s cannot be kept, a restart would forget it: %s", self._path, error.strerror)
            self._refused = True
