"""Write and delete files of the lake so that neither a crash nor a client library can lose one.

A local file is written beside its name, forced to disk and renamed, so it is whole or not there. A client library that
believes a commit failed deletes what it wrote for it, though the commit may have landed: here it deletes nothing.
Only the clean-up of orphans does (`sweep.py`), after it has looked at all that is live.
"""

import os
import uuid
from pathlib import Path
from typing import Any

from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO


class LakeFileIO(PyArrowFileIO):
    """Files of the lake, as pyiceberg asks for them."""

    def new_output(self, location: str) -> Any:
        """Return what a file is written by; local files are durable once closed."""
        scheme, _, path = self.parse_location(location, self.properties)
        return _DurableOutput(location, Path(path)) if scheme == "file" else super().new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Leave the file to the clean-up of orphans, which knows whether anything live names it."""

    def remove(self, location: str) -> None:
        """Delete a file that nothing live names.

        Raises:
            OSError: It could not be deleted.
        """
        super().delete(location)


class _DurableOutput(OutputFile):
    """A local file that appears under its name when it is whole and on disk."""

    def __init__(self, location: str, path: Path) -> None:
        super().__init__(location)
        self._path = path

    def __len__(self) -> int:
        return self._path.stat().st_size

    def exists(self) -> bool:
        """Tell whether the file is there."""
        return self._path.exists()

    def to_input_file(self) -> Any:
        """Return what the file is read by."""
        return LakeFileIO().new_input(self.location)

    def create(self, overwrite: bool = False) -> OutputStream:
        """Return a stream to write to.

        Raises:
            FileExistsError: The file is there, and is not to be overwritten.
        """
        if not overwrite and self.exists():
            raise FileExistsError(f"{self.location} is there already")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return _DurableStream(self._path)


class _DurableStream:
    """Bytes on their way to a local file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
        self._stream = self._partial.open("wb")

    @property
    def closed(self) -> bool:
        """Tell whether the stream was closed."""
        return self._stream.closed

    def write(self, data: bytes) -> int:
        """Write some bytes."""
        return self._stream.write(data)

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._stream.tell()

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        self._stream.flush()

    def close(self) -> None:
        """Force the bytes to disk and give the file its name; may be called twice."""
        if self._stream.closed:
            return
        try:
            self._stream.flush()
            os.fsync(self._stream.fileno())
        finally:
            self._stream.close()
        self._partial.replace(self._path)
        _force_folder(self._path.parent)

    def abort(self) -> None:
        """Let go of the file, which never gets its name; may be called twice."""
        self._stream.close()
        self._partial.unlink(missing_ok=True)

    def writable(self) -> bool:
        """Tell that bytes may be written."""
        return True

    def __enter__(self) -> "_DurableStream":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the file, or leave it without its name after an error."""
        if kind is None:
            self.close()
        else:
            self.abort()


def _force_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
