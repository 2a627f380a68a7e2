"""Append numbered records until killed, printing each number after it was acknowledged. Run by test_log_crash."""

import sys
import threading
from pathlib import Path

from secondsight.clock import SystemClock
from secondsight.log.embedded import EmbeddedLogWriter, LogConfig
from secondsight.log.segments import SegmentConfig


def main() -> None:
    root, first = Path(sys.argv[1]), int(sys.argv[2])
    config = LogConfig(SegmentConfig(max_bytes=20_000))
    writer = EmbeddedLogWriter(root, "t", 3, SystemClock(), config)
    threads = [threading.Thread(target=append, args=(writer, thread, first)) for thread in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def append(writer: EmbeddedLogWriter, thread: int, first: int) -> None:
    for number in range(first, first + 1_000_000):
        value = f":{thread}:{number}:".encode() + b"x" * (number % 700)
        writer.append([(str(thread).encode(), b"own" + value), (b"other", b"other" + value)])
        sys.stdout.write(f"{thread} {number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
