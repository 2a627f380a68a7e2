"""Replace small files whole: after a crash there is the old content or the new, never a mix."""

import os
from pathlib import Path

MODE = 0o640


def write_whole(path: Path, data: bytes, mode: int = MODE) -> None:
    """Replace a file, making its folder where that is missing; the content is durable when it returns.

    Raises:
        OSError: The disk refuses; what was there stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(path)
