"""Remember in a file how far a replay came, so that one that was cut off goes on there.

What was written twice adds nothing, as rows of one key are one row; so a journal that is lost costs time alone.
"""

import json
from pathlib import Path


class Journal:
    """What of a replay is done. For one thread."""

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what
        self._done: set[str] = set()
        self._seen: dict[str, int] = {}
        self._read()

    def is_done(self, name: str) -> bool:
        """Tell whether a piece was written."""
        return name in self._done

    def seen(self, table: str) -> int:
        """Return the newest insert of a table up to which all is written."""
        return self._seen.get(table, 0)

    def done(self, name: str) -> None:
        """Note that a piece is written."""
        self._done.add(name)
        self._write()

    def saw(self, table: str, block: int) -> None:
        """Note that all of a table is written up to an insert; its pieces are forgotten."""
        self._seen[table] = block
        self._done = {name for name in self._done if not name.startswith(f"{table} ")}
        self._write()

    def end(self) -> None:
        """Forget everything: the replay is complete."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> None:
        try:
            kept = json.loads(self._path.read_text())
            if kept["what"] == self._what:
                self._done, self._seen = set(kept["done"]), dict(kept["seen"])
        except (OSError, ValueError, KeyError, TypeError):
            return

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_name(self._path.name + ".partial")
        partial.write_text(json.dumps({"what": self._what, "done": sorted(self._done), "seen": self._seen}))
        partial.replace(self._path)
