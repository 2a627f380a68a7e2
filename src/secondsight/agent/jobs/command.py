"""Run one program of the scheduler to its end, with a deadline and a limit on what it may print."""

import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence

from secondsight.errors import Retryable

COMPLAINT_CHARACTERS = 200


def output_of(
    command: Sequence[str], environment: Mapping[str, str], *, timeout_seconds: float, limit_bytes: int
) -> str:
    """Return what a program printed.

    Raises:
        Retryable: It is not there, fails, takes too long or prints too much; the text has its own complaint.
    """
    name = command[0]
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=dict(environment),
                start_new_session=True,
            )
        except OSError as error:
            raise Retryable(f"{name} cannot be started: {error.strerror}") from error
        printed, is_late = _read(process, timeout_seconds, limit_bytes)
        if is_late:
            raise Retryable(f"{name} took longer than {timeout_seconds:g} s and was stopped")
        if len(printed) > limit_bytes:
            raise Retryable(f"{name} printed more than {limit_bytes >> 20} MiB and was stopped")
        if process.returncode:
            errors.seek(0)
            complaint = errors.read(4 * COMPLAINT_CHARACTERS).decode(errors="replace").strip()[:COMPLAINT_CHARACTERS]
            raise Retryable(f"{name} failed with {process.returncode}: {complaint}")
    return printed.decode(errors="replace")


def _read(process: "subprocess.Popen[bytes]", timeout_seconds: float, limit_bytes: int) -> tuple[bytes, bool]:
    """Return what was printed, up to a byte more than the limit, and whether time ran out; the program has ended."""
    late = threading.Event()

    def stop() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(timeout_seconds, stop)
    timer.start()
    with process:
        try:
            printed = process.stdout.read(limit_bytes + 1) if process.stdout else b""
            if len(printed) > limit_bytes:
                process.kill()
            process.wait()
        finally:
            timer.cancel()
    timer.join()
    return printed, late.is_set()
