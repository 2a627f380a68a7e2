"""Read a secret from a file of one line. What it holds is in no error, as errors are logged and shown."""

from pathlib import Path

from secondsight.errors import Retryable


def read_secret(path: Path, what: str = "token file") -> str:
    """Return the line that a file holds.

    Args:
        path: The file, read anew each time.
        what: What to call it in an error.

    Raises:
        Retryable: It cannot be read, or holds something else; it may be put right.
    """
    try:
        data = path.read_bytes().strip()
    except OSError as error:
        raise Retryable(f"{what} {path} cannot be read: {error.strerror}") from error
    if not data.isascii() or not data.decode("ascii").isprintable():
        raise Retryable(f"{what} {path} holds more than one line, or what is no plain text")
    return data.decode("ascii")
