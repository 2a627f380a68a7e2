"""Read one record of a topic by its place."""

from pathlib import Path

from secondsight.contracts import LogRecord
from secondsight.errors import Retryable
from secondsight.log.segments import SegmentReader
from secondsight.log.tail import read_committed


def read_record(root: Path, topic: str, partition: int, offset: int) -> LogRecord | None:
    """Return the record at a place, or None where it is not there any more, or not yet, or damaged.

    Raises:
        Retryable: The log cannot be read.
    """
    folder = root / topic / str(partition)
    reader = SegmentReader(folder, lambda: read_committed(folder), offset, partition)
    try:
        found = reader.read(1, 1)
    except OSError as error:
        raise Retryable(f"log cannot be read: {error}") from error
    finally:
        reader.close()
    return found[0] if found and found[0].offset == offset else None
