"""Keep the definitions of spooled frames beside the spool, so that a frame can be read after a restart.

One file per definition, named by its hash, written before the first frame that uses it. Where one cannot be written the
frame itself must carry it. A definition that was lost makes its frames unreadable; the shipper keeps those aside.
"""

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path

from secondsight.clock import Clock
from secondsight.errors import Rejected
from secondsight.wire.content import Content
from secondsight.wire.schema import Definitions, definition_hash, named_entities, named_schema

logger = logging.getLogger(__name__)

FILES_MAXIMUM = 1024
FILES_LIMIT_FACTOR = 8
"""Definitions of frames that still wait are kept beyond the maximum, up to so many times as many."""

_NAME = re.compile(r"[0-9a-f]{32}").fullmatch


class KeptDefinitions:
    """Definitions of frames in one spool. Safe to call from threads as long as `keep` is called by one at a time."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        files_maximum: int = FILES_MAXIMUM,
        oldest_needed_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """Read what is kept; files that are damaged are left alone and not used, a folder that is away is made later.

        Args:
            folder: Made when it is not there.
            clock: Clock of the host.
            files_maximum: Beyond it, those are deleted that no waiting frame needs.
            oldest_needed_ms: Tells since when frames wait; what was last used before is of none of them.
        """
        self._folder = folder
        self._clock = clock
        self._files_maximum = files_maximum
        self._oldest_needed_ms = oldest_needed_ms
        self._used_ms: dict[bytes, int] = {}
        self._changed_ns = -1
        self._failing = False
        self.known = Definitions(max_entries=4 * files_maximum)
        try:
            self._read_all()
        except OSError as error:
            self._complain(error)

    def keep(self, content: Content) -> bool:
        """Make the definitions of a content durable; False where the disk refuses, and its frame must carry them."""
        schema, entities = named_schema(content.schema), named_entities(content.entities)
        try:
            self._look_after_folder()
            for name, blob in ((schema.hash, schema.blob), (entities.hash, entities.blob)):
                if name not in self._used_ms:
                    self._write(name, blob)
                self._used_ms[name] = self._clock.now_ms()
        except OSError as error:
            for blob in (schema.blob, entities.blob):
                self.known.add(blob)
            self._complain(error)
            return False
        return True

    def _read_all(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime):
            if _NAME(path.name):
                self._read(path)
        self._changed_ns = self._folder.stat().st_mtime_ns

    def _look_after_folder(self) -> None:
        """Write everything anew when somebody else has changed the folder."""
        try:
            if self._folder.stat().st_mtime_ns == self._changed_ns:
                return
        except FileNotFoundError:
            self._folder.mkdir(parents=True)
        self._used_ms = {name: used for name, used in self._used_ms.items() if (self._folder / name.hex()).exists()}
        self._changed_ns = self._folder.stat().st_mtime_ns

    def _read(self, path: Path) -> None:
        blob = path.read_bytes()
        name = definition_hash(blob)
        if name.hex() != path.name:
            return
        try:
            self.known.add(blob)
        except Rejected:
            return
        self._used_ms[name] = self._clock.now_ms()

    def _write(self, name: bytes, blob: bytes) -> None:
        temporary = self._folder / f"{name.hex()}.new"
        with temporary.open("wb") as out:
            out.write(blob)
            out.flush()
            os.fsync(out.fileno())
        temporary.rename(self._folder / name.hex())
        self._failing = False
        self.known.add(blob)
        self._used_ms[name] = self._clock.now_ms()
        if len(self._used_ms) > self._files_maximum:
            self._prune()
        self._changed_ns = self._folder.stat().st_mtime_ns

    def _prune(self) -> None:
        """Delete what no waiting frame needs; the oldest of what one may need only beyond the limit."""
        by_age = sorted(self._used_ms, key=lambda name: self._used_ms[name])
        oldest_needed_ms = self._oldest_needed_ms()
        unneeded = [name for name in by_age if self._used_ms[name] < oldest_needed_ms]
        excess = len(by_age) - FILES_LIMIT_FACTOR * self._files_maximum
        for name in {*unneeded[: self._files_maximum // 2], *by_age[: max(excess, 0)]}:
            (self._folder / name.hex()).unlink(missing_ok=True)
            del self._used_ms[name]

    def _complain(self, error: OSError) -> None:
        if not self._failing:
            logger.warning("definitions cannot be kept in %s, frames carry their own: %s", self._folder, error)
        self._failing = True
