"""Keep the definitions of spooled frames beside the spool, so that a frame can be read after a restart.

One file per definition, named by its hash, written before the first frame that uses it. A definition that was lost
makes its frames unreadable; the shipper keeps those aside.
"""

import os
import re
from pathlib import Path

from secondsight.errors import Rejected
from secondsight.wire.content import Content
from secondsight.wire.schema import Definitions, definition_hash, named_entities, named_schema

FILES_MAXIMUM = 1024


class KeptDefinitions:
    """Definitions of frames in one spool. Safe to call from threads as long as `keep` is called by one at a time."""

    def __init__(self, folder: Path, files_maximum: int = FILES_MAXIMUM) -> None:
        """Read what is kept; files that are damaged are left alone and not used.

        Args:
            folder: Made when it is not there.
            files_maximum: Beyond it, the older half is deleted.

        Raises:
            OSError: The folder cannot be made or listed.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._files_maximum = files_maximum
        self._kept: set[bytes] = set()
        self.known = Definitions(max_entries=4 * files_maximum)
        for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime):
            if re.fullmatch(r"[0-9a-f]{32}", path.name):
                self._read(path)

    def keep(self, content: Content) -> None:
        """Make the definitions of a content durable.

        Raises:
            OSError: The disk refuses.
        """
        schema, entities = named_schema(content.schema), named_entities(content.entities)
        for name, blob in ((schema.hash, schema.blob), (entities.hash, entities.blob)):
            if name not in self._kept:
                self._write(name, blob)

    def _read(self, path: Path) -> None:
        blob = path.read_bytes()
        name = definition_hash(blob)
        if name.hex() != path.name:
            return
        try:
            self.known.add(blob)
        except Rejected:
            return
        self._kept.add(name)

    def _write(self, name: bytes, blob: bytes) -> None:
        temporary = self._folder / f"{name.hex()}.new"
        with temporary.open("wb") as out:
            out.write(blob)
            out.flush()
            os.fsync(out.fileno())
        temporary.rename(self._folder / name.hex())
        self.known.add(blob)
        self._kept.add(name)
        if len(self._kept) > self._files_maximum:
            self._prune()

    def _prune(self) -> None:
        """Delete the older half; frames that old have long been shipped or dropped."""
        paths = sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime)
        for path in paths[: self._files_maximum // 2]:
            path.unlink(missing_ok=True)
            if re.fullmatch(r"[0-9a-f]{32}", path.name):
                self._kept.discard(bytes.fromhex(path.name))
